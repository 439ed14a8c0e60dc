"""Whether a closed walk over several regions exists none of whose edges takes longer than a limit.

Under a limit every directed region link carries only so many ring edges (`Ring.max_sharing`) and every region allows as
many visits as it has workers and its uplink edges. The search lengthens a path region by region and thereby enumerates
the numbers of edges per link, each once: what failed from one region with the same links used is not tried again.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping

from hulk_placement.cost.gloo import Ring
from hulk_placement.search.ring.region_graph import Demand, RegionGraph, Work

MOST_PER_LIMIT = 1000
"""Iterations after which the search under one limit gives up: with many regions, no walk takes long to prove."""


def closed_walk(graph: RegionGraph, ring: Ring, demand: Demand, limit_s: float, work: Work) -> tuple[int, ...] | None:
    """A closed walk over two or more regions none of whose edges takes longer than `limit_s`.

    None if there is none, or if the search gave up.
    """
    search = _WalkSearch(graph, ring, demand, limit_s, work)
    for start in range(len(graph)):
        visits = search.from_region(start)
        if visits is not None:
            return visits
        search.forbid(start)
    return None


def satisfies(demand: Demand, num_visits: Mapping[int, int], side_by_side: frozenset[int]) -> bool:
    """Whether workers can be shared out: each visit one worker, more where a region's inside may be used."""
    room = {a: demand.slots[a] if a in side_by_side else visits for a, visits in num_visits.items()}
    if sum(num_visits.values()) > demand.num_workers or sum(room.values()) < demand.num_workers:
        return False
    if any(visits > demand.slots[a] for a, visits in num_visits.items()):
        return False
    small = sum(max(0, visits - demand.large[a]) for a, visits in num_visits.items())
    large = sum(min(demand.large[a], room[a]) for a in num_visits)
    return min(large, demand.num_workers - small) >= demand.num_large


class _WalkSearch:
    """Depth-first enumeration of edges per link under one limit."""

    def __init__(self, graph: RegionGraph, ring: Ring, demand: Demand, limit_s: float, work: Work) -> None:
        self.demand, self.work, self.size = demand, work, len(graph)
        self.side_by_side = frozenset(a for a in range(self.size) if graph.inside_s(ring, a) <= limit_s)
        most = demand.num_workers
        self.left = [
            [0 if a == b else graph.max_sharing(ring, a, b, limit_s, most) for b in range(self.size)]
            for a in range(self.size)
        ]
        self.visits_left = [
            min(demand.slots[a], _uplink_visits(graph.uplink[a], ring, limit_s, most)) for a in range(self.size)
        ]
        self.all_side_by_side = len(self.side_by_side) == self.size
        self.path: list[int] = []
        self.num_visits: dict[int, int] = {}
        self.used = 0  # edges per link, as digits of one number
        self.failed: set[tuple[int, int, int]] = set()
        self.give_up_at = min(work.limit, work.done + MOST_PER_LIMIT)

    def forbid(self, region: int) -> None:
        """Leave the region out: every walk through it has been tried."""
        self.visits_left[region] = 0

    def from_region(self, start: int) -> tuple[int, ...] | None:
        """A closed walk from this region over regions that are not forbidden."""
        if not self.visits_left[start]:
            return None
        self.failed.clear()
        self._enter(start)
        if self._extend(start, 1 << start):
            return tuple(self.path)
        self._leave(start)
        return None

    def _extend(self, start: int, since_new: int) -> bool:
        """Lengthen the path; True with the walk in `path` when it closes.

        `since_new` is the bit set of regions the path met since it last entered a new one, that one included.
        """
        here = self.path[-1]
        may_go_on = self.work.spend()
        if len(self.path) > 1 and self.left[here][start] and satisfies(self.demand, self.num_visits, self.side_by_side):
            return True
        state = (here, since_new, self.used)
        if len(self.path) >= self.demand.num_workers or state in self.failed:
            return False
        if self.work.done >= self.give_up_at or not may_go_on:
            self.work.num_given_up += 1
            return False
        if not self._enough_reachable(start, here):
            return False
        for there in self._moves(here, since_new):
            self._use(here, there, 1)
            is_new = there not in self.num_visits
            self._enter(there)
            if self._extend(start, 1 << there if is_new else since_new | 1 << there):
                return True
            self._leave(there)
            self._use(here, there, -1)
        self.failed.add(state)
        return False

    def _moves(self, here: int, since_new: int) -> list[int]:
        """Regions to go to next: new ones first, the roomiest first, then back the way the path came.

        A detour never meets itself before it reaches a new region.
        """
        possible = [b for b in range(self.size) if self.left[here][b] and self.visits_left[b]]
        if self.all_side_by_side:
            possible = [b for b in possible if not since_new >> b & 1]
        latest = {region: position for position, region in enumerate(self.path, start=1)}
        return sorted(possible, key=lambda b: (latest.get(b, 0) > 0, -latest.get(b, 0), -self.demand.slots[b]))

    def _enough_reachable(self, start: int, here: int) -> bool:
        """Whether regions on the path, or still between here and the start, have room for all workers."""
        ahead = self._closure(here, forward=True)
        behind = self._closure(start, forward=False)
        if not ahead >> start & 1:
            return False
        useful = ahead & behind
        room = sum(slots for a, slots in enumerate(self.demand.slots) if useful >> a & 1 or a in self.num_visits)
        return room >= self.demand.num_workers

    def _closure(self, origin: int, forward: bool) -> int:
        """Bit set of regions that links with capacity left join to the origin."""
        seen, todo = 1 << origin, [origin]
        while todo:
            a = todo.pop()
            for b in range(self.size):
                capacity = self.left[a][b] if forward else self.left[b][a]
                if capacity and not seen >> b & 1:
                    seen |= 1 << b
                    todo.append(b)
        return seen

    def _use(self, source: int, target: int, num_edges: int) -> None:
        self.left[source][target] -= num_edges
        self.used += num_edges << (source * self.size + target) * self.demand.num_workers.bit_length()

    def _enter(self, region: int) -> None:
        self.path.append(region)
        self.visits_left[region] -= 1
        self.num_visits[region] = self.num_visits.get(region, 0) + 1

    def _leave(self, region: int) -> None:
        self.path.pop()
        self.visits_left[region] += 1
        self.num_visits[region] -= 1
        if not self.num_visits[region]:
            del self.num_visits[region]


def _uplink_visits(bytes_per_s: float, ring: Ring, limit_s: float, at_most: int) -> int:
    """How many edges may leave a region within the limit."""
    if not bytes_per_s:
        return at_most
    return bisect.bisect_right(range(1, at_most + 1), limit_s, key=lambda edges: ring.uplink_s(bytes_per_s, edges))
