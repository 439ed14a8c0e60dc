"""Good rings that are quickly made, large ones among them: where a search starts that may not have the time to end.

A ring grows from each of the roomiest regions: the region is put in next, and where, whose two new edges are fastest.
After each the step of all workers in it is a choice; the best ring is then tried without its slowest machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hulk_placement.cost.gloo import Ring
from hulk_placement.search.choice import Choice, in_ring
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.closed_walk import satisfies
from hulk_placement.search.ring.joining import Matrix, edge_seconds
from hulk_placement.search.ring.region_graph import Demand, RegionGraph, Work
from hulk_placement.search.ring.regions import Walk, walk_of
from hulk_placement.search.room import Room, least_compute_s
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, size_of

NUM_STARTS = 8
NUM_SPEEDS = 16


def seeds(problem: Problem, graph: RegionGraph, room: Room, work: Work) -> Iterator[Choice]:
    """Choices as far as the work allows."""
    most = problem.max_workers
    if most < 2:
        return
    seconds = edge_seconds(graph, size_of(problem, Shares(problem, most), 1).ring)
    best: Choice | None = None
    for start in sorted(range(len(graph)), key=lambda a: -room.slots[a])[:NUM_STARTS]:
        cycle: tuple[int, ...] | None = (start,)
        while cycle is not None and work.spend():
            num_workers = min(most, sum(room.slots[a] for a in cycle))
            for choice in _choices(problem, graph, room, cycle, num_workers):
                yield choice
                best = choice if best is None or choice.step_s < best.step_s else best
            cycle = _grown(seconds, cycle, room.slots) if num_workers < most else None
    if best is not None and best.walk is not None:
        yield from _thinned(problem, graph, room, best.walk.visits, work)


def _thinned(problem: Problem, graph: RegionGraph, room: Room, visits: tuple[int, ...], work: Work) -> Iterator[Choice]:
    """The ring without its slower machines, for a few speeds."""
    speeds = room.fastest(visits)
    counts = sorted({len([speed for speed in speeds if speed >= slowest]) for slowest in set(speeds)})
    for num_workers in counts[:: -(-len(counts) // NUM_SPEEDS)]:
        if num_workers <= problem.max_workers and work.spend():
            yield from _choices(problem, graph, room, visits, num_workers)


def _choices(
    problem: Problem, graph: RegionGraph, room: Room, cycle: tuple[int, ...], num_workers: int
) -> Iterator[Choice]:
    """The fastest workers of the cycle's regions in a ring through them, in each number of buckets."""
    if num_workers < max(2, problem.workload.min_workers):
        return
    shares = Shares(problem, num_workers)
    compute_s = least_compute_s(shares, room.fastest(cycle))
    demand = room.demand(shares, compute_s)
    if not satisfies(demand, dict.fromkeys(cycle, 1), frozenset(cycle)):
        return
    for num_buckets in NUM_BUCKETS:
        size = size_of(problem, shares, num_buckets)
        choice = in_ring(shares, size, compute_s, _walk(graph, size.ring, demand, cycle))
        if choice.step_s < float("inf"):
            yield choice


def _walk(graph: RegionGraph, ring: Ring, demand: Demand, cycle: tuple[int, ...]) -> Walk:
    if len(cycle) == 1:
        return Walk(cycle, graph.edge_s(ring, cycle[0], cycle[0], 1), frozenset(cycle))
    return walk_of(graph, ring, demand, cycle)


def _grown(seconds: Matrix, cycle: tuple[int, ...], slots: Sequence[int]) -> tuple[int, ...] | None:
    """The cycle with one more region where its slower new edge is fastest, ties to the roomier; None without any.

    >>> _grown([[9, 5, 1], [5, 9, 5], [1, 5, 9]], (0,), slots=[1, 1, 1])
    (0, 2)
    """
    found = [
        (max(seconds[here][new], seconds[new][cycle[(place + 1) % len(cycle)]]), -slots[new], new, place + 1)
        for new in range(len(slots))
        if new not in cycle and slots[new]
        for place, here in enumerate(cycle)
    ]
    worst_s, _, new, place = min(found, default=(float("inf"), 0, 0, 0))
    return None if worst_s == float("inf") else (*cycle[:place], new, *cycle[place:])
