"""The best ring over machines, and which machines it leaves out: by trying all, for few machines.

Where machine pairs of one region pair have links of their own, regions no longer say everything. A depth-first search
then lengthens the path of the data machine by machine, and gives up a path as soon as its slowest rank and its worst
edge so far (links are shared, so an edge gets slower as others join it) are no better than the best whole plan.
Machines that are the same to the ring stand in for one another, and a ring is only tried from its first machine on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hulk_placement.cost.gloo import Ring
from hulk_placement.search.ring.region_graph import Work


@dataclass(frozen=True, slots=True)
class Edge:
    """The link between two machines: its figures, and what it draws on, by number, with the bytes/s of each."""

    rtt_s: float
    bandwidth_bytes_per_s: float
    flow_bytes_per_s: float
    drawn: tuple[tuple[int, float], ...]

    def seconds(self, ring: Ring, num_sharing: float) -> float:
        """Of the ring if this edge is its worst."""
        return ring.edge_s(self.rtt_s, self.bandwidth_bytes_per_s, num_sharing, self.flow_bytes_per_s)

    def num_sharing(self, num_on: Callable[[int], int]) -> float:
        """Edges on what it draws on, by number; what is wider than its link counts as fewer of them."""
        rates = ((num_on(number), rate) for number, rate in self.drawn)
        return max((num * (self.bandwidth_bytes_per_s / rate) for num, rate in rates), default=1)


@dataclass(frozen=True, slots=True)
class MachineGraph:
    """Machines by number. `edges[a][b]` is None where the link may not be used.

    `classes[a] == classes[b]` where exchanging a and b changes no ring. `speed` in FLOP/s per accelerator; `uplink` in
    bytes/s per region, 0 where it has no limit of its own.
    """

    edges: tuple[tuple[Edge | None, ...], ...]
    num_slots: tuple[int, ...]
    speed: tuple[float, ...]
    classes: tuple[int, ...]
    region_of: tuple[int, ...]
    uplink: tuple[float, ...]

    def alone_s(self, ring: Ring, source: int, target: int) -> float:
        """Seconds of the ring if this edge is its worst and no other is on its links; infinite where it has none."""
        edge = self.edges[source][target]
        if edge is None:
            return math.inf
        uplink = self.uplink[self.region_of[source]] if edge.drawn else 0.0
        uplink_s = ring.uplink_s(uplink, 1) if uplink else 0.0
        return max(edge.seconds(ring, edge.num_sharing(lambda _: 1)), uplink_s)


@dataclass(frozen=True, slots=True)
class Size:
    """One number of workers and buckets: the ring's cut, and FLOPs of the shares.

    `num_large` workers compute `large_flops`, the others `small_flops`; the ring takes `inside_s` at least.
    """

    num_workers: int
    ring: Ring
    small_flops: float
    large_flops: float
    num_large: int
    inside_s: float

    def compute_s(self, speeds: Sequence[float]) -> float:
        """Seconds of the slowest rank when the fastest workers take the larger shares."""
        slowest = self.small_flops / min(speeds)
        if not self.num_large:
            return slowest
        return max(slowest, self.large_flops / sorted(speeds, reverse=True)[self.num_large - 1])

    def least_compute_s(self, speeds: Sequence[float]) -> float:
        """Seconds that the slowest rank computes at least, where these are the speeds of some of the workers."""
        return self.small_flops / min(speeds)


def best_order(graph: MachineGraph, size: Size, below_s: float, work: Work) -> tuple[tuple[int, ...], float] | None:
    """The machines in rank order with the least step below `below_s`, and its seconds; None when there is none.

    When the work runs out, what was found until then: `work.exhausted` says that it may not be the best.
    """
    search = _OrderSearch(graph, size, below_s, work)
    for start, of in enumerate(graph.classes):
        if graph.classes.index(of) == start and graph.num_slots[start]:
            search.from_machine(start)
    return None if search.best is None else (search.best[::-1], search.best_s)


class _OrderSearch:
    def __init__(self, graph: MachineGraph, size: Size, below_s: float, work: Work) -> None:
        self.graph, self.size, self.work = graph, size, work
        self.best: tuple[int, ...] | None = None
        self.best_s = below_s
        self.left = list(graph.num_slots)
        self.path: list[int] = []
        self.on_link: dict[int, list[Edge]] = {}
        self.leaving: dict[int, int] = {}

    def from_machine(self, start: int) -> None:
        """Try every ring whose lowest-numbered machine is this one."""
        self._enter(start)
        self._extend(self.size.inside_s)
        self._leave(start)

    def _extend(self, ring_s: float) -> None:
        """Lengthen the path, whose worst edge so far takes `ring_s`."""
        if not self.work.spend():
            return
        if len(self.path) == self.size.num_workers:
            self._close(ring_s)
            return
        seen: set[int] = set()
        for machine in range(self.path[0], len(self.left)):
            own_class = self.graph.classes[machine]
            if not self.left[machine] or (own_class in seen and machine not in self.path):
                continue
            if machine not in self.path:
                seen.add(own_class)
            edge = self.graph.edges[self.path[-1]][machine]
            if edge is None:
                continue
            worst_s = max(ring_s, self._add(edge, self.path[-1]))
            self._enter(machine)
            if self.size.least_compute_s([self.graph.speed[m] for m in self.path]) + worst_s < self.best_s:
                self._extend(worst_s)
            self._leave(machine)
            self._remove(edge, self.path[-1])

    def _close(self, ring_s: float) -> None:
        edge = self.graph.edges[self.path[-1]][self.path[0]]
        if edge is None:
            return
        worst_s = max(ring_s, self._add(edge, self.path[-1]))
        step_s = worst_s + self.size.compute_s([self.graph.speed[m] for m in self.path])
        self._remove(edge, self.path[-1])
        if step_s < self.best_s:
            self.best, self.best_s = tuple(self.path), step_s

    def _add(self, edge: Edge, source: int) -> float:
        """Seconds of the worst edge on the links that this edge joins."""
        ring = self.size.ring
        if not edge.drawn:
            return edge.seconds(ring, 1)
        for number, _ in edge.drawn:
            self.on_link.setdefault(number, []).append(edge)
        region = self.graph.region_of[source]
        self.leaving[region] = self.leaving.get(region, 0) + 1
        met = {id(other): other for number, _ in edge.drawn for other in self.on_link[number]}
        worst_s = max(
            other.seconds(ring, other.num_sharing(lambda number: len(self.on_link[number]))) for other in met.values()
        )
        if self.graph.uplink[region]:
            worst_s = max(worst_s, ring.uplink_s(self.graph.uplink[region], self.leaving[region]))
        return worst_s

    def _remove(self, edge: Edge, source: int) -> None:
        for number, _ in edge.drawn:
            self.on_link[number].pop()
        if edge.drawn:
            self.leaving[self.graph.region_of[source]] -= 1

    def _enter(self, machine: int) -> None:
        self.path.append(machine)
        self.left[machine] -= 1

    def _leave(self, machine: int) -> None:
        self.path.pop()
        self.left[machine] += 1
