"""Seconds below which no step of a range of sizes can be, proven without finding rings."""

from __future__ import annotations

import heapq
import itertools
import math

from hulk_placement.cost.gloo import quickest
from hulk_placement.cost.known import work
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.joining import joining_s
from hulk_placement.search.ring.region_graph import Demand, RegionGraph, Work
from hulk_placement.search.ring.regions import best_walk
from hulk_placement.search.room import Room, least_compute_s
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, compute_seconds, size_of


class Floors:
    """The floors of one problem's sizes (numbers of workers, two or more) on one region graph.

    Of plans with equal shares, or where `is_uneven` of those with shares by speed.
    """

    def __init__(self, problem: Problem, graph: RegionGraph, room: Room, is_uneven: bool = False) -> None:
        self.problem, self.graph, self.slots, self.speeds = problem, graph, room.slots, room.speeds
        self.first = max(2, problem.workload.min_workers)
        shares = [Shares(problem, num) for num in range(self.first, problem.max_workers + 1)]
        uneven_s = _uneven_s(problem, room.speeds) if is_uneven else []
        self.compute_s = uneven_s[self.first - 1 :] or [least_compute_s(share, room.speeds) for share in shares]
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

    def least_ring_s(self, num_workers: int, below_s: float, work: Work) -> float:
        """The least seconds of a step with so many workers, the fastest in the best of all rings; at most `below_s`."""
        compute_s = compute_seconds(self.problem, self.speeds[:num_workers])
        demand, num_given_up = Demand(num_workers, 0, self.slots, self.slots), work.num_given_up
        sizes = [size_of(self.problem, Shares(self.problem, num_workers), buckets) for buckets in NUM_BUCKETS]
        walks = [best_walk(self.graph, size.ring, demand, below_s - compute_s, work) for size in sizes]
        if work.exhausted or work.num_given_up > num_given_up:
            return 0.0
        ring_s = [max(walk.communication_s, size.inside_s) for walk, size in zip(walks, sizes, strict=True) if walk]
        return compute_s + min(ring_s, default=below_s - compute_s)


def _uneven_s(problem: Problem, speeds: list[float]) -> list[float]:
    """The least seconds that the fastest 1, 2, ... workers compute, `speeds` fastest first: by shares that fit exactly.

    The slowest has one sequence at least.
    """
    workload = problem.workload
    flops, speeds = work(workload), speeds[: problem.max_workers]
    together = itertools.accumulate(workload.accelerators_per_worker * speed for speed in speeds)
    return [
        max(workload.global_batch * flops / whole, flops / speed) for speed, whole in zip(speeds, together, strict=True)
    ]


def lowest_s(floors: Floors, most: int, below_s: float, work: Work) -> float:
    """The floor of all sizes up to `most`, `below_s` where that is more.

    Ranges are halved where the floor is lowest; that of a single size is raised to its best ring's.
    """
    low, high = floors.first, most
    ranges = [(floors.least_step_s(low, high, below_s), low, high)] if low <= high else []
    walked: set[int] = set()
    while ranges and ranges[0][0] < below_s and work.spend():
        floor_s, low, high = heapq.heappop(ranges)
        if low in walked:
            return floor_s
        if low == high:
            walked.add(low)
            heapq.heappush(ranges, (max(floor_s, floors.least_ring_s(low, below_s, work)), low, low))
            continue
        middle = math.isqrt(low * high)
        for part in ((low, middle), (middle + 1, high)):
            heapq.heappush(ranges, (max(floor_s, floors.least_step_s(*part, below_s)), *part))
    return min([below_s, *(floor_s for floor_s, _, _ in ranges[:1])])
