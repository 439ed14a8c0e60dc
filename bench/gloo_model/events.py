"""gloo's ring all-reduces event by event, any number of them on shared links: what the closed forms are checked with.

A rank posts receive and send of a segment when the last but one it posted has both come and gone; posting a receive
sends a ready message to the rank before, and a segment leaves when it is posted and its ready message is there. The
segments of all rings queue for links between regions and for uplinks in the order in which they leave (a burst of one
connection is not interleaved with another's); ready messages are too short to queue. Each process group runs two
collectives at a time on each rank, in the order in which they were issued.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from hulk_placement.cost.drawn import drawn_on
from hulk_placement.cost.gloo import AT_A_TIME, SOFTWARE_S, cut_ring
from hulk_placement.topology import Topology


@dataclass(frozen=True, slots=True)
class Collective:
    """One all-reduce: machines in rank order, bytes, when its data are there, and the process group it is issued to.

    Collectives of one group have the same machines and are issued in the order in which they are given.
    """

    machines: tuple[str, ...]
    num_bytes: int
    ready_s: float = 0.0
    group: int = 0


def simulate(collectives: Sequence[Collective], topology: Topology) -> tuple[float, ...]:
    """When each collective has ended on its last rank, in seconds from 0."""
    events = _Events()
    groups: dict[int, _Group] = {}
    rings = []
    for collective in collectives:
        num_ranks = len(collective.machines)
        if collective.group not in groups:
            groups[collective.group] = _Group(events, num_ranks)
        ring = _Ring(events, groups[collective.group], _edges(collective, topology))
        groups[collective.group].issued.append((collective.ready_s, ring))
        rings.append(ring)
    for group in groups.values():
        for rank in range(group.num_ranks):
            events.at(0.0, group.begin, rank)
    events.run()
    return tuple(max(ring.ended_s) for ring in rings)


@dataclass(frozen=True, slots=True)
class _Edge:
    """From a rank to the one before it: a half of the round trip, and what its segments queue for, with the seconds."""

    way_s: float
    queues: tuple[tuple[Hashable, float], ...]
    num_hops: int


def _edges(collective: Collective, topology: Topology) -> list[_Edge]:
    machines = collective.machines
    ring = cut_ring(collective.num_bytes, len(machines), 1)
    edges = []
    for rank, source in enumerate(machines):
        target = machines[rank - 1]
        link = topology.link(source, target)
        round_trip_s = link.rtt_s + SOFTWARE_S
        flow = link.one_flow_bytes_per_s
        own_s = ring.segment_bytes / flow
        queues: list[tuple[Hashable, float]] = [((collective.group, rank), own_s)]
        on_links = drawn_on(source, target, topology)
        queues += [(shared, ring.segment_bytes / bytes_per_s) for shared, bytes_per_s in on_links]
        if link.shared is not None:
            for way, region in zip(("from", "to"), link.shared, strict=True):
                if region in topology.uplinks:
                    queues.append(((way, region), ring.segment_bytes / topology.uplinks[region]))
        edges.append(_Edge(round_trip_s / 2, tuple(queues), ring.num_hops))
    return edges


class _Events:
    """The clock, what is to happen, and until when each queue is busy."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[int], None], int]] = []
        self._count = 0
        self._free_s: dict[Hashable, float] = {}

    def at(self, time_s: float, action: Callable[[int], None], rank: int) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time_s, self._count, action, rank))

    def run(self) -> None:
        while self._heap:
            self.now_s, _, action, rank = heapq.heappop(self._heap)
            action(rank)

    def queue(self, queues: tuple[tuple[Hashable, float], ...]) -> float:
        """When a segment that leaves now is through all of its queues: through each as if it came to it at once."""
        through_s = self.now_s
        for name, seconds in queues:
            end_s = max(self.now_s, self._free_s.get(name, 0.0)) + seconds
            self._free_s[name] = end_s
            through_s = max(through_s, end_s)
        return through_s


class _Ring:
    """One all-reduce. Segments of an edge stay in order, so counts by rank say everything."""

    def __init__(self, events: _Events, group: _Group, edges: list[_Edge]) -> None:
        self.events, self.group, self.edges = events, group, edges
        self.num_ranks, self.num_hops = len(edges), edges[0].num_hops
        self.begun = [False] * self.num_ranks
        self.posted, self.heard, self.left, self.gone, self.come = ([0] * self.num_ranks for _ in range(5))
        self.ended_s = [0.0] * self.num_ranks

    def begin(self, rank: int) -> None:
        self.begun[rank] = True
        self._post(rank)

    def _post(self, rank: int) -> None:
        after = (rank + 1) % self.num_ranks
        while self.begun[rank] and self.posted[rank] < 2 * self.num_hops:
            if min(self.gone[rank], self.come[rank]) < self._needed(self.posted[rank]):
                break
            self.posted[rank] += 1
            self.events.at(self.events.now_s + self.edges[after].way_s, self._hear, after)
            self._leave(rank)
        if self.gone[rank] == self.come[rank] == 2 * self.num_hops:
            self.ended_s[rank] = self.events.now_s
            self.group.end(rank)

    def _needed(self, number: int) -> int:
        """Segments that must have come and gone before this one is posted: all of the first phase for the second."""
        return max(number - 1, self.num_hops if number >= self.num_hops else 0)

    def _hear(self, rank: int) -> None:
        self.heard[rank] += 1
        self._leave(rank)

    def _leave(self, rank: int) -> None:
        edge = self.edges[rank]
        while self.left[rank] < min(self.posted[rank], self.heard[rank]):
            self.left[rank] += 1
            through_s = self.events.queue(edge.queues)
            self.events.at(through_s, self._go, rank)
            self.events.at(through_s + edge.way_s, self._come, (rank - 1) % self.num_ranks)

    def _go(self, rank: int) -> None:
        self.gone[rank] += 1
        self._post(rank)

    def _come(self, rank: int) -> None:
        self.come[rank] += 1
        self._post(rank)


class _Group:
    """A process group: each rank takes what was issued in order, as its data are there and a thread is free."""

    def __init__(self, events: _Events, num_ranks: int) -> None:
        self.events, self.num_ranks = events, num_ranks
        self.issued: list[tuple[float, _Ring]] = []
        self.next, self.running = [0] * num_ranks, [0] * num_ranks

    def begin(self, rank: int) -> None:
        while self.running[rank] < AT_A_TIME and self.next[rank] < len(self.issued):
            ready_s, ring = self.issued[self.next[rank]]
            if ready_s > self.events.now_s:
                self.events.at(ready_s, self.begin, rank)
                return
            self.next[rank] += 1
            self.running[rank] += 1
            ring.begin(rank)

    def end(self, rank: int) -> None:
        self.running[rank] -= 1
        self.begin(rank)
