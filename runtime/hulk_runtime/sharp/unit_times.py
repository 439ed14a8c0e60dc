"""How long units take: what the pilot run said until they were measured, in the proportion of those that were.

Pilot runs and the run itself differ by a factor: devices share a bus and cores, a first pass is slow. Were the two
mixed, trials that have begun would look longer (or shorter) than those that have not, and an order by remaining time
would keep to them until they end.
"""

import threading
from collections.abc import Sequence


class Pace:
    """How many times as long as their pilot runs units took, over all trials.

    >>> pace = Pace()
    >>> pace.factor
    1.0
    >>> pace.observe(2.0, 3.0)
    >>> pace.factor
    1.5
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pilot_s = self._measured_s = 0.0

    def observe(self, pilot_s: float, measured_s: float) -> None:
        """One unit."""
        with self._lock:
            self._pilot_s += pilot_s
            self._measured_s += measured_s

    @property
    def factor(self) -> float:
        """1 before the first one."""
        with self._lock:
            return self._measured_s / self._pilot_s if self._pilot_s else 1.0


class UnitTimes:
    """Of the units of one trial's mini-batch.

    Two trials alike, each of two units that took 1 s in pilot runs. The first one's first unit takes 10 s; then the
    other one is as long as before, beside it:

    >>> pace = Pace()
    >>> begun, other = UnitTimes([1.0, 1.0], pace), UnitTimes([1.0, 1.0], pace)
    >>> begun.observe(0, 10.0)
    >>> begun.seconds(), other.seconds()
    ([10.0, 10.0], [10.0, 10.0])
    """

    def __init__(self, pilot_s: Sequence[float], pace: Pace) -> None:
        self._pilot_s, self._pace = list(pilot_s), pace
        self._sum_s, self._num = [0.0] * len(self._pilot_s), [0] * len(self._pilot_s)

    def observe(self, unit: int, seconds: float) -> None:
        """What a unit took this time."""
        self._sum_s[unit] += seconds
        self._num[unit] += 1
        self._pace.observe(self._pilot_s[unit], seconds)

    def seconds(self) -> list[float]:
        """Of each unit: the mean of what was measured, else what is to be expected."""
        factor = self._pace.factor
        rows = zip(self._pilot_s, self._sum_s, self._num, strict=True)
        return [sum_s / num if num else pilot_s * factor for pilot_s, sum_s, num in rows]
