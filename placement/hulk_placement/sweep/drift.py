"""Whether a plan still holds: measured times beside those that it was made with.

All times that are off by one factor leave the shortest plan the shortest, so that what is compared is the times'
ratios to their median: a plan that was made from equal guesses does not drift because a step takes 3 s and not 1 s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

DEFAULT_TOLERANCE = 1.25
"""A trial may take so many times as long, or so many times less, beside the others before all is planned again."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The trial that is furthest from the plan, `ratio` >= 1 how many times, and how many were measured."""

    trial: str
    ratio: float
    num_measured: int

    def exceeds(self, tolerance: float = DEFAULT_TOLERANCE) -> bool:
        """Whether it is time to plan again."""
        return self.ratio > tolerance


def drift_of(planned_s: Mapping[str, float], measured_s: Mapping[str, float]) -> Drift | None:
    """How far measured times of steps are from those that were planned with; None where nothing was measured.

    >>> drift_of({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 2.0, "b": 2.0, "c": 6.0})
    Drift(trial='c', ratio=3.0, num_measured=3)
    >>> drift_of({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 2.0}).exceeds()
    False
    """
    ratios = {name: seconds / planned_s[name] for name, seconds in measured_s.items() if name in planned_s}
    if not ratios:
        return None
    middle = median(ratios.values())
    off = {name: max(ratio / middle, middle / ratio) for name, ratio in ratios.items()}
    worst = max(sorted(off), key=lambda name: off[name])
    return Drift(worst, off[worst], len(off))
