"""The ring over so many of a handful of machines whose slowest edge is quickest: dynamic programming over sets.

Held and Karp's recurrence (1962), for the slowest edge in place of the sum: a path through a set of slots may end at a
slot if one through the set without it ends where a quick enough edge leads to it. Of every set that is kept as one
number, a bit for each such end. How quick an edge must be is found by bisection. Edges are counted as alone on their
links, so no ring is quicker, and where none meet this one is the best.
"""

from __future__ import annotations

from collections.abc import Sequence

from hulk_placement.cost.gloo import Ring
from hulk_placement.search.ring.machines import MachineGraph
from hulk_placement.search.ring.region_graph import Work

MAX_SLOTS = 12
"""Up to this many worker slots there are few enough sets, 2 ** 12 of them, for a few hundredths of a second."""

SETS_AN_ITERATION = 16
"""Of which so many take about as long as one iteration of other searches."""

Path = tuple[int, ...]


def quickest_ring(
    graph: MachineGraph, ring: Ring, num_workers: int, below_s: float, work: Work
) -> tuple[Path, float] | None:
    """The machines in rank order, and the seconds of the slowest edge; None where none is below `below_s`.

    Two workers or more, of at most `MAX_SLOTS` slots. None too when the work runs out, which `work.exhausted` says.
    """
    slots = [machine for machine, num in enumerate(graph.num_slots) for _ in range(num)]
    alone_s = [[graph.alone_s(ring, a, b) for b in slots] for a in slots]
    values = sorted({value for row in alone_s for value in row if value < below_s})
    found: Path | None = None
    low, high = 0, len(values)
    middle = high - 1
    while low < high and work.spend(1 + (1 << len(slots)) // SETS_AN_ITERATION):
        path = _ring(alone_s, num_workers, values[middle])
        if path is None:
            low = middle + 1
        else:
            found, high = path, middle
        middle = (low + high) // 2
    if found is None or work.exhausted:
        return None
    return tuple(slots[slot] for slot in reversed(found)), values[high]


def _ring(alone_s: Sequence[Sequence[float]], num_workers: int, limit_s: float) -> Path | None:
    """Slots in the order of the data, none of whose edges takes longer than the limit; from the lowest slot on."""
    slots = range(len(alone_s))
    before = [sum(1 << a for a in slots if a != b and alone_s[a][b] <= limit_s) for b in slots]
    ends = [0] * (1 << len(slots))
    for used in range(1, len(ends)):
        if used & (used - 1) == 0:
            ends[used] = used
        if not ends[used]:
            continue
        first = (used & -used).bit_length() - 1
        if used.bit_count() == num_workers:
            if ends[used] & before[first]:
                return _path(ends, before, used, ends[used] & before[first])
            continue
        for slot in slots[first + 1 :]:
            if not used >> slot & 1 and before[slot] & ends[used]:
                ends[used | 1 << slot] |= 1 << slot
    return None


def _path(ends: Sequence[int], before: Sequence[int], used: int, last: int) -> Path:
    """A path through all of the set that ends at one of `last`."""
    path: list[int] = []
    while used:
        slot = (last & -last).bit_length() - 1
        path.append(slot)
        used &= ~(1 << slot)
        last = ends[used] & before[slot]
    return tuple(reversed(path))
