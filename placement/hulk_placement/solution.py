"""What planning may cost, and what it answers. Apart from the searches, whose loading takes seconds and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hulk_placement.plan import Plan
from hulk_placement.workload import Workload

Readings = dict[int, int]
"""What a search read off the clock: at which of its iterations how many percent of its time were over; 100 end it."""


class Record:
    """The readings of all searches of a pass, in the order in which they begin; `given`: those of an earlier pass.

    With those given no clock is looked at: the same searches end at the same iterations, and the same plans come out.
    """

    def __init__(self, given: Sequence[Readings] | None = None) -> None:
        self.given = None if given is None else tuple(given)
        self.made: list[Readings] = []

    def begin(self) -> tuple[Readings | None, Readings]:
        """What is given of the next search, None where it is to look at the clock; and where it writes what it read."""
        number = len(self.made)
        if self.given is None:
            self.made.append({})
            return None, self.made[number]
        self.made.append(dict(self.given[number]) if number < len(self.given) else {})
        return self.made[number], self.made[number]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much work one plan may cost, in search iterations, so that the same budget gives the same plan anywhere.

    `seconds` bounds the time of all plans of a pass together, and where they are finite a search also ends when waiting
    costs more than it may still win (`stopping`); `num_waiting` jobs wait for it, for each that it plans. Only where
    that ends a search does the machine's speed decide, and then the plan says at which iteration. `record` has all that
    was read off the clock: with a solution's own the same plans are made again.
    """

    iterations: int = 100_000
    seed: int = 0
    seconds: float = math.inf
    num_waiting: float = 1.0
    record: Record = field(default_factory=Record, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"budget: {self.iterations} iterations must be >= 1")
        if not self.seconds > 0:
            raise ValueError(f"budget: {self.seconds} s must be > 0")


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why a workload has no plan: a PascalCase reason and a sentence with the numbers."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan for every workload that got one, by key, and the reason for every workload that did not.

    `readings` of the clock make the same solution again (`Budget.record`).
    """

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, Unplaced]
    readings: tuple[Readings, ...] = field(default=(), compare=False)


def precedence(workload: Workload) -> tuple[int, float, str]:
    """What decides who is placed first: the smallest goes first."""
    return -workload.priority, workload.created_s, workload.key
