"""Seconds below which no step of a range of sizes can be, proven without finding rings."""

from __future__ import annotations

from hulk_placement.cost.gloo import quickest
from hulk_placement.ring.joining import joining_s
from hulk_placement.ring.region_graph import RegionGraph
from hulk_placement.search.problem import Problem
from hulk_placement.search.room import Room, least_compute_s
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, size_of


class Floors:
    """The floors of one problem's sizes (numbers of workers, two or more) on one region graph."""

    def __init__(self, problem: Problem, graph: RegionGraph, room: Room) -> None:
        self.graph, self.slots = graph, room.slots
        self.first = max(2, problem.workload.min_workers)
        shares = [Shares(problem, num) for num in range(self.first, problem.max_workers + 1)]
        self.compute_s = [least_compute_s(share, room.speeds) for share in shares]
        self.rings = [[size_of(problem, share, buckets).ring for share in shares] for buckets in NUM_BUCKETS]

    def least_compute_s(self, low: int, high: int) -> float:
        """The least seconds of computation with `low` to `high` workers."""
        return min(self.compute_s[low - self.first : high + 1 - self.first])

    def least_step_s(self, low: int, high: int, below_s: float) -> float:
        """The least seconds of a step with `low` to `high` workers; `below_s` where that is more."""
        compute_s = self.least_compute_s(low, high)
        ring_s = below_s - compute_s
        for rings in self.rings:
            if ring_s > 0:
                ring = quickest(rings[low - self.first : high + 1 - self.first])
                ring_s = joining_s(self.graph, ring, self.slots, low, ring_s)
        return min(below_s, compute_s + ring_s)
