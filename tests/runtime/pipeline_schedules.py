"""Schedules of all shapes as ranks read them, in an order that is the usual one or any that is possible."""

import random
from collections.abc import Callable
from typing import Any

from hulk_placement.schedule.operations import Operations, operations_of
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.timing import Orders, Turn, earliest
from hulk_placement.schedule.wire import document


def written(placement: Placement, num_micro_batches: int, choose: Callable[[list[Turn]], Turn]) -> dict[str, Any]:
    """The JSON of a schedule in which `choose` says which of the turns that are possible comes next."""
    operations = operations_of(placement)
    return document(placement, earliest(operations, _orders(operations, num_micro_batches, choose), num_micro_batches))


def _orders(operations: Operations, num_micro_batches: int, choose: Callable[[list[Turn]], Turn]) -> Orders:
    left = [(number, m) for number in range(len(operations)) for m in range(num_micro_batches)]
    orders: list[list[Turn]] = [[] for _ in operations.resources]
    while left:
        waiting = set(left)
        ready = [(n, m) for n, m in left if not any((a, m) in waiting for a, _ in operations.operations[n].after)]
        turn = choose(ready)
        left.remove(turn)
        for resource in operations.operations[turn[0]].resources:
            orders[resource].append(turn)
    return orders


def any_of(seed: int) -> Callable[[list[Turn]], Turn]:
    """Any order that is possible."""
    return random.Random(seed).choice


def backward_first(ready: list[Turn]) -> Turn:
    """Of the earliest micro-batch what is nearest to its end: one forward, one backward."""
    return min(ready, key=lambda turn: (turn[1] - turn[0], turn))


def all_forward(ready: list[Turn]) -> Turn:
    """All micro-batches forward, then backward."""
    return min(ready)
