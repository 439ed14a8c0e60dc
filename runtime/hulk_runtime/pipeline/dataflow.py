"""Blocks -> what each needs of which, and from which device to which it has to go.

Outputs of a forward block go to the forward blocks that are after it; gradients go the same ways back, from backward
block to backward block. A block on several devices has the same outputs on all of them, and the same gradients of its
inputs, because its shards sum them up among themselves: who needs them takes them from its own device where it can.

With 2 stages on devices 0 and 1, blocks F0 F1 B1 B0, the ways are F0 -> F1 and B1 -> B0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Literal

from hulk_runtime.errors import PlanError
from hulk_runtime.plan.pipeline_schedule import Schedule


@dataclass(frozen=True, slots=True)
class Way:
    """What block `source` computes and block `target` needs: activations, or their gradients."""

    source: int
    target: int


@dataclass(frozen=True)
class Flows:
    """The ways of a schedule. PlanError where a block waits on another device for one of which it needs nothing."""

    schedule: Schedule

    def __post_init__(self) -> None:
        for number, block in enumerate(self.schedule.blocks):
            for needed in block.after:
                is_local = set(block.devices) <= set(self.schedule.blocks[needed].devices)
                if Way(needed, number) not in self.numbers and not is_local:
                    raise PlanError(
                        f"schedule: block {block.name} on devices {block.devices} is after "
                        f"{self.schedule.blocks[needed].name}, of which it needs nothing and which is elsewhere"
                    )

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """Of each block, the forward blocks whose outputs its forward block takes, in the order of its arguments."""
        blocks = self.schedule.blocks
        return tuple(tuple(n for n in blocks[block.forward].after if blocks[n].kind == "forward") for block in blocks)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Of each block, the forward blocks that take what its forward block gives out."""
        blocks = self.schedule.blocks
        forwards = [n for n, block in enumerate(blocks) if block.kind == "forward"]
        return tuple(tuple(n for n in forwards if block.forward in self.producers[n]) for block in blocks)

    def part_of(self, forward: int, kind: Literal["backward", "weight"]) -> int | None:
        """The backward block, or the one of weights, of a forward block."""
        return self._parts.get((forward, kind))

    @cached_property
    def _parts(self) -> dict[tuple[int, str], int]:
        return {(block.forward, block.kind): number for number, block in enumerate(self.schedule.blocks)}

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """All of them, the activations first."""
        there = [
            Way(producer, number)
            for number, block in enumerate(self.schedule.blocks)
            if block.kind == "forward"
            for producer in self.producers[number]
        ]
        if not self.schedule.is_training:
            return tuple(there)
        back = (Way(self._parts[way.target, "backward"], self._parts[way.source, "backward"]) for way in there)
        return (*there, *back)

    @cached_property
    def numbers(self) -> dict[Way, int]:
        """The place of each way in `ways`."""
        return {way: number for number, way in enumerate(self.ways)}

    def needs(self, number: int) -> Iterator[int]:
        """The blocks of the same micro-batch that have to be done before a block."""
        block = self.schedule.blocks[number]
        yield from block.after
        if block.kind != "forward":
            yield block.forward
        if block.kind == "weight":
            yield self._parts[block.forward, "backward"]
        for way in self.ways_into[number]:
            yield way.source

    @cached_property
    def up_to(self) -> tuple[frozenset[int], ...]:
        """Of each block: itself and all blocks of the same micro-batch before it. Of a schedule that ends."""
        numbers = range(len(self.schedule.blocks))
        found: dict[int, frozenset[int]] = {}
        for number in TopologicalSorter({number: tuple(self.needs(number)) for number in numbers}).static_order():
            found[number] = frozenset((number,)).union(*(found[needed] for needed in self.needs(number)))
        return tuple(found[number] for number in numbers)

    @cached_property
    def ways_into(self) -> tuple[tuple[Way, ...], ...]:
        """Of each block: what it takes, in the order of the arguments of its forward block or of its consumers."""
        return tuple(tuple(way for way in self.ways if way.target == n) for n in range(len(self.schedule.blocks)))

    @cached_property
    def ways_out_of(self) -> tuple[tuple[Way, ...], ...]:
        """Of each block: who takes what it gives out."""
        return tuple(tuple(way for way in self.ways if way.source == n) for n in range(len(self.schedule.blocks)))

    def giver(self, way: Way, device: int) -> int:
        """The device from which `device` takes what comes on a way: itself where it has that."""
        devices = self.schedule.blocks[way.source].devices
        return device if device in devices else devices[device % len(devices)]

    def takers(self, way: Way, device: int) -> list[int]:
        """The other devices to which `device` gives what goes on a way."""
        targets = self.schedule.blocks[way.target].devices
        return [target for target in targets if target != device and self.giver(way, target) == device]

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Forward blocks that belong together, by their first: as many passes that have nothing to do with each other.

        Shape X has two, one in each direction; all others have one.
        """
        blocks = self.schedule.blocks
        component = {number: number for number, block in enumerate(blocks) if block.kind == "forward"}
        for way in self.ways:
            if blocks[way.source].kind == "forward":
                one, other = component[way.source], component[way.target]
                component = {number: min(one, other) if c in (one, other) else c for number, c in component.items()}
        return tuple(
            tuple(number for number, c in component.items() if c == first) for first in sorted(set(component.values()))
        )

    def component_of(self, number: int) -> int:
        """The pass to which a block belongs."""
        forward = self.schedule.blocks[number].forward
        return next(place for place, members in enumerate(self.components) if forward in members)
