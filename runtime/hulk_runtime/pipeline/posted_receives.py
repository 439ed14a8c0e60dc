"""Messages for which the receiver is ready long before they are sent: they take one way, not a round trip.

A sender of gloo waits until the receiver has said that it expects something. Where that was said in time, a message
leaves as soon as it is there.
"""

from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.pipeline.striping import beside, num_connections, stripes


@dataclass(slots=True)
class Posted:
    """What this rank and a peer tell each other: one message each way at a time.

    `peer` is its rank in the default group; `tag` must be of no other messages of the group. Short messages keep out of
    the way of others where `is_short` says so, on both sides.
    """

    peer: int
    group: dist.ProcessGroup | None
    tag: int
    is_short: bool = False
    _coming: torch.Tensor | None = None
    _sending: torch.Tensor | None = None
    _under_way: list[dist.Work] = field(default_factory=list)
    _num: int = field(default_factory=num_connections)

    def expect(self, buffer: torch.Tensor) -> None:
        """From now on the peer may send as many values as go into the buffer. Raises PeerLostError."""
        self._coming = buffer
        with lost_peers():
            self._under_way += [
                begun(dist.irecv(piece, src=self.peer, group=self.group, tag=tag))
                for piece, tag in self._pieces(buffer)
            ]

    def send(self, values: torch.Tensor) -> None:
        """Begin to send; the values must stay as they are until `take` is over. Raises PeerLostError."""
        self._sending = values
        with lost_peers():
            self._under_way += [
                begun(dist.isend(piece, dst=self.peer, group=self.group, tag=tag))
                for piece, tag in self._pieces(values)
            ]

    def take(self, patience: timedelta | None = None) -> torch.Tensor:
        """What was expected, when it is there and what was sent is gone. Raises PeerLostError.

        `patience`: how long the peer may take; None: as long as the group has.
        """
        assert self._coming is not None, "not expected"
        assert self._sending is not None, "not sent"
        with lost_peers():
            for work in self._under_way:
                wait(work, patience)
        self._under_way, self._sending = [], None
        return self._coming

    def _pieces(self, message: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
        return (beside if self.is_short else stripes)(message, self.tag, self._num)


def begun(work: dist.Work | None) -> dist.Work:
    """What torch has begun: something, where this rank is a member of the group."""
    assert work is not None, "this rank is a member of the group"
    return work


def wait(work: dist.Work, patience: timedelta | None) -> None:
    """As long as the group has patience, where none is said."""
    work.wait() if patience is None else work.wait(patience)
