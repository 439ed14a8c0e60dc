"""What no schedule can be shorter than, whatever finds it."""

from __future__ import annotations

import math

from hulk_placement.schedule.memory import Memory, limit_of
from hulk_placement.schedule.operations import Operations


def least_makespan(operations: Operations, num_micro_batches: int, memory: Memory = math.inf) -> float:
    """The longest of: one micro-batch alone; all work of a resource; what all micro-batches hold of a device.

    The last two between the shortest way to the resource and the shortest way from it to an end.
    """
    heads, tails = operations.heads(), operations.tails()

    def around(users: list[int]) -> float:
        return min(heads[number] for number in users) + min(tails[number] for number in users)

    least = operations.critical_path()
    for resource in range(len(operations.resources)):
        users = operations.users(resource)
        if users:
            least = max(least, around(users) + num_micro_batches * operations.work(resource))
    for device in range(operations.num_devices):
        holders = operations.holders(device)
        if holders:
            least = max(least, around(holders) + num_micro_batches * _period_by_memory(operations, memory, device))
    return least


def least_period(operations: Operations, memory: Memory = math.inf) -> float:
    """What no pattern's period is below: the work of a resource, or what one micro-batch holds of a device."""
    devices = range(operations.num_devices)
    return max(operations.busiest, *(_period_by_memory(operations, memory, device) for device in devices))


def _period_by_memory(operations: Operations, memory: Memory, device: int) -> float:
    """The least time between micro-batches that a device has the memory for; 0 where it has none, or no limit."""
    limit = limit_of(memory, device)
    return held_time(operations, device) / limit if 0 < limit < math.inf else 0.0


def held_time(operations: Operations, device: int) -> float:
    """Memory x time that one micro-batch takes of a device at least.

    Whatever takes memory is paired with what gives as much back and comes after it, each once: between the start of the
    one and the end of the other lies the longest way that joins them.

    Two stages of which the first one's forward and backward block, of 1 and 3, have the second one's of 1 and 3 between
    them: 8 on the first device, 4 on the second.
    """
    takers = [n for n in operations.holders(device) if operations.operations[n].memory > 0]
    givers = {n for n in operations.holders(device) if operations.operations[n].memory < 0}
    total = 0.0
    for taker in takers:
        amount, reach = operations.operations[taker].memory, _longest_from(operations, taker)
        fits = [n for n in givers if n in reach and math.isclose(-operations.operations[n].memory, amount)]
        if fits:
            giver = max(fits, key=lambda n: (reach[n], -n))
            givers.remove(giver)
            total += amount * reach[giver]
    return total


def _longest_from(operations: Operations, start: int) -> dict[int, float]:
    """Of all operations behind one how long their ends are after its start, at least."""
    ends = {start: operations.operations[start].span}
    for number in range(start + 1, len(operations)):
        one = operations.operations[number]
        ways = [ends[needed] + lag + one.span for needed, lag in one.after if needed in ends]
        if ways:
            ends[number] = max(ways)
    return ends
