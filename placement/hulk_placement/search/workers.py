"""How many workers, and how slow the slowest may be: exact over regions.

A step is the slowest rank's computation plus the ring. For each number of workers and buckets the computation may take
only as many values as there are different speeds; a larger one admits more machines and so never slows the ring. The
search walks up those values, and looks for a ring only where one below the best step so far exists: what it never looks
at cannot be better.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hulk_placement.ring.machines import Size
from hulk_placement.ring.region_graph import Demand, RegionGraph, Work
from hulk_placement.ring.regions import Walk, any_walk, best_walk, may_walk
from hulk_placement.search.problem import Problem
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, inside_machine_s, size_of


@dataclass(frozen=True, slots=True)
class Choice:
    """Workers that take at most `compute_s` a step, in a ring over the regions of `walk`, or all on `machine`."""

    num_workers: int
    num_buckets: int
    compute_s: float
    walk: Walk | None
    machine: int | None
    step_s: float


class WorkerSearch:
    """The exact search for one problem on one region graph, within the iterations of `work`."""

    def __init__(self, problem: Problem, graph: RegionGraph, work: Work) -> None:
        self.problem, self.graph, self.work = problem, graph, work
        self.best: Choice | None = None
        self.speeds = sorted(
            (speed for speed, slots in zip(problem.speed, problem.num_slots, strict=True) for _ in range(slots)),
            reverse=True,
        )
        self.different_speeds = sorted(set(self.speeds))
        self.by_region: list[list[float]] = [[] for _ in problem.regions]
        for speed, slots, region in zip(problem.speed, problem.num_slots, problem.region_of, strict=True):
            self.by_region[region] += [-speed] * slots
        for ascending in self.by_region:
            ascending.sort()

    def run(self) -> tuple[Choice | None, float]:
        """The best choice, and the seconds below which no step can be: its own where that is proven."""
        sizes = range(self.problem.workload.min_workers, self.problem.max_workers + 1)
        ordered = sorted(sizes, key=lambda n: (self._least_compute_s(n), n))
        for choice in one_machine(self.problem):
            self._take(choice)
        self._try_all(_sample(ordered))
        self._try_all(ordered)
        if not self.work.incomplete:
            return self.best, self._best_s()
        if self.best is None:
            return None, self._least_compute_s(ordered[0])
        return self.best, self._relaxed_s(ordered)

    def _relaxed_s(self, ordered: list[int]) -> float:
        """Seconds below which no step can be, proven without finding walks."""
        bound_s = self._best_s()
        for num_workers in ordered:
            least = self._least_compute_s(num_workers)
            if num_workers == 1 or least >= bound_s:
                continue
            shares = Shares(self.problem, num_workers)
            for num_buckets in NUM_BUCKETS:
                size = size_of(self.problem, shares, num_buckets)
                bound_s = min(bound_s, least + self._least_ring_s(shares, size, bound_s - least))
        return bound_s

    def _least_ring_s(self, shares: Shares, size: Size, below_s: float) -> float:
        """The least seconds at which links could join enough machines, at most `below_s`."""
        everything = self._demand(shares, math.inf)
        low, high = 0.0, below_s
        if not may_walk(self.graph, size.ring, everything, high, self.work):
            return below_s
        while high - low > 0.001 * high:
            middle = (low + high) / 2
            if may_walk(self.graph, size.ring, everything, middle, self.work):
                high = middle
            else:
                low = middle
        return low

    def _try_all(self, sizes: list[int]) -> None:
        for num_workers in sizes:
            if not self.work.exhausted and self._least_compute_s(num_workers) < self._best_s():
                self._try(num_workers)

    def _best_s(self) -> float:
        return self.best.step_s if self.best else math.inf

    def _least_compute_s(self, num_workers: int) -> float:
        shares = Shares(self.problem, num_workers)
        least = shares.seconds(self.speeds[num_workers - 1], large=False)
        if shares.num_large:
            least = max(least, shares.seconds(self.speeds[shares.num_large - 1], large=True))
        return least

    def _try(self, num_workers: int) -> None:
        shares = Shares(self.problem, num_workers)
        least = self._least_compute_s(num_workers)
        if num_workers == 1:  # a choice of `one_machine`
            return
        for num_buckets in NUM_BUCKETS:
            size = size_of(self.problem, shares, num_buckets)
            if self._reaches(shares, size, self._best_s(), self._best_s() - least):
                self._climb(shares, size, self._levels(shares, least))

    def _levels(self, shares: Shares, least: float) -> list[float]:
        """Every number of seconds, from `least` to below the best step, that the slowest rank may compute."""
        kinds = (False, True) if shares.num_large else (False,)
        seconds = {shares.seconds(speed, large) for speed in self.different_speeds for large in kinds}
        return sorted(value for value in seconds if least <= value < self._best_s())

    def _reaches(self, shares: Shares, size: Size, compute_s: float, below_s: float) -> bool:
        """Whether machines that compute for at most `compute_s` have a ring faster than `below_s`."""
        if below_s <= size.inside_s:
            return False
        return any_walk(self.graph, size.ring, self._demand(shares, compute_s), below_s, self.work) is not None

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
        demand = self._demand(shares, compute_s)
        walk = best_walk(self.graph, size.ring, demand, self._best_s() - compute_s, self.work)
        if walk is not None:
            step_s = compute_s + max(walk.communication_s, size.inside_s)
            self._take(Choice(shares.num_workers, size.ring.num_buckets, compute_s, walk, None, step_s))

    def _demand(self, shares: Shares, compute_s: float) -> Demand:
        def count(large: bool) -> tuple[int, ...]:
            slowest = shares.slowest(compute_s, large)
            return tuple(bisect.bisect_right(ascending, -slowest) for ascending in self.by_region)

        return Demand(shares.num_workers, shares.num_large, slots=count(large=False), large=count(large=True))

    def _take(self, choice: Choice) -> None:
        if choice.step_s < self._best_s():
            self.best = choice


def one_machine(problem: Problem) -> Iterator[Choice]:
    """For each number of workers that some machine holds alone: all of them on the fastest such, needing no link."""
    for num_workers in range(problem.workload.min_workers, min(problem.max_workers, max(problem.num_slots)) + 1):
        shares = Shares(problem, num_workers)
        roomy = [m for m, num_slots in enumerate(problem.num_slots) if num_slots >= num_workers]
        machine = max(roomy, key=lambda m: (problem.speed[m], -m))
        compute_s = shares.seconds(problem.speed[machine], large=shares.num_large > 0)
        for num_buckets in NUM_BUCKETS if shares.num_ranks > 1 else (1,):
            step_s = compute_s + inside_machine_s(problem, shares, num_buckets)
            yield Choice(num_workers, num_buckets, compute_s, None, machine, step_s)


def _sample(ordered: list[int]) -> list[int]:
    """A few sizes across the range, small ones (quickly tried) first: a good step soon known spares most of the rest.

    >>> _sample([10, 9, 8, 7, 6, 5])
    [5, 6, 8]
    """
    ascending = sorted(ordered)
    return [ascending[(1 << power) - 1] for power in range(len(ordered).bit_length())]
