"""What planning may cost, and what it answers. Apart from the searches, whose loading takes seconds and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hulk_placement.plan import Plan
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Budget:
    """How much work one plan may cost, in search iterations, so that the same budget gives the same plan anywhere.

    `seconds` bounds the time of all plans of a pass together: only where that ends a search does the machine's speed
    decide, and then the plan says at which iteration; with that as `stop_at` it is made again.
    """

    iterations: int = 100_000
    seed: int = 0
    seconds: float = math.inf
    stop_at: int | None = None

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
    """A plan for every workload that got one, by key, and the reason for every workload that did not."""

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, Unplaced]


def precedence(workload: Workload) -> tuple[int, float, str]:
    """What decides who is placed first: the smallest goes first."""
    return -workload.priority, workload.created_s, workload.key
