"""Ranks agree on what the links carry, and change flows and paces at the same operation.

Operations are numbered alike on all ranks, so a number is an agreed moment. Of every ROUND of them

    number    0 ... WINDOW - 1        WINDOW                              ROUND (0 of the next)
              links are measured      what was measured is summed         new paces and shares, if any

Each rank writes what it measured into its own places of a vector of zeros, and the sum of these vectors, an all-reduce
like any other, has the same bits everywhere. What follows from it is a pure function of it, so nothing else is agreed.
An operation whose number has come waits for the decision before it; a lost rank ends that wait as it ends any other.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from hulk_runtime import background
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.drift.flow_versions import first, following, given
from hulk_runtime.collective.drift.link_estimates import NUM_FIGURES, Figures, slots
from hulk_runtime.collective.drift.link_traffic import NOTHING, Carried
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.errors import PeerLostError
from hulk_runtime.plan.flows import CollectivePlan, Pair, SizeClass

log = logging.getLogger(__name__)

WINDOW: Final = 4
LEAD: Final = 2
ROUND: Final = WINDOW + LEAD
MIN_BYTES: Final = 64 << 10
"""Smaller vectors tell nothing of rates, and do not count."""


@dataclass(frozen=True, slots=True)
class LinkRates:
    """A link's rate as planned and as the ranks believe it now, bytes/s; what it has carried until this round."""

    planned_bytes_per_s: float
    bytes_per_s: float
    carried: Carried = NOTHING


@dataclass(frozen=True, slots=True)
class Turn:
    """Whether what was measured is summed before an operation; whether a round begins with it, when `after` ended."""

    asks: bool = False
    begins: bool = False
    after: Work | None = None


class Drift:
    """One rank's side. `turn` and `asked` are called in the order of operations, `begin` and `fill` by the engine.

    `broken` is told why this rank can decide no more as the others do.
    """

    def __init__(
        self,
        plan: CollectivePlan,
        rank: int,
        peers: Mapping[int, Peer],
        pace: float,
        broken: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._plan, self._rank, self._peers, self._pace, self._broken = plan, rank, peers, pace, broken
        self._slots = slots(plan)
        self._now = self._next = first(plan)
        self._num_turns = 0
        self._largest_bytes: dict[int, int] = {}
        self._decided: Work | None = None

    @staticmethod
    def serves(plan: CollectivePlan) -> bool:
        """Whether there is something to follow: links are used, which one region alone has not, each with a rate."""
        used = {link for size in plan.classes for flow in size.every_flow for link in flow.links}
        return bool(used) and used <= plan.links.keys()

    def turn(self, num_bytes: int) -> Turn:
        """The next operation sums a vector of so many bytes."""
        if num_bytes < MIN_BYTES:
            return Turn()
        place = self._num_turns % ROUND
        self._num_turns += 1
        size = self._number(num_bytes)
        self._largest_bytes[size] = max(num_bytes, self._largest_bytes.get(size, 0))
        return Turn(place == WINDOW, place == 0, self._decided if place == 0 else None)

    @property
    def num_figures(self) -> int:
        """Of the vector that is summed."""
        return NUM_FIGURES * len(self._slots)

    def size_class(self, num_bytes: int) -> SizeClass:
        """The class that serves a vector, with the flows of this round."""
        return self._now.classes[self._number(num_bytes)]

    def beliefs(self) -> dict[Pair, LinkRates]:
        """What is believed now of every link of the plan."""
        now = self._now
        return {
            link: LinkRates(self._plan.links[link].bytes_per_s, belief.carries, now.carried.get(link, NOTHING))
            for link, belief in now.beliefs.items()
        }

    def begin(self) -> bool:
        """A round begins: flows and paces follow what was decided, and measuring starts anew. Whether flows changed."""
        changed = self._next.classes != self._now.classes
        self._now = self._next
        rates = given(self._plan, self._now)
        for slot in self._slots:
            if slot.receiver == self._rank:
                for channel in self._peers[slot.sender].channels:
                    channel.meter.reset()
            if slot.sender == self._rank and slot.link in rates:
                channels = self._peers[slot.receiver].channels
                for channel in channels:
                    channel.outlook.reset()
                    channel.pace(self._pace * slot.share * rates[slot.link] / len(channels))
        return changed

    def fill(self, figures_N: torch.Tensor) -> None:
        """Write what this rank measured into its places."""
        for row_F, slot in zip(figures_N.view(-1, NUM_FIGURES), self._slots, strict=True):
            if slot.receiver == self._rank:
                row_F.copy_(torch.tensor(_received(self._peers[slot.sender]), device="cpu"))
            if slot.sender == self._rank:
                row_F.copy_(torch.tensor(_sent(self._peers[slot.receiver]), device="cpu"))

    def asked(self, work: Work, figures_N: torch.Tensor) -> None:
        """The sum of all ranks' figures is under way; when it is there a thread decides what follows."""
        decided = self._decided = Work(lambda _: None, 0.0)
        largest_bytes = dict(self._largest_bytes)

        def summed(error: PeerLostError | None) -> None:
            if error is not None:
                decided.end(error)
            else:
                decide = partial(self._decide, figures_N, largest_bytes, decided)
                background.Thread("hulk-drift", decide, broke=self._broke).start()

        work.on_end(summed)

    def settle(self, timeout_s: float) -> None:
        """Wait, before leaving, for what others still need from this rank."""
        if self._decided is not None:
            self._decided.await_end(timeout_s)

    def _decide(self, figures_N: torch.Tensor, largest_bytes: Mapping[int, int], decided: Work) -> None:
        """What a pure function of agreed figures raises it raises on every rank: all go on as before until it is asked
        again. A rank that is short of memory is alone with that, and would go by other flows than the others.
        """
        try:
            self._next, news = following(self._plan, self._now, figures_N.tolist(), largest_bytes, self._pace)
            for line in news if self._rank == 0 else ():
                log.info(line)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001
            background.count("hulk-drift", error, "and links are followed again from the next round on")
        decided.end()

    def _broke(self, name: str, error: BaseException) -> None:
        self._broken(f"its thread {name} broke: {error!r}")

    def _number(self, num_bytes: int) -> int:
        return self._plan.classes.index(self._plan.size_class(num_bytes))


def _received(sender: Peer) -> Figures:
    bytes_per_s, seconds = sender.carried()
    num_bytes, last_s = sender.brought()
    return Figures(bytes_per_s=bytes_per_s, seconds=seconds, num_bytes=float(num_bytes), last_s=last_s)


def _sent(receiver: Peer) -> Figures:
    outlooks = [channel.outlook for channel in receiver.channels]
    return Figures(
        queued_share=max((outlook.queued_share for outlook in outlooks), default=0.0),
        short_share=max((outlook.short_share for outlook in outlooks), default=0.0),
    )
