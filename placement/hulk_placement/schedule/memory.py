"""Memory of devices: what one micro-batch needs at least, limits, and amounts in whole units for the solver."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hulk_placement.schedule.operations import Operations

Memory = float | Sequence[float]
"""What all devices have, or each of them."""

MOST_ORDERED = 16
"""Blocks of one device up to which the order that holds least is found."""


def limit_of(memory: Memory, device: int) -> float:
    """Of a device, where all have the same or each its own."""
    return memory[device] if isinstance(memory, Sequence) else memory


def check_enough(operations: Operations, memory: Memory) -> None:
    """Nothing where one micro-batch after the other keeps the memory; else ValueError with what a device lacks."""
    if isinstance(memory, Sequence) and len(memory) != operations.num_devices:
        raise ValueError(f"memory of {len(memory)} devices, and there are {operations.num_devices}")
    before = _ancestors(operations)
    for device in range(operations.num_devices):
        limit, users = limit_of(memory, device), operations.holders(device)
        left = math.fsum(operations.operations[number].memory for number in users)
        if abs(left) > 1e-9:
            raise ValueError(f"device {device}: a micro-batch leaves {left:g} of memory behind, which adds up")
        peak = least_peak(operations, device, before)
        if not limit >= peak:
            raise ValueError(
                f"device {device}: one micro-batch alone holds {peak:g} of memory, and there is {limit:g}: "
                f"{peak - limit:g} too little"
            )


def least_peak(operations: Operations, device: int, before: Sequence[set[int]]) -> float:
    """The most that a device holds of one micro-batch, in the order of its blocks in which that is least.

    `before`: of each operation those that it waits for, at first or second hand.
    """
    users = operations.holders(device)
    if len(users) > MOST_ORDERED:
        return max(
            (sum(operations.operations[n].memory for n in users[: k + 1]) for k in range(len(users))), default=0.0
        )
    needs = [sum(1 << k for k, other in enumerate(users) if other in before[number]) for number in users]
    least = {0: 0.0}
    for done in range(1 << len(users)):  # every set of blocks that have run, after those that it contains
        if done not in least:
            continue
        held = sum(operations.operations[number].memory for k, number in enumerate(users) if done >> k & 1)
        for k, number in enumerate(users):
            if not done >> k & 1 and needs[k] & ~done == 0:
                peak = max(least[done], held + operations.operations[number].memory)
                least[done | 1 << k] = min(peak, least.get(done | 1 << k, math.inf))
    return least[(1 << len(users)) - 1]


def _ancestors(operations: Operations) -> list[set[int]]:
    found: list[set[int]] = []
    for one in operations.operations:
        found.append(set().union(*({n} | found[n] for n, _ in one.after)))
    return found


def unit_of(amounts: Sequence[float]) -> float:
    """That in which amounts of memory are counted: the least of them, where the others are multiples of it."""
    unit = min(abs(amount) for amount in amounts)
    if not all(math.isclose(amount / unit, round(amount / unit), rel_tol=1e-9) for amount in amounts):
        unit = max(abs(amount) for amount in amounts) / (1 << 20)
    return unit


def in_units(amounts: Sequence[float], limit: float) -> tuple[list[int], int]:
    """Amounts of memory and their limit in whole units; what is no multiple of a unit is rounded up, the limit down.

    >>> in_units([1.0, -1.0], 16.5), in_units([0.5, -0.5], 2.0)
    (([1, -1], 16), ([1, -1], 4))
    """
    unit = unit_of(amounts)
    taken = [(1 if amount > 0 else -1) * math.ceil(abs(amount) / unit * (1 - 1e-12)) for amount in amounts]
    return taken, math.floor(min(limit / unit, 1 << 40) * (1 + 1e-12))
