"""The cost model of this transport: chunks of every flow over the links of a network, event by event.

A region's ranks first hand each rank its own lanes, summed; a region sends a chunk on as soon as its subtree's sums of
it are there; of what is ready a link sends that first which has the longest way to go, in seconds of latency, less
`advance_s` times its position in the flow, as `hulk_runtime.collective` does. All links run side by side. A simulated
chunk may stand for many real ones: then it is cut through, that is, handed on when its first real chunk is there, and
never faster than its last one comes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hulk_placement.collective.network import Matrix, Network
from hulk_placement.collective.patterns import Flow, Pattern
from hulk_placement.collective.timing import delays, num_lanes
from hulk_placement.collective.transport import TRANSPORT, Transport

MOST_CHUNKS = 32
"""Simulated chunks of a flow: with cut-through more of them change the result by 0.1 % on the mean, 1 % at most."""

MOST_CROSSINGS = 20_000
"""Of chunks over links in one simulation: with many regions chunks are simulated larger."""

Link = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Simulated:
    """Seconds of one all-reduce, and for how long each link, by (source, target), was sending."""

    seconds: float
    busy_s: dict[Link, float]

    @property
    def bottleneck(self) -> Link | None:
        """The link that sent longest; None where nothing was sent."""
        return max(sorted(self.busy_s), key=self.busy_s.__getitem__) if self.busy_s else None


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
    run = _Run(network, transport, num_bytes, size, advance_s)
    crossings = sum(_num_crossings(flow.pattern) for flow in flows)
    num_chunks = max(2, min(most_chunks or MOST_CHUNKS, MOST_CROSSINGS // max(1, crossings)))
    for flow in flows:
        if not run.add(flow, num_chunks):
            return Simulated(math.inf, {})
    finish_s = run.finish()
    return Simulated(transport.start_s + transport.stretch * finish_s, run.busy_s)


@dataclass(slots=True)
class _Part:
    """One simulated chunk: its bytes, and for every region what it still waits for and since when its inputs are there.

    `ready` holds (first, last): when the first and the last real chunk of all inputs so far was there.
    """

    flow: int
    position: float
    num_bytes: float
    sums_missing: list[int]
    sums: list[tuple[float, float]]
    exchange_missing: list[int]
    exchanged: list[tuple[float, float]]


@dataclass(slots=True)
class _Way:
    """A pattern as lists by region, and the tails: seconds of latency from leaving on a link to the end of the way.

    `sum_tails_s` is of a subtree's sum on its way to the parent; `result_tails_s` of a result, or of a sum to exchange.
    """

    up: tuple[int, ...]
    members: tuple[int, ...]
    children: list[list[int]]
    sum_tails_s: dict[int, float]
    result_tails_s: dict[Link, float]


@dataclass(slots=True)
class _Wire:
    """A link at work: what waits (minus urgency, position, event number, kind, part, last), and if it sends."""

    rate: float
    last_s: float
    piece_bytes: float
    waiting: list[tuple[float, float, int, str, _Part, float]] = field(default_factory=list)
    sending: bool = False


class _Run:
    """One simulation: add flows, then finish."""

    def __init__(
        self, network: Network, transport: Transport, num_bytes: int, chunk_bytes: int, advance_s: float
    ) -> None:
        known = delays(network, transport, chunk_bytes)
        lanes = num_lanes(network)
        self.network, self.num_bytes, self.chunk_bytes = network, num_bytes, chunk_bytes
        self.advance_s = advance_s
        self.num = len(network.regions)
        self.wires = {
            (a, b): _Wire(
                network.rate[a][b] * transport.pace, float(known.last_s[a, b]), float(chunk_bytes * lanes[a, b])
            )
            for a in range(self.num)
            for b in range(self.num)
            if network.rate[a][b] > 0
        }
        self.most_lanes = float(np.max(lanes))
        self.egress_free, self.ingress_free = [0.0] * self.num, [0.0] * self.num
        self.inside_free = [0.0] * self.num
        self.inside_s = [_inside_s(network, r, num_bytes) for r in range(self.num)]
        self.ways: list[_Way] = []
        self.events: list[tuple[float, int, str, Link, _Part | None, float]] = []
        self.num_events = 0
        self.end_s = 0.0
        self.busy_s: dict[Link, float] = {}

    def add(self, flow: Flow, most_chunks: int) -> bool:
        """Put in a flow's chunks; False when it needs an absent link."""
        pattern = flow.pattern
        members = pattern.exchange
        links = [*pattern.reduce, *((p, r) for r, p in pattern.broadcast), *((a, b) for a in members for b in members)]
        if any(a != b and (a, b) not in self.wires for a, b in links):
            return False
        self.ways.append(_way(pattern, self.network.latency_s))
        inputs = [1] * self.num
        for _, parent in pattern.reduce:
            inputs[parent] += 1
        num_bytes = flow.share * self.num_bytes
        num_chunks = min(most_chunks, max(1, math.ceil(num_bytes / self.most_lanes / self.chunk_bytes)))
        for chunk in range(num_chunks):
            part = _Part(
                flow=len(self.ways) - 1,
                position=chunk / num_chunks,
                num_bytes=num_bytes / num_chunks,
                sums_missing=list(inputs),
                sums=[(0.0, 0.0)] * self.num,
                exchange_missing=[len(members)] * self.num,
                exchanged=[(0.0, 0.0)] * self.num,
            )
            for region in range(self.num):
                latency_s, whole_s = self.inside_s[region]
                first_s = latency_s + whole_s * chunk / num_chunks
                self._at(first_s, "sum", (region, region), part, latency_s + whole_s * (chunk + 1) / num_chunks)
        return True

    def finish(self) -> float:
        """Seconds until every region's ranks have the whole result."""
        while self.events:
            now, _, kind, (source, target), part, last_s = heapq.heappop(self.events)
            if part is None:
                self.wires[source, target].sending = False
                self._send(now, source, target)
            elif source != target and self.network.ingress[target] < math.inf:
                first_s = max(now, self.ingress_free[target])
                self.ingress_free[target] = first_s + part.num_bytes / self.network.ingress[target]
                self._at(first_s, kind, (target, target), part, max(last_s, self.ingress_free[target]))
            elif kind == "sum":
                self._summed(now, target, part, last_s)
            elif kind == "exchange":
                self._exchanged(now, target, part, last_s)
            else:
                self._heard(now, target, part, last_s)
        return self.end_s

    def _at(self, when_s: float, kind: str, link: Link, part: _Part | None, last_s: float) -> None:
        self.num_events += 1
        heapq.heappush(self.events, (when_s, self.num_events, kind, link, part, last_s))

    def _summed(self, now: float, region: int, part: _Part, last_s: float) -> None:
        """One more input of a region's subtree is there."""
        part.sums[region] = _later(part.sums[region], now, last_s)
        part.sums_missing[region] -= 1
        if part.sums_missing[region]:
            return
        way, last_s = self.ways[part.flow], part.sums[region][1]
        if region not in way.members:
            self._queue(now, "sum", (region, way.up[region]), part, (way.sum_tails_s[region], last_s))
            return
        for other in way.members:
            if other != region:
                self._queue(now, "exchange", (region, other), part, (way.result_tails_s[region, other], last_s))
        self._exchanged(now, region, part, last_s)

    def _exchanged(self, now: float, region: int, part: _Part, last_s: float) -> None:
        """One more partial sum is there at a member."""
        part.exchanged[region] = _later(part.exchanged[region], now, last_s)
        part.exchange_missing[region] -= 1
        if not part.exchange_missing[region]:
            self._heard(now, region, part, part.exchanged[region][1])

    def _heard(self, now: float, region: int, part: _Part, last_s: float) -> None:
        """The result is there: to the regions below, and to the region's own ranks."""
        way = self.ways[part.flow]
        for child in way.children[region]:
            self._queue(now, "heard", (region, child), part, (way.result_tails_s[region, child], last_s))
        latency_s, whole_s = self.inside_s[region]
        own_s = whole_s * part.num_bytes / self.num_bytes
        self.inside_free[region] = max(self.inside_free[region], now) + own_s
        self.end_s = max(self.end_s, latency_s + max(self.inside_free[region], last_s))

    def _queue(self, now: float, kind: str, link: Link, part: _Part, tail_and_last_s: tuple[float, float]) -> None:
        wire = self.wires[link]
        tail_s, last_s = tail_and_last_s
        self.num_events += 1
        heapq.heappush(
            wire.waiting, (part.position * self.advance_s - tail_s, part.position, self.num_events, kind, part, last_s)
        )
        if not wire.sending:
            self._send(now, *link)

    def _send(self, now: float, source: int, target: int) -> None:
        """Begin the next chunk of a link, if one waits."""
        wire = self.wires[source, target]
        if not wire.waiting:
            return
        _, _, _, kind, part, last_s = heapq.heappop(wire.waiting)
        start_s = max(now, self.egress_free[source])
        self.egress_free[source] = start_s + part.num_bytes / self.network.egress[source]
        wire_s = part.num_bytes / wire.rate
        slowest = min(wire.rate, self.network.egress[source])
        piece_s = min(part.num_bytes, wire.piece_bytes) / slowest
        end_s = max(start_s + part.num_bytes / slowest, last_s + piece_s)
        self.busy_s[source, target] = self.busy_s.get((source, target), 0.0) + wire_s
        wire.sending = True
        self._at(start_s + wire_s, "free", (source, target), None, 0.0)
        self._at(start_s + piece_s + wire.last_s, kind, (source, target), part, end_s + wire.last_s)


def _num_crossings(pattern: Pattern) -> int:
    num_members = len(pattern.exchange)
    return 2 * len(pattern.reduce) + num_members * (num_members - 1)


def _way(pattern: Pattern, latency_s: Matrix) -> _Way:
    children: list[list[int]] = [[] for _ in pattern.up]
    for region, parent in pattern.broadcast:
        children[parent].append(region)

    def to_end(source: int, target: int) -> float:
        return latency_s[source][target] + max((to_end(target, child) for child in children[target]), default=0.0)

    def after_sum(region: int) -> float:
        parent = pattern.up[region]
        if parent != region:
            return latency_s[region][parent] + after_sum(parent)
        others = [other for other in pattern.exchange if other != region]
        return max((to_end(region, other) for other in (*children[region], *others)), default=0.0)

    exchanged = [(a, b) for a in pattern.exchange for b in pattern.exchange if a != b]
    down = [(parent, region) for region, parent in pattern.broadcast]
    return _Way(
        pattern.up,
        pattern.exchange,
        children,
        {region: after_sum(region) for region, _ in pattern.reduce},
        {link: to_end(*link) for link in (*exchanged, *down)},
    )


def _later(known: tuple[float, float], first_s: float, last_s: float) -> tuple[float, float]:
    return max(known[0], first_s), max(known[1], last_s)


def _inside_s(network: Network, region: int, num_bytes: int) -> tuple[float, float]:
    """Latency of a hop between a region's ranks, and the seconds in which each sends (n - 1) / n of the vector."""
    num_ranks = len(network.ranks[region])
    if num_ranks == 1:
        return 0.0, 0.0
    sent = num_bytes * (num_ranks - 1) / num_ranks
    return network.inside_latency_s[region], sent / network.inside_rate[region]
