"""How many workers the machines of a problem hold, by region and by speed."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.region_graph import Demand
from hulk_placement.search.sizes import Shares


class Room:
    """The worker slots of a problem, fastest first, of all regions and of each."""

    def __init__(self, problem: Problem) -> None:
        self.by_region = [[-problem.speed[machine] for machine in slots] for slots in problem.slots_by_region]
        self.slots = tuple(map(len, self.by_region))
        self.speeds = list(problem.slot_speeds)
        self.different_speeds = sorted(set(self.speeds))

    def fastest(self, regions: Iterable[int]) -> list[float]:
        """The speeds of all slots of these regions, fastest first."""
        return [-speed for speed in sorted(speed for region in regions for speed in self.by_region[region])]

    def demand(self, shares: Shares, compute_s: float) -> Demand:
        """The workers asked for, of machines that compute for at most so long."""

        def count(large: bool) -> tuple[int, ...]:
            slowest = shares.slowest(compute_s, large)
            return tuple(bisect.bisect_right(ascending, -slowest) for ascending in self.by_region)

        return Demand(shares.num_workers, shares.num_large, slots=count(large=False), large=count(large=True))


def least_compute_s(shares: Shares, speeds: list[float]) -> float:
    """The least seconds that workers on slots of these speeds, fastest first, compute."""
    least = shares.seconds(speeds[shares.num_workers - 1], large=False)
    if shares.num_large:
        least = max(least, shares.seconds(speeds[shares.num_large - 1], large=True))
    return least
