"""What all-reduces took, by size class of the plan, beside what the plan expects of them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from hulk_runtime.collective.planned.prediction import expected
from hulk_runtime.plan.flows import SizeClass, serving

WINDOW: Final = 20


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Of the all-reduces of one class: how many, and medians of the last `WINDOW`; 0 where the plan expects nothing."""

    max_bytes: int
    num: int
    observed_s: float
    predicted_s: float
    bound_s: float

    @property
    def error(self) -> float | None:
        """The prediction's: |observed - predicted| / observed.

        >>> SizeFigures(1 << 20, 3, 0.5, 0.4, 0.3).error
        0.19999999999999996
        """
        return relative_error(self.observed_s, self.predicted_s)


def relative_error(observed: float, predicted: float) -> float | None:
    """|observed - predicted| / observed; None where one of them is not known."""
    return abs(observed - predicted) / observed if observed > 0 and predicted > 0 else None


@dataclass
class _Taken:
    num: int = 0
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


class Tally:
    """Filled by one thread, read by any."""

    def __init__(self, classes: Sequence[SizeClass]) -> None:
        self._classes = classes
        self._taken: dict[int, _Taken] = {}

    def take(self, num_bytes: int, seconds: float) -> None:
        """One all-reduce."""
        taken = self._taken.setdefault(serving(self._classes, num_bytes).max_bytes, _Taken())
        taken.recent.append((seconds, num_bytes))
        taken.num += 1

    def figures(self) -> tuple[SizeFigures, ...]:
        """Of the classes that were used, smallest first."""
        return tuple(self._of(max_bytes, taken) for max_bytes, taken in sorted(self._taken.items()))

    def _of(self, max_bytes: int, taken: _Taken) -> SizeFigures:
        recent = list(taken.recent)
        usual = expected(self._classes, median(num_bytes for _, num_bytes in recent))
        observed_s = median(seconds for seconds, _ in recent)
        return SizeFigures(max_bytes, taken.num, observed_s, usual.predicted_s, usual.bound_s)
