"""Activations and gradients between devices: receives posted early, sends that nobody waits for.

A thread waits for the sends, in the order in which they began, and lets go of what was sent as soon as it is gone; so
what a device holds for its peers does not grow with the number of micro-batches. Every message has a tag of its own
within a step, for backends that know tags. gloo does; NCCL matches by order, which `actions` keeps, and does one thing
of a group after another: there each direction between two devices has a group of its own, so that what is sent one way
does not wait for what is received the other way.
"""

import queue
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from hulk_runtime import background
from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.pipeline.actions import Receive, Send
from hulk_runtime.pipeline.event_log import Event
from hulk_runtime.pipeline.micro_batches import Values
from hulk_runtime.pipeline.posted_receives import begun, wait
from hulk_runtime.pipeline.striping import num_connections, stripes


class Transfers:
    """The messages of one rank. `lines` are the groups of (sender, receiver), where they have one of their own."""

    def __init__(self, lines: Mapping[tuple[int, int], dist.ProcessGroup]) -> None:
        self._lines = lines
        self._own, self._num = dist.get_rank(), num_connections()
        self._posted: dict[Receive, tuple[Values, list[dist.Work]]] = {}
        self._under_way: list[Future[Event]] = []
        self.patience: timedelta | None = None
        """For what a peer sends or takes; None: as long as the group has."""
        self._queue: queue.SimpleQueue[_Sending | None] = queue.SimpleQueue()
        # A daemon: with a peer lost a send may never be over, and must not keep the process from its end.
        background.Thread("hulk-sends", partial(_wait_for_all, self._queue)).start()

    def post(self, receive: Receive, buffers: Values, rank: int, tag: int) -> None:
        """Begin to receive into these buffers. Raises PeerLostError."""
        with lost_peers():
            line = self._lines.get((rank, self._own))
            work = [
                begun(dist.irecv(piece, src=rank, group=line, tag=of_piece))
                for piece, of_piece in self._pieces(buffers, tag)
            ]
        self._posted[receive] = buffers, work

    def is_posted(self, receive: Receive) -> bool:
        """Whether it was posted and not taken."""
        return receive in self._posted

    def take(self, receive: Receive) -> Values:
        """What was posted, when it is there. Raises PeerLostError."""
        buffers, under_way = self._posted.pop(receive)
        with lost_peers():
            for work in under_way:
                wait(work, self.patience)
        return buffers

    def send(self, send: Send, values: Values, rank: int, tag: int) -> None:
        """Begin to send. Raises PeerLostError."""
        held = tuple(value.detach().contiguous() for value in values)
        start_s = time.perf_counter()
        with lost_peers():
            line = self._lines.get((self._own, rank))
            work = [
                begun(dist.isend(piece, dst=rank, group=line, tag=of_piece))
                for piece, of_piece in self._pieces(held, tag)
            ]
        over: Future[Event] = Future()
        self._under_way.append(over)
        self._queue.put(_Sending(send, held, work, start_s, over, self.patience))

    def finish(self) -> list[Event]:
        """Wait for all sends. Raises PeerLostError."""
        under_way, self._under_way = self._under_way, []
        return [sent.result() for sent in under_way]

    def close(self) -> None:
        """No more sends."""
        self._queue.put(None)

    def _pieces(self, values: Values, tag: int) -> Iterator[tuple[torch.Tensor, int]]:
        for number, value in enumerate(values):
            yield from stripes(value, tag + number, self._num)


@dataclass(frozen=True, slots=True)
class _Sending:
    """One message on its way, held until it is gone."""

    send: Send
    held: Values
    under_way: list[dist.Work]
    start_s: float
    over: Future[Event]
    patience: timedelta | None

    def wait(self) -> None:
        try:
            with lost_peers():
                for work in self.under_way:
                    wait(work, self.patience)
        except Exception as error:  # noqa: BLE001  # whoever waits for it raises it
            self.over.set_exception(background.named("hulk-sends", error))
        else:
            self.over.set_result(
                Event("send", self.send.way, self.send.micro_batch, self.start_s, time.perf_counter(), self.send.target)
            )


def _wait_for_all(sendings: "queue.SimpleQueue[_Sending | None]") -> None:
    while (sending := sendings.get()) is not None:
        sending.wait()
        del sending  # and with it what was sent, also while nothing else is
