"""What the plan expects an all-reduce of any size to take."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_runtime.plan.flows import SizeClass


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds as predicted, and those that nothing can be faster than; 0 where the plan does not say."""

    predicted_s: float
    bound_s: float


def expected(classes: Sequence[SizeClass], num_bytes: float) -> Expected:
    """The plan's own figures for the largest vector of a class, on the line between two of them for one in between.

    A vector below the first class takes as long as the largest of it, at most; beyond the last class in proportion.

    >>> from hulk_runtime.plan.flows import Flow
    >>> flows = (Flow(1.0, (0, 1)),)
    >>> classes = [SizeClass(size, 8, flows, predicted_s=size / 100) for size in (100, 200)]
    >>> [expected(classes, num_bytes).predicted_s for num_bytes in (50, 100, 150, 400)]
    [1.0, 1.0, 1.5, 4.0]
    """
    above = bisect_left([found.max_bytes for found in classes], num_bytes)
    if above == 0:
        return Expected(float(classes[0].predicted_s), float(classes[0].bound_s))
    low, high = classes[above - 1], classes[min(above, len(classes) - 1)]
    if low is high:
        scale = num_bytes / low.max_bytes
        return Expected(scale * low.predicted_s, scale * low.bound_s)
    part = (num_bytes - low.max_bytes) / (high.max_bytes - low.max_bytes)
    return Expected(
        low.predicted_s + part * (high.predicted_s - low.predicted_s),
        low.bound_s + part * (high.bound_s - low.bound_s),
    )
