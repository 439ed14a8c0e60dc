"""Every search side by side at equal time on one workload, and what nothing can beat."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts.admission import accelerators_needed, admitted
from hulk_placement.layouts.joined import unjoined
from hulk_placement.layouts.reasons import least_cost
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Shape, Trials
from hulk_placement.solution import Unplaced
from hulk_placement.topology import Topology
from hulk_placement.words import counted
from hulk_placement.workload import Workload

from bench.layout_searches import SEARCHES


@dataclass(frozen=True, slots=True)
class Row:
    """What one search found: what a step costs by the closed form (infinite: no plan), and its work.

    `cost`: seconds, or the step's price, as the job's objective says. `is_time_over`: the time ended it, not that it
    had nothing left to try. `is_proven`: no plan is better; of an infinite cost that there is none.
    """

    search: str
    cost: float
    shape: Shape | None
    num_evaluations: int
    seconds: float
    is_proven: bool
    is_time_over: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows, and what no step of any layout costs less than."""

    rows: tuple[Row, ...]
    least: float


def compare(
    workload: Workload,
    topology: Topology,
    seconds: float,
    clock: Callable[[], float],
    names: Iterable[str] = tuple(SEARCHES),
    seed: int = 0,
) -> Comparison | Unplaced:
    """Run each search for so many seconds; why there is nothing to search, where there is not."""
    if workload.pins:
        return Unplaced("NothingToSearch", f"The machine of each of {counted(len(workload.pins), 'worker')} is given.")
    machines = admitted(workload, topology)
    if isinstance(machines, Unplaced):
        return machines
    ground = Ground.of(workload, topology, machines)
    apart = unjoined(ground, accelerators_needed(workload))
    if apart is not None:
        return apart
    space = space_of(ground)
    rows = []
    for name in names:
        trials, start_s = Trials(ground), clock()
        SEARCHES[name](trials, space, lambda start_s=start_s: clock() - start_s < seconds, seed)  # type: ignore[misc]
        took_s = clock() - start_s
        best = next(iter(trials.best_possible(1)), None)
        cost, shape = (math.inf, None) if best is None else (best.cost, best.shape)
        is_proven = trials.is_proven and (trials.knows_links or best is None)
        rows.append(Row(name, cost, shape, trials.num_evaluations, took_s, is_proven, took_s >= seconds))
    return Comparison(tuple(rows), least_cost(Trials(ground), space))
