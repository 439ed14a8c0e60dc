"""DDP step times over the emulated WAN: gloo with torch's buckets, gloo with its best number, Hulk's own as planned.

gloo's best number of equal buckets is what a sweep finds on this very network and model, each in the best order of
ranks for it; that one is then timed again, in turn with the others. Hulk's number is not tried out: a job's plan has
it, with the flows and the predicted step.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hulk_placement.plan import Plan
from hulk_runtime.collective.ddp import bucket_mib
from rich.console import Console

from bench.allreduce import case as cases
from bench.allreduce import job, ours
from bench.allreduce.answers import table
from bench.allreduce.case import Case, Spec
from bench.allreduce.gloo_orders import best_order
from bench.allreduce.rounds import MIB, Band, Timed, time_in_turn
from bench.raw import Raw
from bench.verdicts import verdict

NUM_LAYERS = (8, 32)
"""8.4 and 33.6 MB of gradients."""
SWEPT = (1, 2, 3, 4, 8)
"""Numbers of gloo's buckets."""
MOST_SWEEP_RUNS = 3
TORCHS_MIB = 25
"""torch's buckets are at most so large, but for the first one of 1 MiB."""
TORCHS, BEST, OURS = "gloo, torch's buckets", "gloo, best buckets", f"{cases.OURS}, planned buckets"


@dataclass(frozen=True, slots=True)
class Found:
    """One model on one case: the sweep, in the order of SWEPT, and the three ways in turn."""

    case: Case
    num_bytes: int
    sweep: tuple[Timed, ...]
    num_best: int
    num_planned: int
    predicted_s: float
    timed: tuple[Timed, ...]

    def gain(self, way: str) -> float | None:
        """How many times faster Hulk's own is than a way of gloo's; None without runs that count.

        Nor is it known what gloo's best is when a number of buckets has none in the sweep.
        """
        if way == BEST and not all(timed.valid for timed in self.sweep):
            return None
        median_s = {timed.method: timed.median_s for timed in self.timed}
        theirs_s, ours_s = median_s[way], median_s[OURS]
        return None if theirs_s is None or ours_s is None else theirs_s / ours_s

    def __str__(self) -> str:
        timed = ", ".join(f"{timed.method} {timed}" for timed in self.timed)
        swept = ", ".join(f"{count}: {timed}" for count, timed in zip(SWEPT, self.sweep, strict=True))
        return (
            f"{self.case} {self.num_bytes / MIB:g} MiB: gloo by buckets {swept}, best {self.num_best}; "
            f"{cases.OURS} {self.num_planned} as planned, predicted {self.predicted_s:.3f}; in turn {timed}"
        )


def run(chosen: Iterable[Case], num_layers: Sequence[int], num_runs: int) -> None:
    """One table a case, then the verdicts."""
    console, raw, all_found = Console(highlight=False, width=160), Raw("allreduce-ddp"), list[Found]()
    for case in chosen:
        rows = []
        with cases.band(case) as band:
            for count in num_layers:
                rows.append(time_steps(case, band, count, num_runs))
                console.print(f"[dim]{rows[-1]}")
                _keep(raw, rows[-1])
        title = f"{case}: seconds of a DDP step by MiB of gradients; !: no run counts"
        console.print(table(title, [found.timed for found in rows]))
        all_found += rows
    for line in verdicts(all_found):
        console.print(line)


def verdicts(all_found: Sequence[Found]) -> list[str]:
    """Never slower than gloo, with either of its buckets."""
    lines = []
    for way in (TORCHS, BEST):
        gains = [gain for found in all_found if (gain := found.gain(way)) is not None]
        lines.append(verdict(f"DDP step, {way} / {OURS}, least", min(gains, default=None), "at least", 1))
    return lines


def time_steps(case: Case, band: Band, num_layers: int, num_runs: int) -> Found:
    """gloo's sweep, then all ways in turn on one model."""
    num_bytes = num_layers * MIB
    sweep = {count: _gloo(case, num_layers, count) for count in SWEPT}
    swept = _in_turn(
        band, {str(count): spec for count, spec in sweep.items()}, num_bytes, min(num_runs, MOST_SWEEP_RUNS)
    )
    num_best = min(zip(SWEPT, swept, strict=True), key=lambda tried: _seconds(tried[1]))[0]
    plan = job.planned(case, num_bytes, band.compute_s(num_layers))
    timed = _in_turn(
        band,
        {TORCHS: _gloo(case, num_layers, None), BEST: sweep[num_best], OURS: _ours(case, num_layers, plan)},
        num_bytes,
        num_runs,
    )
    return Found(case, num_bytes, tuple(swept), num_best, plan.num_buckets, plan.prediction.step_s, tuple(timed))


def _gloo(case: Case, num_layers: int, num_buckets: int | None) -> Spec:
    """Ranks in gloo's best order for the largest bucket; None leaves the number to torch."""
    if num_buckets is None:
        cap_mb, largest = None, min(TORCHS_MIB, max(1, num_layers - 1)) * MIB
    else:
        cap_mb, largest = bucket_mib(num_layers * MIB, num_buckets), -(-num_layers // num_buckets) * MIB
    order = best_order(case.regions, case.links, largest)
    return {"kind": "gloo", "num_layers": num_layers, "cap_mb": cap_mb, "order": order}


def _ours(case: Case, num_layers: int, plan: Plan) -> Spec:
    """As `hulk_runtime.collective.ddp` has it: the plan's flows and the plan's number of buckets."""
    assert plan.collective is not None
    method = ours.as_method(plan.collective)
    return {**_gloo(case, num_layers, plan.num_buckets), "kind": "wan", "method": method}


def _in_turn(band: Band, specs: dict[str, Spec], num_bytes: int, num_runs: int) -> list[Timed]:
    """Made, timed in turn, closed."""
    keys = {label: cases.key_of(spec) for label, spec in specs.items()}
    for label, spec in specs.items():
        band.make_steps(keys[label], spec)
    timed = time_in_turn(keys, num_bytes, num_runs, band.step)
    for key in set(keys.values()):
        band.close_steps(key)
    return timed


def _seconds(timed: Timed) -> float:
    """To choose by: of the runs that count, of all where none does."""
    if timed.median_s is not None:
        return timed.median_s
    return statistics.median(run.seconds for run in timed.runs)


def _keep(raw: Raw, found: Found) -> None:
    numbers = {TORCHS: 0, BEST: found.num_best, OURS: found.num_planned}
    for count, timed in zip(SWEPT, found.sweep, strict=True):
        raw.add(timed, case=str(found.case), question="sweep", num_buckets=count)
    for timed in found.timed:
        more = {"num_buckets": numbers[timed.method], "predicted_s": found.predicted_s}
        raw.add(timed, case=str(found.case), question="in turn", **more)
