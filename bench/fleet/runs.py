"""One simulated policy as a row, and what many rows come to."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.fleet_simulator import Scenario, simulate

STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 19: 2.093}
"""Quantiles for a 95 % interval by degrees of freedom; 1.96 where there are more."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy came to in one scenario."""

    case: str
    seed: int
    policy: str
    utility: float
    bound: float
    makespan_s: float
    utilisation: float
    num_moves: int
    num_overruns: int
    longest_decision_s: float

    @property
    def fraction(self) -> float:
        """Of the bound; 1 where nothing can be gained."""
        return self.utility / self.bound if self.bound > 0 else 1.0


def simulated(case: str, seed: int, scenario: Scenario, policy: str, bound: float, name: str | None = None) -> Row:
    """Simulate one policy; `name` where the row is called otherwise."""
    found = simulate(replace(scenario, settings=replace(scenario.settings, policy=policy)), time.process_time)
    return Row(
        case,
        seed,
        name or policy,
        found.utility,
        bound,
        found.makespan_s,
        found.utilisation,
        sum(found.moves.values()) - found.moves["start"],
        len(found.overruns),
        found.longest_decision_s,
    )


def interval(figures: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval.

    >>> interval([1.0, 1.0, 1.0])
    (1.0, 0.0)
    """
    if len(figures) < 2:
        return statistics.fmean(figures), math.inf
    quantile = STUDENT.get(len(figures) - 1, 1.96)
    return statistics.fmean(figures), quantile * statistics.stdev(figures) / math.sqrt(len(figures))


def words(figures: Sequence[float]) -> str:
    """
    >>> words([0.9, 1.0, 1.1])
    '1.000 ± 0.248'
    """
    mean, half = interval(figures)
    return f"{mean:.3f} ± {half:.3f}"


def worst_lead(rows: Sequence[Row], other: str, ours: str = "gadget") -> float:
    """The least of our lead over another policy in any one scenario, as a part of its bound."""
    mine = {(row.case, row.seed): row.fraction for row in rows if row.policy == ours}
    return min(mine[row.case, row.seed] - row.fraction for row in rows if row.policy == other)


def leads(rows: Sequence[Row], other: str, ours: str = "gadget") -> list[float]:
    """Our lead over another policy in every scenario, as a part of its bound."""
    mine = {(row.case, row.seed): row.fraction for row in rows if row.policy == ours}
    return [mine[row.case, row.seed] - row.fraction for row in rows if row.policy == other]
