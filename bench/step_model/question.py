"""How far the evaluator's two speeds are apart, and what each takes: `python -m bench step_model`.

Nothing is run but the planner's own formulas and its simulation: no figure here was measured on a network.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from rich.console import Console
from rich.table import Table

from bench import clusters
from bench.step_model.drawn import Case, draw

TOLERANCE = 0.05
"""Of a step."""

FIRST_SEED = 10_000
"""Other plans than those of the tests."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One plan at both speeds: how much longer the simulated step is, and the seconds that each took."""

    case: Case
    difference: float
    predict_s: float
    simulate_s: float


def run(short: bool = False) -> None:
    """Print every table; `short` draws fewer plans."""
    console = Console(highlight=False, width=160)
    num = 300 if short else 3000
    found = [_compared(draw(seed, clusters.draw)) for seed in range(FIRST_SEED, FIRST_SEED + num)]
    console.print(f"{len(found)} plans drawn over measured cloud links; simulated beside predicted step")
    console.print(_differences(found))
    console.print("Seconds of one evaluation of a plan", _times(found))


def _compared(case: Case) -> Compared:
    given = case.plan, case.workload, case.topology
    predict_s, predicted = _timed(lambda: predict(*given).step_s)
    simulate_s, simulated = _timed(lambda: simulate(*given).step_s)
    return Compared(case, simulated / predicted - 1, predict_s, simulate_s)


def _timed(work: Callable[[], float]) -> tuple[float, float]:
    """Seconds of the second time: what is loaded at the first is no evaluation's time."""
    work()
    start_s = time.perf_counter()
    found = work()
    return time.perf_counter() - start_s, found


def _differences(found: Sequence[Compared]) -> Table:
    numbers = "plans", "within 1 %", "within 5 %", "median", "95 of 100 within", "least", "most"
    table = Table("algorithm", *numbers)
    table.add_row("all", *_summary(found), style="bold")
    for kind in sorted({row.case.plan.algorithm for row in found}):
        table.add_row(f"  {kind}", *_summary([row for row in found if row.case.plan.algorithm == kind]))
    return table


def _summary(rows: Sequence[Compared]) -> list[str]:
    sizes = sorted(abs(row.difference) for row in rows)
    within = [sum(size <= limit for size in sizes) / len(sizes) for limit in (0.01, TOLERANCE)]
    differences = [row.difference for row in rows]
    figures = (statistics.median(sizes), sizes[int(0.95 * (len(sizes) - 1))], min(differences), max(differences))
    return [str(len(rows)), *(f"{share:.1%}" for share in within), *(f"{figure:+.2%}" for figure in figures)]


def _times(found: Sequence[Compared]) -> Table:
    table = Table("cells", "plans", "predict: median ms", "most", "simulate: median ms", "most")
    for low, high in ((1, 4), (5, 16), (17, 64)):
        rows = [row for row in found if low <= row.case.plan.layout.data * row.case.plan.layout.pipeline <= high]
        quick, slow = _milliseconds(row.predict_s for row in rows), _milliseconds(row.simulate_s for row in rows)
        table.add_row(f"{low} to {high}", str(len(rows)), *quick, *slow)
    return table


def _milliseconds(seconds: Iterable[float]) -> list[str]:
    found = [1e3 * one for one in seconds]
    return [f"{statistics.median(found):.2f}", f"{max(found):.2f}"] if found else ["", ""]
