"""Outer gradients -> their sums over the replicas, while training goes on.

    exact        by torch's own all-reduce, or over planned flows where the plan has those for these ranks
    planned      compressed on each hop between regions, as the plan says; what hops lose stays with their senders
    quantised    over any group: payloads of each replica's values, a part to each rank, which sums and sends it on

Quantised sums run one after another on a thread and a gloo group of their own, so that they meet those of the other
replicas in the same order whatever a script sends meanwhile. What a payload does not hold is added to the next one of
the same fragment (error feedback), by who sends its own values and by who sends a sum.
"""

import queue
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from hulk_runtime import background
from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.connecting import Connecting
from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.collective.reduction.compression import BLOCK, CODECS, Codec
from hulk_runtime.collective.reduction.vector import DTYPES
from hulk_runtime.diloco.replicas import new_group


@dataclass(frozen=True, slots=True)
class Feedback:
    """What payloads of a fragment have not held so far: of own values, and of sums that this rank sends. None: all."""

    own_N: torch.Tensor | None = None
    sums_N: torch.Tensor | None = None


class Sum(Protocol):
    """One that is under way."""

    def wait(self) -> tuple[torch.Tensor, Feedback]:
        """Its values, and what is then left of them. Raises PeerLostError."""


class Sums(Protocol):
    """What adds vectors up over the replicas, begun in the same order by all."""

    def begin(self, values_N: torch.Tensor, feedback: Feedback, fragment: int) -> Sum:
        """Of values which are the sum's from now on."""

    def close(self, is_whole: bool) -> None:
        """Nothing more comes; `is_whole`: all that came has ended, on every rank."""


def sums_of(group: dist.ProcessGroup | None, compression: str) -> Sums:
    """How the ranks of a group add up; None: this one alone."""
    if group is None or dist.get_world_size(group) == 1:
        return Alone()
    between = _between_regions(group)
    is_planned = between is not None and between.collective.plan.compression == compression
    if compression == "none" or is_planned:
        return Begun(group, between, exact=compression == "none")
    return Quantised(group, CODECS[compression])


def _between_regions(group: dist.ProcessGroup) -> Connecting | None:
    is_world = dist.get_world_size(group) == dist.get_world_size()
    return planned_sums.between_regions_of(None if is_world else group)


@dataclass(frozen=True, slots=True)
class There:
    """A sum that needs no other rank."""

    values_N: torch.Tensor
    feedback: Feedback

    def wait(self) -> tuple[torch.Tensor, Feedback]:
        """At once."""
        return self.values_N, self.feedback


class Alone:
    """One replica is its own sum."""

    def begin(self, values_N: torch.Tensor, feedback: Feedback, fragment: int) -> Sum:
        """At once."""
        return There(values_N, feedback)

    def close(self, is_whole: bool) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Begun:
    """All-reduces, over planned flows where there are any, else by torch."""

    group: dist.ProcessGroup
    between: Connecting | None
    exact: bool

    def begin(self, values_N: torch.Tensor, feedback: Feedback, fragment: int) -> Sum:
        """In place."""
        if self.between is not None and values_N.dtype in DTYPES:
            num_exact = len(values_N) if self.exact else 0
            return AllReduced(values_N, feedback, self.between.all_reduce(values_N, num_exact, ("diloco", fragment)))
        with lost_peers():
            return AllReduced(values_N, feedback, dist.all_reduce(values_N, group=self.group, async_op=True))

    def close(self, is_whole: bool) -> None:
        """The group is not its own."""


class _Waits(Protocol):
    def wait(self) -> object: ...


@dataclass(frozen=True, slots=True)
class AllReduced:
    """An all-reduce under way."""

    values_N: torch.Tensor
    feedback: Feedback
    work: _Waits | None

    def wait(self) -> tuple[torch.Tensor, Feedback]:
        """As torch's."""
        if self.work is not None:
            with lost_peers():
                self.work.wait()
        return self.values_N, self.feedback


class Quantised:
    """A reduce-scatter and an all-gather of payloads: a rank sends 2 (n - 1) / n of a vector's, n ranks."""

    def __init__(self, group: dist.ProcessGroup, codec: Codec) -> None:
        ranks = dist.get_process_group_ranks(group)
        self._group = new_group(ranks, "gloo")
        self._size, self._codec = len(ranks), codec
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        background.Thread("hulk-diloco", self._run).start()

    def begin(self, values_N: torch.Tensor, feedback: Feedback, fragment: int) -> Sum:
        """Values are encoded where they are; their payloads go on from the host."""
        num_values = len(values_N)
        part = -(-num_values // self._size // BLOCK) * BLOCK
        padding = self._size * part - num_values
        parts = torch.nn.functional.pad(values_N.float(), (0, padding)).view(self._size, part)
        left = torch.zeros_like(parts)
        if feedback.own_N is not None:
            left.view(-1)[:num_values] = feedback.own_N
        payloads = torch.stack([self._codec.pack(one, lost) for one, lost in zip(parts, left, strict=True)])
        sums_N = torch.zeros(part, dtype=torch.float32)
        if feedback.sums_N is not None and len(feedback.sums_N) == part:  # else as many ranks as then are no more
            sums_N.copy_(feedback.sums_N)
        order = Order(payloads.cpu(), sums_N, Future())
        self._orders.put(order)
        return QuantisedSum(values_N, left.view(-1)[:num_values], order)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                with lost_peers():
                    order.done.set_result(self._sum(order))
            except Exception as error:  # noqa: BLE001  # whoever waits for it raises it
                order.done.set_exception(background.named("hulk-diloco", error))

    def _sum(self, order: "Order") -> torch.Tensor:
        """Of all parts; the feedback of the order's own part is updated."""
        part, codec = len(order.sums_N), self._codec
        arrived = torch.empty_like(order.payloads)
        dist.all_to_all_single(arrived, order.payloads, group=self._group)
        total_N = torch.zeros(part, dtype=torch.float32)
        for payload in arrived:
            total_N += codec.unpack(payload, part)
        mine = codec.pack(total_N, order.sums_N)
        everyone = torch.empty(self._size * len(mine), dtype=torch.uint8)
        dist.all_gather_into_tensor(everyone, mine, group=self._group)
        return torch.cat([codec.unpack(payload, part) for payload in everyone.view(self._size, -1)])

    def close(self, is_whole: bool) -> None:
        """The thread ends; a group on which something may be under way is left to the process's end."""
        self._orders.put(None)
        if is_whole:
            dist.destroy_process_group(self._group)


@dataclass(frozen=True, slots=True)
class Order:
    """One vector's payloads for the thread, and the feedback of the part that this rank sums."""

    payloads: torch.Tensor
    sums_N: torch.Tensor
    done: "Future[torch.Tensor]"


@dataclass(frozen=True, slots=True)
class QuantisedSum:
    """One that the thread does."""

    values_N: torch.Tensor
    own_N: torch.Tensor
    order: Order

    def wait(self) -> tuple[torch.Tensor, Feedback]:
        """In place, on the values' device."""
        total_N = self.order.done.result()
        return self.values_N.copy_(total_N[: len(self.values_N)]), Feedback(self.own_N, self.order.sums_N)
