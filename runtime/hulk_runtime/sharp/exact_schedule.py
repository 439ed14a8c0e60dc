"""The shortest schedule of a few units on a few equal devices, by searching all of them.

Units are placed in the order in which they start, each on the device that has been free for the shortest time when
its trial comes to it, or else on the one that is free first: some shortest schedule is made so. States that are not
better than one that was seen, and those that cannot become shorter than the best, are left out.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hulk_runtime.errors import ConfigurationError

MAX_STATES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Unit:
    """A trial's unit by its number, and when it is done."""

    trial: int
    number: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Each device's units in their order."""

    devices: tuple[tuple[Unit, ...], ...]
    makespan_s: float


def lower_bound_s(trials: Sequence[Sequence[float]], num_devices: int) -> float:
    """No schedule is shorter: the longest trial, and all units shared evenly.

    >>> lower_bound_s([[1, 1], [1, 1], [1, 1]], 2)
    3.0
    """
    whole = [sum(units) for units in trials]
    return max(sum(whole) / num_devices, *map(float, whole))


def shortest(trials: Sequence[Sequence[float]], num_devices: int) -> Schedule:
    """The shortest schedule, units not interrupted. Raises ConfigurationError when there are too many.

    Three trials of two units on two devices: 3, though each trial alone takes 2.

    >>> shortest([[1, 1], [1, 1], [1, 1]], 2).makespan_s
    3.0
    """
    search = _Search(trials, num_devices)
    search.go([0] * len(trials), [0.0] * len(trials), [0.0] * num_devices, 0.0, [])
    devices: list[list[Unit]] = [[] for _ in range(num_devices)]
    for device, unit in search.best:
        devices[device].append(unit)
    return Schedule(tuple(map(tuple, devices)), search.best_s)


class _Search:
    def __init__(self, trials: Sequence[Sequence[float]], num_devices: int) -> None:
        self._trials = trials
        self._bound_s = lower_bound_s(trials, num_devices)
        self._left_s = [[sum(units[i:]) for i in range(len(units) + 1)] for units in trials]
        self._seen: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
        self._num_states = 0
        self.best: list[tuple[int, Unit]] = []
        self.best_s = float("inf")

    def go(
        self, done: list[int], ready_s: list[float], free_s: list[float], now_s: float, units: list[tuple[int, Unit]]
    ) -> None:
        """All schedules that go on from here and start nothing before `now_s`."""
        if all(done[t] == len(each) for t, each in enumerate(self._trials)):
            makespan_s = max(free_s)
            if makespan_s < self.best_s:
                self.best, self.best_s = list(units), makespan_s
            return
        if self._is_hopeless(done, ready_s, free_s, now_s):
            return
        going = [t for t in range(len(self._trials)) if done[t] < len(self._trials[t])]
        for trial in sorted(going, key=lambda t: (-self._left_s[t][done[t]], t)):
            start_s = max(ready_s[trial], min(free_s), now_s)
            device = max((d for d in range(len(free_s)) if free_s[d] <= start_s), key=lambda d: free_s[d])
            unit = Unit(trial, done[trial], start_s, start_s + self._trials[trial][done[trial]])
            before = (ready_s[trial], free_s[device])
            done[trial] += 1
            ready_s[trial] = free_s[device] = unit.end_s
            units.append((device, unit))
            self.go(done, ready_s, free_s, start_s, units)
            units.pop()
            done[trial] -= 1
            ready_s[trial], free_s[device] = before
            if self.best_s <= self._bound_s * (1 + 1e-12):
                return

    def _is_hopeless(self, done: list[int], ready_s: list[float], free_s: list[float], now_s: float) -> bool:
        """Nothing shorter than the best can follow, or what follows was searched from a state that was no worse."""
        self._num_states += 1
        if self._num_states > MAX_STATES:
            sizes = ", ".join(str(len(units)) for units in self._trials)
            raise ConfigurationError(
                f"scheduler exact: trials of {sizes} units on {len(free_s)} devices are too many: "
                f"{MAX_STATES} states were searched; use lrtf"
            )
        left_s = [self._left_s[t][number] for t, number in enumerate(done)]
        free = [max(f, now_s) for f in free_s]
        ends = [max(ready_s[t], min(free)) + left_s[t] for t in range(len(done)) if left_s[t]]
        if max((sum(free) + sum(left_s)) / len(free), *ends) >= self.best_s:
            return True
        state = (*sorted(free), *(max(r, now_s) for r in ready_s))
        earlier = self._seen.setdefault(tuple(done), [])
        if any(all(a <= b for a, b in zip(other, state, strict=True)) for other in earlier):
            return True
        bisect.insort(earlier, state)
        return False
