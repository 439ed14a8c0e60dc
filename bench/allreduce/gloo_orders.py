"""Links and ranks -> the order in which gloo's ring is quickest, by the planner's own closed form.

Every ring is tried that differs from the others on the network: nodes of a region are alike, so a ring is its cyclic
pattern of regions, and its direction counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hulk_placement.cost.gloo import cut_ring

Pair = tuple[int, int]
LinkOf = Mapping[Pair, tuple[float, float]]
"""Bytes/s and one-way seconds by directed region pair."""

INSIDE_RTT_S = 0.0002
INSIDE_BYTES_PER_S = 1e9
"""Between nodes of one region: a bridge on this machine."""


def best_order(regions: Sequence[Sequence[int]], links: LinkOf, num_bytes: int) -> tuple[int, ...]:
    """Ranks in the quickest ring; `regions` are the ranks of each."""
    pattern = min(patterns([len(ranks) for ranks in regions]), key=lambda found: ring_s(found, links, num_bytes))
    left = [list(ranks) for ranks in regions]
    return tuple(left[region].pop(0) for region in pattern)


def ring_s(pattern: Sequence[int], links: LinkOf, num_bytes: int) -> float:
    """Seconds of gloo's all-reduce over a ring of nodes in these regions; data flow to the one before."""
    ring = cut_ring(num_bytes, len(pattern), num_buckets=1)
    edges = [(pattern[i], pattern[i - 1]) for i in range(len(pattern))]
    worst = 0.0
    for source, target in set(edges):
        if source == target:
            worst = max(worst, ring.edge_s(INSIDE_RTT_S, INSIDE_BYTES_PER_S, 1))
        else:
            rate, there_s = links[source, target]
            rtt_s = there_s + links[target, source][1]
            worst = max(worst, ring.edge_s(rtt_s, rate, edges.count((source, target))))
    return worst


def patterns(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Cyclic patterns of so many nodes of each region, begun with region 0 (some more than once, where it repeats).

    >>> list(patterns([1, 2]))
    [(0, 1, 1)]
    >>> list(patterns([1, 1, 1]))
    [(0, 1, 2), (0, 2, 1)]
    """
    left = list(counts)

    def rest(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == sum(counts):
            yield chosen
        for region in range(len(left)):
            if left[region]:
                left[region] -= 1
                yield from rest((*chosen, region))
                left[region] += 1

    left[0] -= 1
    yield from rest((0,))
