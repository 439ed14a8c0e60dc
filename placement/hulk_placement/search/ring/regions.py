"""The best ring over regions: the closed walk whose worst edge takes the least time.

Within a region all machines are alike to the ring, so a ring is a closed walk over regions: how often each directed
region link is used decides the cost, and a region may be visited several times (out through a hub and back) as long as
it has a worker for each visit. `best_walk` finds the least worst edge: for a limit T, every link may carry the number
of ring edges that finish within T (`Ring.max_sharing`), and a depth-first search enumerates the numbers of edges per
link until one closed walk holds the workers that are asked for, or none can. T itself is found by bisection over the
values that an edge can take, so the answer is exact unless the work runs out.

    regions P, O, T with two workers each; P-O 140 ms, O-T 100 ms, P-T 220 ms: the walk is P O T O (then P again):
    each of P->O, O->T, T->O, O->P carries one edge and P-T none; O is visited twice, so its two workers part.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hulk_placement.cost.gloo import Ring
from hulk_placement.search.ring.closed_walk import closed_walk, satisfies
from hulk_placement.search.ring.region_graph import Demand, RegionGraph, Work


@dataclass(frozen=True, slots=True)
class Walk:
    """Regions in the order the data visits them (each entry one visit), and the seconds of the worst edge.

    `side_by_side` are the regions whose inside is fast enough for several workers in one visit.
    """

    visits: tuple[int, ...]
    communication_s: float
    side_by_side: frozenset[int]


def any_walk(graph: RegionGraph, ring: Ring, demand: Demand, below_s: float, work: Work) -> Walk | None:
    """Some walk whose worst edge takes less than `below_s`; None when there is none or the work runs out first."""
    single = _single_region(graph, ring, demand, below_s)
    if single is not None:
        return single
    visits = closed_walk(graph, ring, demand, math.nextafter(below_s, 0), work)
    return None if visits is None else walk_of(graph, ring, demand, visits)


def best_walk(graph: RegionGraph, ring: Ring, demand: Demand, below_s: float, work: Work) -> Walk | None:
    """The walk with the least worst edge below `below_s`; None when there is none or the work runs out first.

    When the work runs out after a walk was found, that walk is returned: `work.exhausted` says it may not be the best.
    """
    best = any_walk(graph, ring, demand, below_s, work)
    if best is None:
        return None
    values = _edge_values(graph, ring, demand, best.communication_s, work)
    low, high = 0, len(values)
    while low < high and not work.exhausted:
        middle = (low + high) // 2
        visits = closed_walk(graph, ring, demand, values[middle], work)
        if visits is None:
            low = middle + 1
        else:
            best = walk_of(graph, ring, demand, visits)
            high = bisect.bisect_left(values, best.communication_s, 0, middle)
    return best


def walk_of(graph: RegionGraph, ring: Ring, demand: Demand, visits: Sequence[int]) -> Walk:
    """The walk over these visits of several regions, its workers shared out over them as well as possible."""
    use = Counter((region, visits[(position + 1) % len(visits)]) for position, region in enumerate(visits))
    num_visits = Counter(visits)
    costs = [graph.edge_s(ring, a, b, q) for (a, b), q in use.items()]
    costs += [ring.uplink_s(graph.uplink[a], d) for a, d in num_visits.items() if graph.uplink[a]]
    inside_s = [graph.inside_s(ring, a) for a in range(len(graph))]
    worst = max(costs)
    for limit in sorted({worst, *(value for value in inside_s if value > worst)}):
        side_by_side = frozenset(a for a, value in enumerate(inside_s) if value <= limit)
        if satisfies(demand, num_visits, side_by_side):
            return Walk(tuple(visits), limit, side_by_side)
    raise AssertionError(f"visits {visits} cannot hold {demand}")


def _single_region(graph: RegionGraph, ring: Ring, demand: Demand, below_s: float) -> Walk | None:
    everywhere = frozenset(range(len(graph)))
    fits = [a for a in everywhere if satisfies(demand, {a: 1}, everywhere)]
    walks = [Walk((a,), graph.edge_s(ring, a, a, 1), frozenset({a})) for a in fits]
    best = min(walks, key=lambda walk: walk.communication_s, default=None)
    return best if best is not None and best.communication_s < below_s else None


def _edge_values(graph: RegionGraph, ring: Ring, demand: Demand, below_s: float, work: Work) -> list[float]:
    """Every number of seconds below `below_s` that may decide a walk, sorted; fewer when the work runs out.

    A walk that wastes no visit uses a link once per region it discovers. Only below the seconds of a region's inside,
    where that region's workers cannot stand side by side, may it pay to use links more often.
    """
    regions, most = range(len(graph)), demand.num_workers
    inside_s = [graph.inside_s(ring, a) for a in regions]
    values = {*inside_s, *(graph.edge_s(ring, a, a, 1) for a in regions)}
    slowest_inside = max(inside_s)

    def rising(seconds: Callable[[int], float], start: int) -> Iterator[float]:
        for num_sharing in range(start, most + 1):
            value = seconds(num_sharing)
            if value >= below_s or (num_sharing > len(graph) and value >= slowest_inside):
                return
            yield value

    for a in regions:
        if not work.spend():
            break
        for b in regions:
            alone_s = graph.edge_s(ring, a, b, 1)
            if a != b and alone_s < below_s:
                # Until the link is full, sharing it costs nothing: all those numbers of edges have one value.
                at_one_value = graph.max_sharing(ring, a, b, alone_s, most)
                values.update((alone_s, *rising(partial(graph.edge_s, ring, a, b), at_one_value + 1)))
        if graph.uplink[a]:
            values.update(rising(partial(ring.uplink_s, graph.uplink[a]), 1))
    return sorted(value for value in values if value < below_s)
