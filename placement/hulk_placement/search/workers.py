"""How many workers, and how slow the slowest may be: exact over regions.

A step is the slowest rank's computation plus the ring. The search goes by sizes (numbers of workers), in ranges: always
the range whose floor (`Floors`) is lowest is halved, until it is one size and its rings are searched; a range whose
floor is no better than the best step is left. So the most promising sizes come first, and what is still open when the
work ends says how far from the best possible the plan can be.

For one size and number of buckets the computation may take only as many values as there are different speeds; a larger
one admits more machines and so never slows the ring. The search walks up those values, and looks for a ring only where
one below the best step so far exists: what it never looks at cannot be better.
"""

from __future__ import annotations

import bisect
import heapq
import math
from functools import partial

from hulk_placement.search.choice import Choice, in_ring, one_machine
from hulk_placement.search.floors import Floors
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.machines import Size
from hulk_placement.search.ring.region_graph import RegionGraph, Work
from hulk_placement.search.ring.regions import any_walk, best_walk
from hulk_placement.search.room import Room
from hulk_placement.search.seeds import seeds
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, size_of


class WorkerSearch:
    """The exact search for one problem on one region graph, within the iterations of `work`."""

    def __init__(self, problem: Problem, graph: RegionGraph, work: Work) -> None:
        self.problem, self.graph, self.work = problem, graph, work
        self.room = Room(problem)
        self.best: Choice | None = None

    def start(self) -> Choice | None:
        """The best of the choices that need no search."""
        for choice in one_machine(self.problem):
            self._take(choice)
        for choice in seeds(self.problem, self.graph, self.room, self.work):
            self._take(choice)
        return self.best

    def run(self) -> tuple[Choice | None, float]:
        """The best choice, and the seconds below which no step can be: its own where that is proven."""
        if self.best is None:
            self.start()  # before the floors, which take their time with many regions
        self.floors = Floors(self.problem, self.graph, self.room)
        low, high = self.floors.first, self.problem.max_workers
        ranges = [(self._floor_s(low, high), low, high)] if low <= high else []
        unproven_s = math.inf
        while ranges and ranges[0][0] < self._best_s() and self.work.spend():
            floor_s, low, high = heapq.heappop(ranges)
            if low < high:
                self._halve(ranges, floor_s, low, high)
            elif not self._try(low):
                unproven_s = min(unproven_s, floor_s)
        open_s = ranges[0][0] if ranges else math.inf
        return self.best, min(self._best_s(), unproven_s, open_s)

    def _halve(self, ranges: list[tuple[float, int, int]], floor_s: float, low: int, high: int) -> None:
        """Put both halves of a range of sizes (halves of its logarithm, as times go with that) in its place."""
        middle = math.isqrt(low * high)
        for part in ((low, middle), (middle + 1, high)):
            heapq.heappush(ranges, (max(floor_s, self._floor_s(*part)), *part))

    def _floor_s(self, low: int, high: int) -> float:
        """The seconds below which no step of these sizes is; of computation alone when the work has run out."""
        if not self.work.spend():
            return self.floors.least_compute_s(low, high)
        return self.floors.least_step_s(low, high, self._best_s())

    def _best_s(self) -> float:
        return self.best.step_s if self.best else math.inf

    def _try(self, num_workers: int) -> bool:
        """Search the rings of one size; False when not all were tried."""
        num_given_up = self.work.num_given_up
        shares = Shares(self.problem, num_workers)
        least = self.floors.least_compute_s(num_workers, num_workers)
        for num_buckets in NUM_BUCKETS:
            size = size_of(self.problem, shares, num_buckets)
            if self._reaches(shares, size, self._best_s(), self._best_s() - least):
                self._climb(shares, size, self._levels(shares, least))
        return not self.work.exhausted and self.work.num_given_up == num_given_up

    def _levels(self, shares: Shares, least: float) -> list[float]:
        """Every number of seconds, from `least` to below the best step, that the slowest rank may compute."""
        kinds = (False, True) if shares.num_large else (False,)
        seconds = {shares.seconds(speed, large) for speed in self.room.different_speeds for large in kinds}
        return sorted(value for value in seconds if least <= value < self._best_s())

    def _reaches(self, shares: Shares, size: Size, compute_s: float, below_s: float) -> bool:
        """Whether machines that compute for at most `compute_s` have a ring faster than `below_s`."""
        if below_s <= size.inside_s or self.work.exhausted:
            return False
        return any_walk(self.graph, size.ring, self.room.demand(shares, compute_s), below_s, self.work) is not None

    def _climb(self, shares: Shares, size: Size, levels: list[float]) -> None:
        """Try the seconds of computation upwards, skipping those at which no ring is fast enough to win."""
        position = 0
        while levels and not self.work.exhausted:
            del levels[bisect.bisect_left(levels, self._best_s()) :]
            if position >= len(levels):
                return
            below_s = self._best_s() - levels[position]
            reaches = partial(self._reaches, shares, size, below_s=below_s)
            if not reaches(levels[-1]):
                return
            position = bisect.bisect_left(levels, True, position, len(levels) - 1, key=reaches)
            self._take_best(shares, size, levels[position])
            position += 1

    def _take_best(self, shares: Shares, size: Size, compute_s: float) -> None:
        demand = self.room.demand(shares, compute_s)
        walk = best_walk(self.graph, size.ring, demand, self._best_s() - compute_s, self.work)
        if walk is not None:
            self._take(in_ring(shares, size, compute_s, walk))

    def _take(self, choice: Choice) -> None:
        if choice.step_s < self._best_s():
            self.best = choice
            self.work.found(choice.step_s)
