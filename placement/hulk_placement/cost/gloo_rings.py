"""gloo's rings of several groups at the same time: the closed form of one edge, with what all of them share.

An edge waits for all bytes that cross its link and its regions' uplinks, those of other groups too; a flow that gets
less than its link holds back its own edge alone. Of a group's buckets two are under way at a time: equal ones begin and
end in pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hulk_placement.cost.gloo import AT_A_TIME, Ring, cut_ring
from hulk_placement.cost.groups import Group, GroupTime, Sharing, weighted
from hulk_placement.topology import Link, Pair, Topology


def ring_times(groups: Sequence[Group], topology: Topology) -> tuple[GroupTime, ...]:
    """What each group's ring all-reduce takes; all begin together.

    One rank sends nothing: 0 seconds and no edge. KeyError when a group names a machine that the topology lacks.
    """
    pairs = _at_once([_part(group, AT_A_TIME) for group in groups], topology)
    if all(group.num_buckets <= AT_A_TIME for group in groups):
        return pairs
    lasts = _at_once([_part(group, group.num_buckets % AT_A_TIME or 1) for group in groups], topology)
    return tuple(
        _in_turn(pair, group.num_buckets // AT_A_TIME, last if group.num_buckets % AT_A_TIME else None)
        if group.num_buckets > AT_A_TIME
        else pair
        for group, pair, last in zip(groups, pairs, lasts, strict=True)
    )


def _part(group: Group, num_buckets: int) -> Group:
    """So many of a group's buckets; the group where it has no more."""
    if group.num_buckets <= num_buckets:
        return group
    num_bytes = math.ceil(group.num_bytes / group.num_buckets) * num_buckets
    return replace(group, num_bytes=num_bytes, num_buckets=num_buckets)


def _in_turn(pair: GroupTime, num_pairs: int, last: GroupTime | None) -> GroupTime:
    """So many pairs of buckets, and what is left."""
    return GroupTime(num_pairs * pair.seconds + (0.0 if last is None else last.seconds), pair.worst)


def _at_once(groups: Sequence[Group], topology: Topology) -> tuple[GroupTime, ...]:
    """What each takes with all of its buckets at the same time; equal ones, as of tensor-parallel ranks, are one."""
    nums = Counter(groups)
    rings = [
        replace(cut_ring(g.num_bytes, max(2, len(g.machines)), g.num_buckets), is_exchange=g.is_exchange) for g in nums
    ]
    edges = [Counter({pair: num * count for pair, count in group.edges().items()}) for group, num in nums.items()]
    shared = _Shared(rings, Sharing(edges, topology))
    times = {group: shared.group_time(number) for number, group in enumerate(nums)}
    return tuple(times[group] for group in groups)


class _Shared:
    """All rings, and what they share."""

    def __init__(self, rings: Sequence[Ring], sharing: Sharing) -> None:
        self.rings, self.sharing = rings, sharing
        self.edge_bytes = [ring.edge_bytes for ring in rings]

    def group_time(self, number: int) -> GroupTime:
        links = self.sharing.links[number]
        if not links:
            return GroupTime(0.0, None)
        alike = {pair: self._alike(pair, link) for pair, link in links.items()}
        times = {key: self.edge_time(number, pair) for key, pair in {key: pair for pair, key in alike.items()}.items()}
        seconds = max(times.values())
        slowest = (pair for pair in links if times[alike[pair]] == seconds)
        worst = min(slowest, key=lambda pair: (-links[pair].rtt_s, pair))
        return GroupTime(seconds, worst)

    def _alike(self, pair: Pair, link: Link) -> tuple[int, ...]:
        """The same for pairs whose edges take the same time: they inherit one link, and share it as much."""
        users = [counts for _, found in self.sharing.on(pair) for counts in found.items()]
        return id(link), *(number for counts in users for number in counts)

    def edge_time(self, number: int, pair: Pair) -> float:
        """Seconds if this edge is the worst."""
        ring, link = self.rings[number], self.sharing.links[number][pair]
        num_sharing = self.sharing.num_on_link(number, pair, self.edge_bytes)
        way_s = 2 * link.latency_s if ring.is_exchange else link.rtt_s
        seconds = ring.edge_s(way_s, link.bandwidth_bytes_per_s, num_sharing, link.flow_bytes_per_s)
        for bytes_per_s, crossing in self.sharing.through(link):
            seconds = max(seconds, ring.uplink_s(bytes_per_s, weighted(crossing, self.edge_bytes, number)))
        return seconds
