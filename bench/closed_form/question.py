"""How far the closed form is from the simulation where the search goes: `python -m bench closed_form`.

Nothing is run but the planner's own formulas and its simulation: no figure here was measured on a network.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from rich.console import Console
from rich.table import Table

from bench.closed_form.drawn import Case, by_chance, found
from bench.verdicts import verdict

FIRST_SEED = 20_000
"""Other layouts than those of the tests."""

TOLERANCE = 0.05

LEAST_WITHIN = 0.95
"""Of the layouts that the search finds."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A plan's seconds by the closed form, over those of the simulation."""

    seed: int
    case: Case
    ratio: float

    @property
    def off(self) -> float:
        """How far one is from the other, either way; 0: they agree."""
        return max(self.ratio, 1 / self.ratio) - 1


def compared(seed: int, draw: Callable[[int], Case]) -> Compared:
    """The case of a seed at both speeds."""
    case = draw(seed)
    given = case.plan, case.workload, case.topology
    return Compared(seed, case, predict(*given).step_s / simulate(*given).step_s)


def run(short: bool = False) -> None:
    """Print the table; `short` draws fewer layouts."""
    console = Console(highlight=False, width=160)
    num, num_searches = (200, 40) if short else (2000, 240)
    drawn = [compared(seed, by_chance) for seed in range(FIRST_SEED, FIRST_SEED + num)]
    searched = [compared(seed, found) for seed in range(FIRST_SEED, FIRST_SEED + num_searches)]
    table = Table("layouts", "number", "within 5 %", "median off", "95 of 100 within", "least ratio", "most ratio")
    for name, rows in (
        ("by chance", drawn),
        ("  one stage", [row for row in drawn if row.case.plan.layout.pipeline == 1]),
        ("  one replica", [row for row in drawn if row.case.plan.layout.data == 1]),
        ("found by the search", searched),
    ):
        table.add_row(name, *_summary(rows))
    console.print("closed form over simulation", table)
    within = sum(row.off <= TOLERANCE for row in searched) / len(searched)
    console.print(verdict("share of found layouts within 5 %", within, "at least", LEAST_WITHIN))
    worst = max(searched, key=lambda row: row.off)
    console.print(f"worst of those found: seed {worst.seed}, closed form / simulation {worst.ratio:.3f}")


def _summary(rows: Sequence[Compared]) -> list[str]:
    if not rows:
        return ["0", *[""] * 5]
    off = sorted(row.off for row in rows)
    within = sum(size <= TOLERANCE for size in off) / len(off)
    ratios = [row.ratio for row in rows]
    figures = f"{statistics.median(off):.2%}", f"{off[int(0.95 * (len(off) - 1))]:.1%}"
    return [str(len(rows)), f"{within:.1%}", *figures, f"{min(ratios):.3f}", f"{max(ratios):.3f}"]
