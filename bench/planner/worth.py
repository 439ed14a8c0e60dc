"""What each part of the portfolio is worth: the same search, the same time, one part left out.

The value network is a part where several jobs are planned: `bench gnn` compares `portfolio` with `local`, which is the
same without it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts import portfolio
from hulk_placement.layouts.parts import Parts
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from rich.console import Console
from rich.table import Table

from bench.planner.cases import Case
from bench.raw import Raw

WITHOUT = {
    "local search": Parts(annealing=False),
    "uneven splits": Parts(uneven=False),
    "ring search": Parts(tours=False),
}
NORMAL = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search of some parts costs, in seconds of a step, and how many layouts it evaluated."""

    step_s: float
    num_evaluations: int


def worth(console: Console, raw: Raw, cases: Sequence[Case], all_seconds: Sequence[float]) -> None:
    """A row for each part and time: how much longer a step is without it, with the interval that has the mean in it."""
    table = Table("without", "s", "clusters", "step longer by", "95 % interval", "evaluations", "with all")
    for seconds in all_seconds:
        whole = {case: found(case, Parts(), seconds) for case in cases}
        known = [case for case in cases if math.isfinite(whole[case].step_s)]
        for name, parts in WITHOUT.items():
            less = [found(case, parts, seconds) for case in known]
            for case, row in zip(known, less, strict=True):
                raw.add(
                    row, question="worth", without=name, seconds=seconds, whole_s=whole[case].step_s, case=str(case)
                )
            logs = [math.log(row.step_s / whole[case].step_s) for case, row in zip(known, less, strict=True)]
            logs = [value for value in logs if math.isfinite(value)]
            table.add_row(
                *(name, f"{seconds:g}", f"{len(logs)} of {len(known)}", *interval(logs)),
                f"{statistics.median(row.num_evaluations for row in less):,.0f}",
                f"{statistics.median(whole[case].num_evaluations for case in known):,.0f}",
            )
    console.print("What each part is worth (geometric means; a cluster counts where a layout was found)", table)


def interval(logs: Sequence[float]) -> tuple[str, str]:
    """The geometric mean of ratios less one, and its 95 % interval, from their logarithms.

    >>> interval([math.log(1.1), math.log(1.1)])
    ('+10.0%', '+10.0% .. +10.0%')
    """
    mean = statistics.mean(logs)
    half = NORMAL * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    low, high = (math.exp(mean + sign * half) - 1 for sign in (-1, 1))
    return f"{math.exp(mean) - 1:+.1%}", f"{low:+.1%} .. {high:+.1%}"


def found(case: Case, parts: Parts, seconds: float) -> Found:
    """One search of these parts, for so many seconds of this process's processor time, tables made in them too."""
    topology = case.topology()
    workload = case.workload(topology)
    end_s = time.process_time() + seconds
    ground = Ground.of(workload, topology, topology.machines)
    trials = Trials(ground, parts)
    portfolio.search(trials, space_of(ground), lambda: time.process_time() < end_s, case.seed)
    best = next(iter(trials.best_possible(1)), None)
    return Found(math.inf if best is None else best.cost, trials.num_evaluations)
