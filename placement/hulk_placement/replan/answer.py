"""What re-planning is asked beside the plan, and what it answers. Apart from the searches, which are heavy to load."""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.plan import Plan
from hulk_placement.replan.changes import Changes
from hulk_placement.replan.decide import Verdict, Weighed
from hulk_placement.replan.moving import MoveCost
from hulk_placement.solution import Unplaced


@dataclass(frozen=True, slots=True)
class Situation:
    """How far the training is, and how long the cluster has been as it is now.

    `num_made`: steps so far, of which the warm-up of local SGD is less.
    """

    steps_left: int
    held_s: float = float("inf")
    num_made: int = 0

    def __post_init__(self) -> None:
        if self.steps_left < 0 or not self.held_s >= 0:
            raise ValueError(f"{self.steps_left} steps left and {self.held_s} s since the change must be >= 0")


@dataclass(frozen=True, slots=True)
class Replanned:
    """The answer. `current` is the plan predicted for the cluster as it is now, None: it cannot go on.

    `new` is what a move goes to; it may be the current plan where nothing better was found. None: `unplaced` says why.
    """

    verdict: Verdict
    reason: str
    changes: Changes
    current: Plan | None
    new: Plan | None
    cost: MoveCost | None
    weighed: Weighed | None
    unplaced: Unplaced | None = None
