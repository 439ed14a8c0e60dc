"""How fast links must at least be for a ring of so many workers: a bound that enumerates no ring.

Under a limit the usable links join some regions both ways. A ring runs only within one such group, so there must be a
group with room for all workers; the least limit at which there is one, no ring goes below.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from hulk_placement.cost.gloo import Ring
from hulk_placement.search.ring.region_graph import RegionGraph

Matrix = Sequence[Sequence[float]]


def edge_seconds(graph: RegionGraph, ring: Ring) -> Matrix:
    """Seconds of the ring if one edge from region a to region b is its worst, both regions' uplinks counted."""
    regions = range(len(graph))
    uplink_s = [ring.uplink_s(graph.uplink[a], 1) if graph.uplink[a] else 0.0 for a in regions]
    return [
        [float("inf") if a == b else max(graph.edge_s(ring, a, b, 1), uplink_s[a], uplink_s[b]) for b in regions]
        for a in regions
    ]


def joining_s(graph: RegionGraph, ring: Ring, slots: Sequence[int], num_workers: int, below_s: float) -> float:
    """The least seconds at which links join room for so many workers; `below_s` where that is more."""
    alone = [graph.edge_s(ring, a, a, 1) for a, room in enumerate(slots) if room >= num_workers]
    most = min([*alone, below_s])
    seconds = edge_seconds(graph, ring)
    values = sorted({value for row in seconds for value in row if value < most})
    if not values or not _joined(seconds, slots, num_workers, values[-1]):
        return most
    return values[
        bisect.bisect_left(values, True, 0, len(values) - 1, key=lambda s: _joined(seconds, slots, num_workers, s))
    ]


def _joined(seconds: Matrix, slots: Sequence[int], num_workers: int, limit_s: float) -> bool:
    """Whether links within the limit join two or more regions with so much room, each to each."""
    regions = range(len(slots))
    ahead = [sum(1 << b for b in regions if seconds[a][b] <= limit_s) for a in regions]
    behind = [sum(1 << a for a in regions if ahead[a] >> b & 1) for b in regions]
    left = (1 << len(slots)) - 1
    while left:
        first = left & -left
        group = _reached(ahead, first) & _reached(behind, first)
        if group != first and sum(room for a, room in enumerate(slots) if group >> a & 1) >= num_workers:
            return True
        left &= ~group
    return False


def _reached(links: Sequence[int], origin: int) -> int:
    """The regions, as bits, that links lead to from those of `origin`."""
    seen = todo = origin
    while todo:
        region = todo & -todo
        new = links[region.bit_length() - 1] & ~seen
        seen |= new
        todo = todo & ~region | new
    return seen
