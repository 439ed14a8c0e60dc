"""Greedy scheduling, compiled: operations as they can start, of several the one whose turn a rule says it is.

Letters of shapes: O operations, N micro-batches, R resources, D devices; `_ptr` arrays say where each one's part of the
flat array beside them begins.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk_placement.compiled import compiled
from hulk_placement.schedule.operations import Operations

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Tables(NamedTuple):
    """Operations as arrays. `holders`: of each device those that change what it holds, each behind those it needs."""

    span_O: Floats
    memory_O: Floats
    num_needed_O: Ints
    used_ptr: Ints
    used: Ints
    behind_ptr: Ints
    behind: Ints
    behind_lag: Floats
    holders_ptr: Ints
    holders: Ints


def tables_of(operations: Operations) -> Tables:
    """The tables of operations."""
    ops = operations.operations
    behind: list[list[tuple[int, float]]] = [[] for _ in ops]
    for number, one in enumerate(ops):
        for needed, lag in one.after:
            behind[needed].append((number, lag))
    used_ptr, used = _flat([list(one.resources) for one in ops])
    behind_ptr, later = _flat([[number for number, _ in row] for row in behind])
    holders_ptr, holders = _flat([operations.holders(device) for device in range(operations.num_devices)])
    return Tables(
        np.array([one.span for one in ops], np.float64),
        np.array([one.memory for one in ops], np.float64),
        np.array([len(one.after) for one in ops], np.int64),
        used_ptr,
        used,
        behind_ptr,
        later,
        np.array([lag for row in behind for _, lag in row], np.float64),
        holders_ptr,
        holders,
    )


def _flat(rows: list[list[int]]) -> tuple[Ints, Ints]:
    ptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return ptr, np.array([value for row in rows for value in row], np.int64)


@compiled
def pack(tables: Tables, num: int, num_resources: int, limit_D: Floats, slope: float, offset_O: Floats) -> Floats:
    """Starts (O, N); not a number where memory ran out: one micro-batch alone needs more than there is.

    Of operations that can start at the same time that goes first whose `slope` x micro-batch + `offset_O` is least. The
    micro-batches take every operation in turn.
    """
    num_ops = tables.span_O.shape[0]
    start_ON, free_R = np.zeros((num_ops, num)), np.zeros(num_resources)
    is_started_ON = np.zeros((num_ops, num), np.bool_)
    waits_ON = np.empty((num_ops, num), np.int64)
    oldest_D, behind_D = np.zeros(limit_D.shape[0], np.int64), np.zeros(limit_D.shape[0], np.int64)
    blocked_D, next_ON = np.full(limit_D.shape[0], -1), np.full((num_ops, num), -1)
    queue = [(0.0, 0.0, 0, 0)]
    queue.pop()
    for o in range(num_ops):
        waits_ON[o] = tables.num_needed_O[o] + 1
        waits_ON[o, 0] -= 1
        if waits_ON[o, 0] == 0:
            heapq.heappush(queue, (0.0, offset_O[o], 0, o))
    while len(queue):
        soonest, turn, m, o = heapq.heappop(queue)
        start = _when_free(tables, free_R, o, soonest)
        if start > soonest:
            heapq.heappush(queue, (start, turn, m, o))
            continue
        lacking = _lacking(tables, is_started_ON, oldest_D, behind_D, limit_D, o, m)
        if lacking >= 0:
            next_ON[o, m], blocked_D[lacking] = blocked_D[lacking], o * num + m
            start_ON[o, m] = start
            continue
        end = start + tables.span_O[o]
        start_ON[o, m], is_started_ON[o, m] = start, True
        for k in range(tables.used_ptr[o], tables.used_ptr[o + 1]):
            free_R[tables.used[k]] = end
        if m + 1 < num:
            _need_one_less(queue, waits_ON, start_ON, o, m + 1, end, slope, offset_O)
        for k in range(tables.behind_ptr[o], tables.behind_ptr[o + 1]):
            there = end + tables.behind_lag[k]
            _need_one_less(queue, waits_ON, start_ON, tables.behind[k], m, there, slope, offset_O)
        if tables.memory_O[o] == 0.0:
            continue
        for k in range(tables.used_ptr[o], tables.used_ptr[o + 1]):
            d = tables.used[k]
            behind_D[d] = max(behind_D[d], m + 1)
            _pass_finished(tables, is_started_ON, oldest_D, behind_D, d)
            if tables.memory_O[o] < 0.0:
                blocked, blocked_D[d] = blocked_D[d], -1
                while blocked >= 0:
                    other, of = blocked // num, blocked % num
                    when = max(end, start_ON[other, of])
                    heapq.heappush(queue, (when, slope * of + offset_O[other], of, other))
                    blocked = next_ON[other, of]
    if not is_started_ON.all():
        start_ON[:] = math.nan
    return start_ON


@compiled
def _when_free(tables: Tables, free_R: Floats, o: int, soonest: float) -> float:
    for k in range(tables.used_ptr[o], tables.used_ptr[o + 1]):
        soonest = max(soonest, free_R[tables.used[k]])
    return soonest


@compiled
def _need_one_less(
    queue: list[tuple[float, float, int, int]],
    waits_ON: Ints,
    start_ON: Floats,
    o: int,
    m: int,
    there: float,
    slope: float,
    offset_O: Floats,
) -> None:
    """One more that the operation waits for is there then; its start holds the latest of these."""
    start_ON[o, m] = max(start_ON[o, m], there)
    waits_ON[o, m] -= 1
    if waits_ON[o, m] == 0:
        heapq.heappush(queue, (start_ON[o, m], slope * m + offset_O[o], m, o))


@compiled
def _lacking(
    tables: Tables,
    is_started_ON: NDArray[np.bool_],
    oldest_D: Ints,
    behind_D: Ints,
    limit_D: Floats,
    o: int,
    m: int,
) -> int:
    """The device that has too little memory for the operation; -1 where all have enough.

    Of each device `oldest_D` is the oldest micro-batch that is not done there, `behind_D` the first that is not begun.

    Enough: with it every micro-batch could still be finished, each after all older ones.
    """
    if tables.memory_O[o] <= 0.0:
        return -1
    for k in range(tables.used_ptr[o], tables.used_ptr[o + 1]):
        d = tables.used[k]
        is_started_ON[o, m] = True
        younger, is_enough = 0.0, True
        for other in range(max(behind_D[d] - 1, m), oldest_D[d] - 1, -1):
            held, most = _need(tables, is_started_ON, d, other)
            if younger + most > limit_D[d] * (1.0 + 1e-9):
                is_enough = False
                break
            younger += held
        is_started_ON[o, m] = False
        if not is_enough:
            return int(d)
    return -1


@compiled
def _need(tables: Tables, is_started_ON: NDArray[np.bool_], d: int, m: int) -> tuple[float, float]:
    """What a micro-batch holds on a device, and the most that it will hold there until its end."""
    held = 0.0
    for k in range(tables.holders_ptr[d], tables.holders_ptr[d + 1]):
        if is_started_ON[tables.holders[k], m]:
            held += tables.memory_O[tables.holders[k]]
    level, most = held, held
    for k in range(tables.holders_ptr[d], tables.holders_ptr[d + 1]):
        if not is_started_ON[tables.holders[k], m]:
            level += tables.memory_O[tables.holders[k]]
            most = max(most, level)
    return held, most


@compiled
def _pass_finished(tables: Tables, is_started_ON: NDArray[np.bool_], oldest_D: Ints, behind_D: Ints, d: int) -> None:
    """Move on from micro-batches that have given back all that they took of a device."""
    while oldest_D[d] < behind_D[d]:
        for k in range(tables.holders_ptr[d], tables.holders_ptr[d + 1]):
            if not is_started_ON[tables.holders[k], oldest_D[d]]:
                return
        oldest_D[d] += 1
