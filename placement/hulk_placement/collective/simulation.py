"""The cost model of this transport: chunks of every flow over the links of a network, event by event.

A region's ranks first hand each rank its own lanes, summed; a region sends a chunk on as soon as its subtree's sums of
it are there; of what is ready a link sends that first which has the longest way to go, in seconds of latency, less
`advance_s` times its position in the flow, as `hulk_runtime.collective` does. All links run side by side. A simulated
chunk may stand for many real ones: then it is cut through, that is, handed on when its first real chunk is there, and
never faster than its last one comes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Link, Pattern
from hulk_placement.collective.timing import delays, num_lanes
from hulk_placement.collective.transport import TRANSPORT, Transport

MOST_CHUNKS = 32
"""Simulated chunks of a flow: with cut-through more of them change the result by 0.1 % on the mean, 1 % at most."""

MOST_CROSSINGS = 20_000
"""Of chunks over links in one simulation: with many regions chunks are simulated larger."""


SUM, EXCHANGE, HEARD, FREE = range(4)
"""What an event says: a subtree's sum, a partial sum or the result has come, or a link is free."""

BEHIND = 4
"""Added to what comes over a link into a region with a cap: it has not yet come in."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Seconds of one all-reduce, and for how long each link, by (source, target), was sending.

    `leaving_s`, `coming_s` (regions): for how long each region's cap was taken up by what left it, and by what came;
    `inside_s`: for how long the network inside it was, by one pass over its machines.
    """

    seconds: float
    busy_s: dict[Link, float]
    leaving_s: tuple[float, ...]
    coming_s: tuple[float, ...]
    inside_s: tuple[float, ...]

    @property
    def bottleneck(self) -> Link | None:
        """The link that sent longest; None where nothing was sent."""
        return max(sorted(self.busy_s), key=self.busy_s.__getitem__) if self.busy_s else None

    @property
    def taken_s(self) -> float:
        """For how long the busiest of all these was taken up: the next all-reduce ends no sooner after this one."""
        return max(*self.busy_s.values(), *self.leaving_s, *self.coming_s, *self.inside_s, 0.0)


def simulate(
    network: Network,
    flows: Sequence[Flow],
    num_bytes: int,
    chunk_bytes: int | None = None,
    transport: Transport = TRANSPORT,
    advance_s: float = 0.0,
    most_chunks: int | None = None,
) -> Simulated:
    """How long one all-reduce of so many bytes by these flows takes; infinite where one needs an absent link.

    Of two chunks that wait for a link, the last of a flow gives way to the first of one whose way to go is shorter by
    up to `advance_s`: without that, flows with a short way only begin when others end, and leave links idle.
    """
    size = transport.chunk_bytes(num_bytes) if chunk_bytes is None else chunk_bytes
    if any(network.rate[a][b] <= 0 for flow in flows for a, b in _links(flow.pattern)):
        none = (0.0,) * len(network.regions)
        return Simulated(math.inf, {}, none, none, none)
    run = _Run(network, transport, num_bytes, size, advance_s)
    crossings = sum(len(_links(flow.pattern)) for flow in flows)
    num_chunks = max(2, min(most_chunks or MOST_CHUNKS, MOST_CROSSINGS // max(1, crossings)))
    for flow in flows:
        run.add(flow, num_chunks)
    finish_s = run.finish()
    num = len(network.regions)
    busy_s = {divmod(wire, num): seconds for wire, seconds in enumerate(run.busy_s) if seconds > 0}
    seconds = transport.start_s + transport.stretch * finish_s
    inside_s = tuple(pass_s for _, pass_s in run.inside_s)
    return Simulated(seconds, busy_s, tuple(run.leaving_s), tuple(run.coming_s), inside_s)


Hop = tuple[int, int, int, float]
"""What a region does with a chunk: the link (source * R + target), what it is at the target, the target, the tail."""


@dataclass(slots=True)
class _Way:
    """A pattern by region: how many sums it waits for, and where it sends a subtree's sum and the result.

    A tail is the seconds of latency from leaving on a link to the end of the way.
    """

    inputs: list[int]
    after_sum: list[list[Hop]]
    after_result: list[list[Hop]]
    is_member: list[bool]
    num_members: int


@dataclass(slots=True)
class _Part:
    """One simulated chunk: its bytes, and by region what it still waits for and when its last real chunk came."""

    way: _Way
    position: float
    num_bytes: float
    sums_missing: list[int]
    sums_last_s: list[float]
    exchange_missing: list[int]
    exchanged_last_s: list[float]


class _Run:
    """One simulation: add flows, then finish. Links and regions are numbers, for speed."""

    def __init__(
        self, network: Network, transport: Transport, num_bytes: int, chunk_bytes: int, advance_s: float
    ) -> None:
        known = delays(network, transport, chunk_bytes)
        lanes = num_lanes(network)
        num = len(network.regions)
        self.network, self.num_bytes, self.chunk_bytes, self.num = network, num_bytes, chunk_bytes, num
        self.advance_s = advance_s
        self.most_lanes = float(np.max(lanes))
        self.rate = (np.array(network.rate) * transport.pace).ravel().tolist()
        self.last_s = known.last_s.ravel().tolist()
        self.piece_bytes = (chunk_bytes * lanes).ravel().tolist()
        self.waiting: list[list[tuple[float, float, int, Hop, _Part, float]]] = [[] for _ in self.rate]
        self.free_s = [0.0] * num * num
        self.busy_s = [0.0] * num * num
        self.leaving_s, self.coming_s = [0.0] * num, [0.0] * num
        self.is_capped = min(network.egress) < math.inf
        self.egress_free, self.ingress_free = [0.0] * num, [0.0] * num
        self.inside_free = [0.0] * num
        self.inside_s = [_inside_s(network, transport, r, num_bytes) for r in range(num)]
        self.events: list[tuple[float, int, int, int, _Part | None, float]] = []
        self.num_events = 0
        self.end_s = 0.0

    def add(self, flow: Flow, most_chunks: int) -> None:
        """Put in a flow's chunks."""
        way = _way(flow.pattern, self.network)
        num_bytes = flow.share * self.num_bytes
        num_chunks = min(most_chunks, max(1, math.ceil(num_bytes / self.most_lanes / self.chunk_bytes)))
        for chunk in range(num_chunks):
            part = _Part(
                way=way,
                position=chunk / num_chunks,
                num_bytes=num_bytes / num_chunks,
                sums_missing=list(way.inputs),
                sums_last_s=[0.0] * self.num,
                exchange_missing=[way.num_members] * self.num,
                exchanged_last_s=[0.0] * self.num,
            )
            for region, (latency_s, whole_s) in enumerate(self.inside_s):
                if not whole_s:
                    self._come(0.0, SUM, region, part, 0.0)
                    continue
                first_s = latency_s + whole_s * chunk / num_chunks
                self._at(first_s, SUM, region, part, latency_s + whole_s * (chunk + 1) / num_chunks)

    def finish(self) -> float:
        """Seconds until every region's ranks have the whole result."""
        events, ingress = self.events, self.network.ingress
        while events:
            now, _, kind, place, part, last_s = heapq.heappop(events)
            if part is None:
                self._freed(now, place)
            elif kind >= BEHIND:
                first_s = max(now, self.ingress_free[place])
                self.ingress_free[place] = first_s + part.num_bytes / ingress[place]
                self.coming_s[place] += part.num_bytes / ingress[place]
                self._at(first_s, kind - BEHIND, place, part, max(last_s, self.ingress_free[place]))
            else:
                self._come(now, kind, place, part, last_s)
        return self.end_s

    def _at(self, when_s: float, kind: int, place: int, part: _Part | None, last_s: float) -> None:
        self.num_events += 1
        heapq.heappush(self.events, (when_s, self.num_events, kind, place, part, last_s))

    def _come(self, now: float, kind: int, region: int, part: _Part, last_s: float) -> None:
        """A chunk is there: the region sends on what is whole with it."""
        way = part.way
        if kind == SUM:
            last_s = part.sums_last_s[region] = max(part.sums_last_s[region], last_s)
            part.sums_missing[region] -= 1
            if part.sums_missing[region]:
                return
            for hop in way.after_sum[region]:
                self._queue(now, hop, part, last_s)
            if not way.is_member[region]:
                return
        if kind != HEARD:
            last_s = part.exchanged_last_s[region] = max(part.exchanged_last_s[region], last_s)
            part.exchange_missing[region] -= 1
            if part.exchange_missing[region]:
                return
        for hop in way.after_result[region]:
            self._queue(now, hop, part, last_s)
        latency_s, whole_s = self.inside_s[region]
        inside_s = max(self.inside_free[region], now) + whole_s * part.num_bytes / self.num_bytes
        self.inside_free[region] = inside_s
        self.end_s = max(self.end_s, latency_s + max(inside_s, last_s))

    def _queue(self, now: float, hop: Hop, part: _Part, last_s: float) -> None:
        """A chunk is ready for a link: it goes, or waits until the link is free."""
        wire, waiting, free_s = hop[0], self.waiting[hop[0]], self.free_s[hop[0]]
        if not waiting:
            if free_s <= now:
                self._send(now, hop, part, last_s)
                return
            self._at(free_s, FREE, wire, None, 0.0)
        self.num_events += 1
        heapq.heappush(
            waiting, (part.position * self.advance_s - hop[3], part.position, self.num_events, hop, part, last_s)
        )

    def _freed(self, now: float, wire: int) -> None:
        """A link sends the most urgent chunk that waits."""
        waiting = self.waiting[wire]
        _, _, _, hop, part, last_s = heapq.heappop(waiting)
        self._send(now, hop, part, last_s)
        if waiting:
            self._at(self.free_s[wire], FREE, wire, None, 0.0)

    def _send(self, now: float, hop: Hop, part: _Part, last_s: float) -> None:
        wire, kind, target, _ = hop
        num_bytes, rate = part.num_bytes, self.rate[wire]
        wire_s = piece_s = num_bytes / rate
        if num_bytes > self.piece_bytes[wire]:
            piece_s = self.piece_bytes[wire] / rate
        start_s, slow_s = now, wire_s
        if self.is_capped:
            source = wire // self.num
            start_s = max(now, self.egress_free[source])
            slow_s = num_bytes / min(rate, self.network.egress[source])
            piece_s *= slow_s / wire_s
            self.egress_free[source] = start_s + num_bytes / self.network.egress[source]
            self.leaving_s[source] += num_bytes / self.network.egress[source]
        self.busy_s[wire] += wire_s
        self.free_s[wire] = start_s + wire_s
        there_s = self.last_s[wire]
        self._at(start_s + piece_s + there_s, kind, target, part, max(start_s + slow_s, last_s + piece_s) + there_s)


def _links(pattern: Pattern) -> list[Link]:
    """The links that a pattern uses, each as often as it does."""
    down = [(parent, region) for region, parent in pattern.broadcast]
    return [*pattern.reduce, *itertools.permutations(pattern.exchange, 2), *down]


def _way(pattern: Pattern, network: Network) -> _Way:
    num, latency_s = len(pattern.up), network.latency_s
    children: list[list[int]] = [[] for _ in range(num)]
    for region, parent in pattern.broadcast:
        children[parent].append(region)

    @cache
    def below(region: int) -> float:
        return max((to_end(region, child) for child in children[region]), default=0.0)

    def to_end(source: int, target: int) -> float:
        return latency_s[source][target] + below(target)

    @cache
    def after_sum(region: int) -> float:
        parent = pattern.up[region]
        if parent != region:
            return latency_s[region][parent] + after_sum(parent)
        others = [other for other in pattern.exchange if other != region]
        return max((to_end(region, other) for other in (*children[region], *others)), default=0.0)

    def hop(kind: int, source: int, target: int, tail_s: float) -> Hop:
        return source * num + target, kind + (BEHIND if network.ingress[target] < math.inf else 0), target, tail_s

    sums: list[list[Hop]] = [[] for _ in range(num)]
    for region, parent in pattern.reduce:
        sums[region].append(hop(SUM, region, parent, after_sum(region)))
    for a, b in itertools.permutations(pattern.exchange, 2):
        sums[a].append(hop(EXCHANGE, a, b, to_end(a, b)))
    return _Way(
        inputs=[1 + sum(parent == region for _, parent in pattern.reduce) for region in range(num)],
        after_sum=sums,
        after_result=[[hop(HEARD, r, child, to_end(r, child)) for child in children[r]] for r in range(num)],
        is_member=[parent == region for region, parent in enumerate(pattern.up)],
        num_members=len(pattern.exchange),
    )


def _inside_s(network: Network, transport: Transport, region: int, num_bytes: int) -> tuple[float, float]:
    """Delay of a hop between a region's ranks, and the seconds in which each sends (n - 1) / n of the vector."""
    num_ranks = len(network.ranks[region])
    if num_ranks == 1:
        return 0.0, 0.0
    sent = num_bytes * (num_ranks - 1) / num_ranks
    return network.inside_latency_s[region] + transport.hop_s, sent / network.inside_rate[region]
