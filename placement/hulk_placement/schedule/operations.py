"""Blocks and transfers alike, as the searches order them: operations that occupy resources.

Letters of shapes: O operations, N micro-batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from hulk_placement.schedule.placement import Placement, sorted_by_need

FINEST = 100_000
"""Ticks of the longest span, at most: what the searches tell apart, which know whole numbers only."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Occupies all its resources for its span, after others: (operation, latency from its end) of each.

    `block`: its number in the placement; None for a transfer. `memory` as the block's, on each of its devices.
    """

    name: str
    resources: tuple[int, ...]
    span: float
    memory: float
    after: tuple[tuple[int, float], ...]
    block: int | None


@dataclass(frozen=True, slots=True)
class Operations:
    """All operations of one micro-batch, each behind those that it needs; resources by name, the devices first."""

    operations: tuple[Operation, ...]
    resources: tuple[str, ...]
    num_devices: int

    def __len__(self) -> int:
        return len(self.operations)

    def users(self, resource: int) -> list[int]:
        """The operations that occupy a resource."""
        return [number for number, one in enumerate(self.operations) if resource in one.resources]

    def holders(self, device: int) -> list[int]:
        """The operations that change what a device holds."""
        return [number for number in self.users(device) if self.operations[number].memory]

    def work(self, resource: int) -> float:
        """Time that a micro-batch takes of a resource."""
        return math.fsum(self.operations[number].span for number in self.users(resource))

    @property
    def busiest(self) -> float:
        """Time that a micro-batch takes of the resource that it takes most of: no period is shorter."""
        return max(map(self.work, range(len(self.resources))))

    def heads(self) -> list[float]:
        """The earliest start of each operation of a micro-batch alone."""
        found: list[float] = []
        for one in self.operations:
            found.append(max((found[n] + self.operations[n].span + lag for n, lag in one.after), default=0.0))
        return found

    def tails(self) -> list[float]:
        """What has to follow each operation of a micro-batch after its end, at least."""
        found = [0.0] * len(self)
        for number in reversed(range(len(self))):
            one = self.operations[number]
            for needed, lag in one.after:
                found[needed] = max(found[needed], lag + one.span + found[number])
        return found

    def one_by_one(self) -> float:
        """Time for one micro-batch of which nothing is done at the same time."""
        return math.fsum(one.span + max((lag for _, lag in one.after), default=0.0) for one in self.operations)

    def critical_path(self) -> float:
        """The shortest time for one micro-batch."""
        both = zip(self.heads(), self.operations, self.tails(), strict=True)
        return max(head + one.span + tail for head, one, tail in both)


def operations_of(placement: Placement) -> Operations:
    """The operations of a placement; a transfer stands between the two blocks that it joins."""
    blocks, transfers = placement.blocks, placement.transfers
    channels = dict.fromkeys(channel for transfer in transfers for channel in transfer.channels)
    names = [*(f"device {number}" for number in range(placement.num_devices)), *channels]
    number = {name: place for place, name in enumerate(names)}
    crossed = {(transfer.source, transfer.target) for transfer in transfers}
    found: list[Operation] = []
    for place, block in enumerate(blocks):
        direct = [(needed, 0.0) for needed in block.after if (needed, place) not in crossed]
        over = [(len(blocks) + n, t.latency) for n, t in enumerate(transfers) if t.target == place]
        found.append(Operation(block.name, block.devices, block.span, block.memory, (*direct, *over), place))
    for transfer in transfers:
        name = f"{blocks[transfer.source].name} > {blocks[transfer.target].name}"
        on = tuple(number[channel] for channel in transfer.channels)
        found.append(Operation(name, on, transfer.busy, 0.0, ((transfer.source, 0.0),), None))
    return _in_order(found, tuple(names), placement.num_devices)


def _in_order(found: list[Operation], resources: tuple[str, ...], num_devices: int) -> Operations:
    order = sorted_by_need([[n for n, _ in one.after] for one in found], [one.name for one in found])
    place = {number: there for there, number in enumerate(order)}
    moved = (
        replace(one, after=tuple((place[n], lag) for n, lag in one.after)) for one in map(found.__getitem__, order)
    )
    return Operations(tuple(moved), resources, num_devices)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Operations in whole ticks of `length`; `is_exact` where no span or latency had to be rounded (up)."""

    operations: Operations
    length: float
    is_exact: bool


def in_ticks(operations: Operations) -> Ticks:
    """The operations in the coarsest ticks that have them exactly, as far as those are not too fine to search with."""
    times = [one.span for one in operations.operations]
    times += [lag for one in operations.operations for _, lag in one.after]
    longest = max(times)
    exact = [Fraction(str(value)) for value in times]
    denominator = math.lcm(*(value.denominator for value in exact))
    common = math.gcd(*(int(value * denominator) for value in exact)) or denominator
    length = Fraction(common, denominator)
    is_exact = longest / length <= FINEST
    if not is_exact:
        length = Fraction(longest) / FINEST

    def ticks(value: float) -> int:
        return math.ceil(Fraction(str(value)) / length)

    whole = tuple(
        replace(one, span=ticks(one.span), after=tuple((n, ticks(lag)) for n, lag in one.after))
        for one in operations.operations
    )
    return Ticks(replace(operations, operations=whole), float(length), is_exact)
