"""Measures what the plan could not know yet: the seconds each rank's machine needs for its share of a step.

The ranks compute a few steps alone but at the same time, rank 0 offers what they took to the operator, which writes its
prediction from it before step 1 and then says go. Nothing is trained here.

A synchronous step waits for whoever is slowest in it, and that is not always the same rank: where times vary, the
slowest of n ranks takes longer than the slowest median. Both are measured.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, Self

import torch

from hulk_runtime.collective.process_group import Group

MIN_PASSES = 3
MAX_PASSES = 15
ENOUGH_S = 6.0


@dataclass(frozen=True, slots=True)
class Preflight:
    """Each rank's median seconds for its share of a step, and the median of what the slowest of a step takes."""

    compute_s: tuple[float, ...]
    slowest_s: float

    @classmethod
    def of(cls, passes: Sequence[Sequence[float]]) -> Self:
        """From the seconds of every rank's passes.

        >>> Preflight.of([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
        Preflight(compute_s=(1.0, 2.0), slowest_s=2.0)
        >>> Preflight.of([[1.0, 2.0, 3.0]] * 4)
        Preflight(compute_s=(2.0, 2.0, 2.0, 2.0), slowest_s=3.0)
        """
        compute_s = tuple(median(own) for own in passes)
        return cls(compute_s, max(*compute_s, median_of_largest(passes)))


def median_of_largest(samples: Sequence[Sequence[float]]) -> float:
    """The median of the largest of independent draws, one from each of these samples.

    The least t with F_1(t) F_2(t) ... >= 1/2, F_i the empirical distribution of sample i.

    >>> median_of_largest([[1.0, 2.0, 3.0, 4.0], [3.5]])
    3.5
    """

    def share_within(t: float) -> float:
        return math.prod(sum(value <= t for value in own) / len(own) for own in samples)

    times = sorted(value for own in samples for value in own)
    return times[bisect_left(times, 0.5, key=share_within)]


class Alone(Protocol):
    """What can make a step alone."""

    def alone(self) -> float:
        """Seconds of one."""

    def goes_on(self, is_wanted: bool) -> bool:
        """Whether there is to be another one, for those who make it together."""


def measure(stepper: Alone) -> list[float]:
    """Seconds of steps alone: 3 to 15 passes in about 6 s, after one that is not counted."""
    stepper.alone()
    deadline = time.monotonic() + ENOUGH_S
    passes: list[float] = []
    while len(passes) < MIN_PASSES or (
        len(passes) < MAX_PASSES and stepper.goes_on(is_wanted=time.monotonic() < deadline)
    ):
        passes.append(stepper.alone())
    return passes


def gather(group: Group, passes: Sequence[float]) -> Preflight:
    """From every rank's seconds, on all ranks."""
    padded = [*passes, *[math.nan] * (MAX_PASSES - len(passes))]
    rows = group.gather(torch.tensor(padded, dtype=torch.float64))
    return Preflight.of([[seconds for seconds in row.tolist() if not math.isnan(seconds)] for row in rows])
