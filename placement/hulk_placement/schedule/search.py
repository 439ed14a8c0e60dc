"""The best schedule that a few seconds find: greedy ones at once, a pattern that repeats, greedy ones by better rules.

Where there are few micro-batches, the solver orders all their operations, and may prove that no schedule is shorter. It
takes longer to load than most plans to make, so what calls it (`exact`, `repetend`, `unrolled`) is imported where it
runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hulk_placement.schedule.bounds import least_makespan
from hulk_placement.schedule.found import DEFAULT_S, Found, Repetend
from hulk_placement.schedule.memory import Memory
from hulk_placement.schedule.named import NAMED
from hulk_placement.schedule.operations import Operations, operations_of
from hulk_placement.schedule.packed import Packer, Rule, packed, rules_of
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.timing import Schedule, check, earliest

FIRST_SHARE, PATTERN_SHARE, JOINED_SHARE = 0.1, 0.4, 0.2
"""Of the seconds: for better rules before there is a pattern, for the pattern, for its warm-up and cool-down."""

SEARCH_SHARE = 0.97
"""Of the seconds; the others are for the check."""

MOST_ORDERED = 256
"""Operations of all micro-batches together up to which the solver orders them all."""

MOST_IN_PATTERN = 64
"""Operations up to which the solver looks for a pattern: of more it finds none in seconds that a greedy one is not."""

MAX_MICRO_BATCHES = 16
"""Of a pattern."""


def scheduled(
    placement: Placement,
    num_micro_batches: int,
    memory: Memory = math.inf,
    seconds: float = DEFAULT_S,
    mode: str = "searched",
    seed: int = 0,
) -> Found:
    """The schedule of a mode, checked.

    ValueError where it cannot keep the memory, the mode is made for other placements, or nothing was found in time.
    """
    if num_micro_batches < 1:
        raise ValueError(f"{num_micro_batches} micro-batches: must be >= 1")
    began = time.perf_counter()
    operations = operations_of(placement)
    least = least_makespan(operations, num_micro_batches, memory)
    end_s = began + SEARCH_SHARE * seconds
    found = _MAKERS[mode](_Task(placement, operations, num_micro_batches, memory, least, end_s, seed))
    check(found.schedule, memory)
    return replace(found, seconds=time.perf_counter() - began)


def pattern_of(
    placement: Placement, num_micro_batches: int, memory: Memory, seconds: float, seed: int = 0
) -> Repetend | None:
    """The shortest pattern; None where there is too much to order, or none was found in time."""
    if len(placement.blocks) + len(placement.transfers) > MOST_IN_PATTERN:
        return None
    from hulk_placement.schedule.repetend import repetend

    try:
        return repetend(placement, memory, min(MAX_MICRO_BATCHES, num_micro_batches), seconds, seed)
    except ValueError:  # none was found in time
        return None


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked for; no makespan is below `least`."""

    placement: Placement
    operations: Operations
    num: int
    memory: Memory
    least: float
    end_s: float
    seed: int

    @property
    def left_s(self) -> float:
        return self.end_s - time.perf_counter()

    def found(self, schedule: Schedule, bound: float = 0.0, pattern: Repetend | None = None) -> Found:
        return Found(schedule, min(max(bound, self.least), schedule.makespan), 0.0, pattern)


def _searched(task: _Task) -> Found:
    search = _Search(task, _packed(task))
    seconds = task.left_s
    if search.best is None:
        search.solved = _one_by_one(task)
    for part in (search.climb, search.order_all, search.repeat, search.climb_on):
        if search.is_optimal:
            break
        part(seconds)
    if search.best is None:
        raise ValueError(f"no schedule of {task.num} micro-batches was found in {seconds:g} s")
    return task.found(search.best, search.bound, search.pattern)


@dataclass(slots=True)
class _Search:
    """What the parts of a search have found so far; each part is told the seconds of all of them."""

    task: _Task
    packer: Packer
    solved: Schedule | None = None
    """The best that is not greedy."""
    bound: float = 0.0
    pattern: Repetend | None = None

    @property
    def best(self) -> Schedule | None:
        both = [schedule for schedule in (self.packer.best, self.solved) if schedule is not None]
        return min(both, key=lambda schedule: schedule.makespan, default=None)

    @property
    def is_optimal(self) -> bool:
        return self.best is not None and self.task.found(self.best, self.bound).is_proven

    def climb(self, seconds: float) -> None:
        end_s = time.perf_counter() + FIRST_SHARE * seconds
        self.packer.climb(lambda: time.perf_counter() < end_s, self.task.seed)

    def climb_on(self, seconds: float) -> None:
        self.packer.climb(lambda: self.task.left_s > 0, self.task.seed + 1)

    def order_all(self, seconds: float) -> None:
        task = self.task
        if task.num * len(task.operations) <= MOST_ORDERED:
            from hulk_placement.schedule.exact import time_optimal

            share = seconds * (1 - 2 * FIRST_SHARE)
            found = time_optimal(task.placement, task.num, task.memory, share, self.best, task.seed)
            self.solved, self.bound = found.schedule, found.bound

    def repeat(self, seconds: float) -> None:
        task = self.task
        if task.left_s < PATTERN_SHARE * seconds:
            return
        self.pattern = pattern_of(task.placement, task.num, task.memory, PATTERN_SHARE * seconds, task.seed)
        if self.pattern is not None:
            from hulk_placement.schedule.unrolled import joined

            self.packer.try_rules([Rule(self.pattern.period, self.pattern.offset_O)])
            share = JOINED_SHARE * seconds
            found = joined(task.placement, self.pattern, task.num, task.memory, share, task.seed)
            both = [found] if self.solved is None else [found, self.solved]
            self.solved = min(both, key=lambda schedule: schedule.makespan)


def _optimal(task: _Task) -> Found:
    from hulk_placement.schedule.exact import time_optimal

    begin = _packed(task).best or _one_by_one(task)
    return time_optimal(task.placement, task.num, task.memory, task.left_s, begin, task.seed)


def _packed(task: _Task) -> Packer:
    packer = Packer(task.operations, task.num, task.memory)
    packer.try_rules(rules_of(task.operations))
    return packer


def _one_by_one(task: _Task) -> Schedule:
    """Micro-batches one after another: where they keep the memory only if blocks come in an order of their own."""
    from hulk_placement.schedule.exact import time_optimal

    alone = time_optimal(task.placement, 1, task.memory, task.left_s, seed=task.seed).schedule
    starts_ON = alone.starts_ON + alone.makespan * np.arange(task.num)
    return earliest(task.operations, Schedule(task.operations, starts_ON).orders(), task.num)


def _fast(task: _Task) -> Found:
    return task.found(packed(task.operations, task.num, task.memory))


def _named(mode: str, task: _Task) -> Found:
    return task.found(NAMED[mode](task.placement, task.num))


_MAKERS: dict[str, Callable[[_Task], Found]] = {
    "searched": _searched,
    "optimal": _optimal,
    "fast": _fast,
    **{mode: partial(_named, mode) for mode in NAMED},
}
MODES = tuple(_MAKERS)
"""How a schedule is made: `fast` is greedy alone, `optimal` the solver's."""
