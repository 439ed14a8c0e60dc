"""What a pipeline computes for one micro-batch: blocks on devices, what each needs, and transfers between them.

As in Tessel (Lin et al., HPCA 2024): all micro-batches have the same placement, a block may occupy several devices.
Unlike there, what crosses a link takes the link's time and arrives a latency later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

LONGEST = 1e100
"""Of a block or transfer: sums of longer ones are no numbers any more."""


class Kind(StrEnum):
    """What a block computes."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Of inputs, and of weights where no block of its own does that."""
    WEIGHT = "weight"
    """The gradients of weights alone."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block: `span` in any unit of time, on all of `devices` at once, after the blocks numbered in `after`.

    `memory`: what each of its devices holds from its start on, where it is above 0, or no more from its end on, below
    0; in any unit, such as one stage's activations. `stage`: the part of the model that it computes, which other blocks
    may compute too, there or elsewhere; without it that is the name behind its first letter. Backward blocks and those
    of weights are for the forward block whose name is theirs but for the first letter.
    """

    name: str
    devices: tuple[int, ...]
    span: float
    memory: float = 0.0
    after: tuple[int, ...] = ()
    kind: Kind = Kind.FORWARD
    stage: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stage", self.stage or self.name[1:])


@dataclass(frozen=True, slots=True)
class Transfer:
    """What block `target` needs of block `source` over channels, all at once: links, and uplinks that links share.

    Nothing else crosses these for `busy`; it is there `latency` later.
    """

    source: int
    target: int
    channels: tuple[str, ...]
    busy: float
    latency: float


@dataclass(frozen=True, slots=True)
class Placement:
    """The blocks of one micro-batch on devices 0 to `num_devices` - 1.

    ValueError where a block is on no such device, has a negative span, or waits for itself in the end.
    """

    num_devices: int
    blocks: tuple[Block, ...]
    transfers: tuple[Transfer, ...] = ()

    def __post_init__(self) -> None:
        if self.num_devices < 1 or not self.blocks:
            raise ValueError(
                f"a placement of {len(self.blocks)} blocks on {self.num_devices} devices: both must be >= 1"
            )
        for block in self.blocks:
            _check(block, self.num_devices, len(self.blocks))
        for transfer in self.transfers:
            self._check_transfer(transfer)
        if len(set(self.names)) < len(self.blocks):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"block {twice}: the name is there twice")
        sorted_by_need([block.after for block in self.blocks], self.names)

    @property
    def names(self) -> list[str]:
        """Of the blocks."""
        return [block.name for block in self.blocks]

    def forward_only(self) -> Placement:
        """Without backward blocks, as for inference: nothing is kept for them. ValueError where no others are there."""
        kept = [number for number, block in enumerate(self.blocks) if block.kind is Kind.FORWARD]
        if not kept:
            raise ValueError(f"none of the {len(self.blocks)} blocks is a forward one: nothing is left for inference")
        there = {number: place for place, number in enumerate(kept)}
        blocks = (
            replace(self.blocks[n], memory=0.0, after=tuple(there[a] for a in self.blocks[n].after if a in there))
            for n in kept
        )
        transfers = (
            replace(transfer, source=there[transfer.source], target=there[transfer.target])
            for transfer in self.transfers
            if transfer.source in there and transfer.target in there
        )
        return Placement(self.num_devices, tuple(blocks), tuple(transfers))

    def _check_transfer(self, transfer: Transfer) -> None:
        words = f"transfer from block {transfer.source} to block {transfer.target}"
        if not 0 <= transfer.target < len(self.blocks) or transfer.source not in self.blocks[transfer.target].after:
            raise ValueError(f"{words}: the one does not need the other")
        if not (_is_time(transfer.busy) and _is_time(transfer.latency)):
            times = f"busy {transfer.busy} and latency {transfer.latency}"
            raise ValueError(f"{words}: {times} must be >= 0 and finite, {LONGEST:g} at most")
        if len(set(transfer.channels)) < len(transfer.channels):
            raise ValueError(f"{words}: channels {', '.join(transfer.channels)}, of which one is there twice")


def sorted_by_need(after: Sequence[Iterable[int]], names: Sequence[str]) -> list[int]:
    """All numbers, each behind those that it needs. ValueError, with the names in turn, where some need each other."""
    try:
        return list(TopologicalSorter(dict(enumerate(after))).static_order())
    except CycleError as error:
        cycle = reversed(error.args[1])
        raise ValueError(f"blocks need each other: {' after '.join(names[number] for number in cycle)}") from error


def _check(block: Block, num_devices: int, num_blocks: int) -> None:
    devices = sorted(block.devices)
    if not devices or len(set(devices)) < len(devices) or devices[0] < 0 or devices[-1] >= num_devices:
        raise ValueError(
            f"block {block.name}: devices {devices} must be one or more of 0 to {num_devices - 1}, each once"
        )
    if not _is_time(block.span):
        raise ValueError(f"block {block.name}: span {block.span} must be >= 0 and finite, {LONGEST:g} at most")
    if not math.isfinite(block.memory):
        raise ValueError(f"block {block.name}: memory {block.memory} must be finite")
    for needed in block.after:
        if not 0 <= needed < num_blocks:
            raise ValueError(f"block {block.name}: needs block {needed}, of {num_blocks} from 0 on")


def _is_time(value: float) -> bool:
    return 0.0 <= value <= LONGEST
