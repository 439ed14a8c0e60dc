"""What searches find: a schedule with what none is shorter than, and the pattern that it repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hulk_placement.schedule.operations import Operations
from hulk_placement.schedule.timing import Schedule

DEFAULT_S = 2.0
"""What a search gets where nobody says more."""


@dataclass(frozen=True, slots=True, eq=False)
class Repetend:
    """Operation o of micro-batch m starts at `offset_O[o]` + m x `period`; no period is below `bound`.

    It does so in the pattern's repetition m + `late_O[o]`.
    """

    operations: Operations
    period: float
    offset_O: NDArray[np.float64]
    late_O: NDArray[np.int64]
    bound: float
    seconds: float

    @property
    def num_micro_batches(self) -> int:
        """Of how many different micro-batches the pattern has blocks."""
        return int(self.late_O.max()) + 1

    @property
    def is_proven(self) -> bool:
        """Whether no pattern of so many micro-batches has a shorter period."""
        return self.period <= self.bound * (1 + 1e-9)

    @property
    def bubbles(self) -> float:
        """Of a period, how long the device is idle that works most."""
        return self.period - max(map(self.operations.work, range(self.operations.num_devices)))


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule, what no makespan is below, the seconds that finding it took; its pattern, where one was searched."""

    schedule: Schedule
    bound: float
    seconds: float
    pattern: Repetend | None = None

    @property
    def is_proven(self) -> bool:
        """Whether no schedule is shorter."""
        return self.schedule.makespan <= self.bound * (1 + 1e-9)
