"""Pipelines whose sends block: a transfer holds both stages, from when both are at it until it has arrived.

Between two blocks a stage posts the send of what it has computed and the receive of what it computes next, together, as
batched sends and receives do (torch's `batch_isend_irecv`, Megatron-LM's send-forward-receive-backward), and goes on
when both are through. A transfer begins when its sender and its receiver have posted it, and ends

    max(posted by the sender, posted by the receiver) + bytes / rate + latency

after which its way is free for the next one. Each replica is taken alone on its links.
"""

from __future__ import annotations

import numpy as np

from hulk_placement.cost.simulation.schedule import FORWARD, Block
from hulk_placement.cost.simulation.step import Floats, Replica

Transfer = tuple[int, int, int]
"""Kind of the block that it is the output of, micro-batch, and the stage that receives it."""


def blocking_ends(replica: Replica) -> Floats:
    """When the last block of each stage ends, in seconds; (stages,). ValueError where the stages wait for each other.

    >>> from hulk_placement.cost.simulation.schedule import schedule
    >>> from hulk_placement.cost.simulation.step import Way
    >>> way = Way((0,), 1.0, 0.0)
    >>> two = Replica.alike(schedule("gpipe", 2, 2), (1.0, 1.0), (2.0, 2.0), (0.5,), [(way, way)])
    >>> blocking_ends(two).tolist()
    [11.0, 8.5]
    """
    stages = [_Stage(replica, number) for number in range(len(replica.schedule.orders))]
    posted: dict[Transfer, float] = {}
    through: dict[Transfer, float] = {}
    is_moving = True
    while is_moving:
        is_moving = False
        for stage in stages:
            is_moving |= stage.go_on(posted, through)
    waiting = next((stage for stage in stages if not stage.is_done), None)
    if waiting is not None:
        raise ValueError(
            f"stage {waiting.number}: with blocking sends its block {waiting.next} of {len(waiting.order)} never gets "
            "its turn: the orders of the stages wait for each other"
        )
    return np.array([stage.ended_s for stage in stages])


class _Stage:
    """One stage on its way through its blocks."""

    def __init__(self, replica: Replica, number: int) -> None:
        self.replica, self.number, self.order = replica, number, replica.schedule.orders[number]
        self.next, self.free_s, self.ended_s = 0, 0.0, 0.0
        self.posted: list[Transfer] | None = None

    @property
    def is_done(self) -> bool:
        """Whether all blocks are computed, and what they send has arrived."""
        return self.next == len(self.order) and self.posted == []

    def go_on(self, posted: dict[Transfer, float], through: dict[Transfer, float]) -> bool:
        """Post, or compute, as far as transfers that the other side posted let it: whether anything happened."""
        has_moved = False
        while not self.is_done:
            if self.posted is None:
                self.posted = self._between()
                for transfer in self.posted:
                    self._post(transfer, posted, through)
                has_moved = True
            if any(transfer not in through for transfer in self.posted):
                return has_moved
            self.free_s = max([self.free_s, *(through[transfer] for transfer in self.posted)])
            if self.next == len(self.order):
                self.posted = []
                return True
            self._compute()
        return has_moved

    def _compute(self) -> None:
        kind, batch = self.order[self.next]
        seconds = self.replica.forward_s if kind == FORWARD else self.replica.backward_s
        self.free_s += float(seconds[self.number, batch])
        self.ended_s, self.posted = self.free_s, None
        self.next += 1

    def _between(self) -> list[Transfer]:
        """What the stage posts before its next block: the last one's output, and the next one's input."""
        sent = self._output(self.order[self.next - 1]) if self.next else None
        received = self._input(self.order[self.next]) if self.next < len(self.order) else None
        return [transfer for transfer in (sent, received) if transfer is not None]

    def _output(self, block: Block) -> Transfer | None:
        kind, batch = block
        to = self.number + (1 if kind == FORWARD else -1)
        return (kind, batch, to) if 0 <= to < len(self.replica.schedule.orders) else None

    def _input(self, block: Block) -> Transfer | None:
        kind, batch = block
        source = self.number + (-1 if kind == FORWARD else 1)
        return (kind, batch, self.number) if 0 <= source < len(self.replica.schedule.orders) else None

    def _post(self, transfer: Transfer, posted: dict[Transfer, float], through: dict[Transfer, float]) -> None:
        """Say that this side is at a transfer; it begins when the other side is, too."""
        if transfer not in posted:
            posted[transfer] = self.free_s
            return
        begin_s = max(self.free_s, posted[transfer])
        through[transfer] = begin_s + _seconds(self.replica, transfer)


def _seconds(replica: Replica, transfer: Transfer) -> float:
    kind, batch, to = transfer
    boundary = to - 1 if kind == FORWARD else to
    way = replica.ways[boundary][kind]
    return float(replica.boundary_bytes[boundary, batch]) / way.bytes_per_s + way.latency_s
