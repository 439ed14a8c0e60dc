"""Schedules as starts of all operations: the earliest ones in a given order, and the check that every result passes.

It knows nothing of how an order was found.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hulk_placement.schedule.memory import Memory, limit_of
from hulk_placement.schedule.operations import Operations

Starts = NDArray[np.float64]
"""(operations, micro-batches)."""

Turn = tuple[int, int]
"""An operation and a micro-batch."""

Orders = Sequence[Sequence[Turn]]
"""Of each resource, whose turn it is, one after the other."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """When every operation of every micro-batch starts."""

    operations: Operations
    starts_ON: Starts

    @property
    def num_micro_batches(self) -> int:
        """All of them."""
        return int(self.starts_ON.shape[1])

    @property
    def spans_O(self) -> NDArray[np.float64]:
        """Of the operations."""
        return np.array([one.span for one in self.operations.operations])

    @property
    def makespan(self) -> float:
        """When the last operation ends."""
        return float((self.starts_ON + self.spans_O[:, None]).max())

    @property
    def bubbles(self) -> float:
        """Time in which devices are idle before the end, of all devices together."""
        devices = range(self.operations.num_devices)
        work = math.fsum(self.operations.work(device) for device in devices)
        return self.operations.num_devices * self.makespan - self.num_micro_batches * work

    def order(self, resource: int) -> list[Turn]:
        """Whose turn it is on a resource, one after the other."""
        return [(number, m) for number, m in self.turns(resource).T.tolist()]

    def turns(self, resource: int) -> NDArray[np.int64]:
        """The operations that occupy a resource, one after the other, and their micro-batches; (2, turns)."""
        users_U = np.array(self.operations.users(resource), np.int64)
        number_T, m_T = (there.ravel() for there in np.meshgrid(users_U, range(self.num_micro_batches), indexing="ij"))
        start_T = self.starts_ON[number_T, m_T]
        order_T = np.lexsort((number_T, m_T, start_T + self.spans_O[number_T], start_T))
        return np.stack((number_T[order_T], m_T[order_T]))

    def orders(self) -> list[list[Turn]]:
        """Of all resources."""
        return [self.order(resource) for resource in range(len(self.operations.resources))]

    def peak_memory(self) -> list[float]:
        """The most that each device holds."""
        memory_O = np.array([one.memory for one in self.operations.operations])
        devices = range(self.operations.num_devices)
        return [float(memory_O[self.turns(device)[0]].cumsum().max(initial=0.0)) for device in devices]


def earliest(operations: Operations, orders: Orders, num_micro_batches: int) -> Schedule:
    """The schedule in which all starts as early as these orders let it. ValueError where turns wait for each other.

    `orders`: of the devices, and of channels, the first ones of all resources; the others serve who comes first.
    """
    starts_ON = np.zeros((len(operations), num_micro_batches))
    waiting: dict[Turn, int] = {}
    behind: dict[Turn, list[tuple[Turn, float]]] = {}

    def wait(turn: Turn, needed: Turn, lag: float) -> None:
        behind.setdefault(needed, []).append((turn, lag))
        waiting[turn] = waiting.get(turn, 0) + 1

    for number, one in enumerate(operations.operations):
        for m in range(num_micro_batches):
            waiting.setdefault((number, m), 0)
            for needed, lag in one.after:
                wait((number, m), (needed, m), lag)
    for order in orders:
        for earlier, later in pairwise(order):
            wait(later, earlier, 0.0)
    free_R = [0.0] * len(operations.resources)
    ready = [(0.0, m, number) for (number, m), num in waiting.items() if not num]
    heapq.heapify(ready)
    num_started = 0
    while ready:
        soonest, m, number = heapq.heappop(ready)
        turn, one = (number, m), operations.operations[number]
        start = max((free_R[r] for r in one.resources if r >= len(orders)), default=soonest)
        if start > soonest:
            heapq.heappush(ready, (start, m, number))
            continue
        starts_ON[turn], num_started = soonest, num_started + 1
        for resource in one.resources:
            free_R[resource] = soonest + one.span
        for later, lag in behind.get(turn, ()):
            starts_ON[later] = max(starts_ON[later], soonest + one.span + lag)
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, (float(starts_ON[later]), later[1], later[0]))
    if num_started < len(waiting):
        stuck = next(turn for turn in waiting if waiting[turn] > 0)
        raise ValueError(f"{_words(operations, stuck)} never starts: the orders of the devices wait for each other")
    return Schedule(operations, starts_ON)


def check(schedule: Schedule, memory: Memory = math.inf) -> None:
    """Nothing where the schedule can be carried out with so much memory on each device, else ValueError with why not.

    What blocks need is there before they start, no device or channel does two things at once, no device holds more than
    it has.
    """
    operations, starts_ON = schedule.operations, schedule.starts_ON
    slack = ROUNDING * max(1.0, schedule.makespan)
    if not (starts_ON >= -slack).all() or not np.isfinite(starts_ON).all():
        raise ValueError(f"a start of {starts_ON.min()} is before 0 or not finite")
    for number, one in enumerate(operations.operations):
        for needed, lag in one.after:
            there_N = starts_ON[needed] + operations.operations[needed].span + lag
            late = np.flatnonzero(starts_ON[number] < there_N - slack)
            if late.size:
                m = int(late[0])
                raise ValueError(
                    f"{_words(operations, (number, m))} starts at {starts_ON[number, m]:g}, before what it needs of "
                    f"{operations.operations[needed].name} is there at {there_N[m]:g}"
                )
    for resource, name in enumerate(operations.resources):
        number_T, m_T = schedule.turns(resource)
        start_T = starts_ON[number_T, m_T]
        end_T = start_T + schedule.spans_O[number_T]
        for early in np.flatnonzero(start_T[1:] < end_T[:-1] - slack)[:1]:
            earlier, later = ((int(number_T[turn]), int(m_T[turn])) for turn in (early, early + 1))
            raise ValueError(
                f"{name}: {_words(operations, later)} starts at {starts_ON[later]:g}, before "
                f"{_words(operations, earlier)} ends at {end_T[early]:g}"
            )
    for device, peak in enumerate(schedule.peak_memory()):
        limit = limit_of(memory, device)
        if peak > limit * (1 + ROUNDING):
            raise ValueError(f"device {device} holds {peak:g} at most, and has {limit:g}")


def _words(operations: Operations, turn: Turn) -> str:
    return f"{operations.operations[turn[0]].name} of micro-batch {turn[1]}"
