"""Operations as the arrays that greedy scheduling (`hulk_native.pack`) reads.

Letters of shapes: O operations; `_ptr` arrays say where each one's part of the flat array beside them begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
