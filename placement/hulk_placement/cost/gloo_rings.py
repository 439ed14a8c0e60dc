"""gloo's rings of several groups at the same time: the closed form of one edge, with what all of them share.

An edge waits for all bytes that cross its link and its regions' uplinks, those of other groups too; a flow that gets
less than its link holds back its own edge alone. Where bursts of all edges on a link do not fit the router's buffer,
TCP repeats what it lost, and the time is a range. Of a group's buckets two are under way at a time: equal ones begin
and end in pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hulk_placement.cost.gloo import AT_A_TIME, CUBIC, OVERFLOW, Gloo, Ring, cut_ring
from hulk_placement.cost.groups import Group, GroupTime, Sharing, exactly, weighted
from hulk_placement.cost.idle import restart_s
from hulk_placement.topology import Link, Pair, Topology


def ring_times(
    groups: Sequence[Group], topology: Topology, transport: Gloo = CUBIC, silence_s: float = 0.0
) -> tuple[GroupTime, ...]:
    """What each group's ring all-reduce takes; all begin together, after connections were silent for `silence_s`.

    One rank sends nothing: 0 seconds and no edge. KeyError when a group names a machine that the topology lacks.
    """
    firsts = _at_once([_part(group, AT_A_TIME) for group in groups], topology, transport, silence_s)
    if all(group.num_buckets <= AT_A_TIME for group in groups):
        return firsts
    pairs = _at_once([_part(group, AT_A_TIME) for group in groups], topology, transport) if silence_s else firsts
    lasts = _at_once([_part(group, group.num_buckets % AT_A_TIME or 1) for group in groups], topology, transport)
    return tuple(
        _in_turn(first, group.num_buckets // AT_A_TIME - 1, pair, last if group.num_buckets % AT_A_TIME else None)
        if group.num_buckets > AT_A_TIME
        else first
        for group, first, pair, last in zip(groups, firsts, pairs, lasts, strict=True)
    )


def _part(group: Group, num_buckets: int) -> Group:
    """So many of a group's buckets; the group where it has no more."""
    if group.num_buckets <= num_buckets:
        return group
    num_bytes = math.ceil(group.num_bytes / group.num_buckets) * num_buckets
    return replace(group, num_bytes=num_bytes, num_buckets=num_buckets)


def _in_turn(first: GroupTime, num_more: int, pair: GroupTime, last: GroupTime | None) -> GroupTime:
    """A first pair of buckets, as many more, and what is left."""
    left = () if last is None else (last,)
    return GroupTime(
        first.seconds + num_more * pair.seconds + sum(time.seconds for time in left),
        first.worst,
        first.low_s + num_more * pair.low_s + sum(time.low_s for time in left),
        first.high_s + num_more * pair.high_s + sum(time.high_s for time in left),
    )


def _at_once(
    groups: Sequence[Group], topology: Topology, transport: Gloo, silence_s: float = 0.0
) -> tuple[GroupTime, ...]:
    """What each takes with all of its buckets at the same time."""
    rings = [
        replace(cut_ring(g.num_bytes, max(2, len(g.machines)), g.num_buckets, transport), is_exchange=g.is_exchange)
        for g in groups
    ]
    shared = _Shared(rings, Sharing([group.edges() for group in groups], topology), silence_s)
    return tuple(shared.group_time(number) for number in range(len(groups)))


class _Shared:
    """All rings, and what they share."""

    def __init__(self, rings: Sequence[Ring], sharing: Sharing, silence_s: float) -> None:
        self.rings, self.sharing, self.silence_s = rings, sharing, silence_s
        self.edge_bytes = [ring.edge_bytes for ring in rings]

    def group_time(self, number: int) -> GroupTime:
        links = self.sharing.links[number]
        if not links:
            return exactly(0.0, None)
        alike = {pair: self._alike(pair, link) for pair, link in links.items()}
        times = {key: self.edge_time(number, pair) for key, pair in {key: pair for pair, key in alike.items()}.items()}
        low_s, seconds, high_s = (max(found) for found in zip(*times.values(), strict=True))
        slowest = (pair for pair in links if times[alike[pair]][1] == seconds)
        worst = min(slowest, key=lambda pair: (-links[pair].rtt_s, pair))
        return GroupTime(seconds, worst, low_s, high_s)

    def _alike(self, pair: Pair, link: Link) -> tuple[int, ...]:
        """The same for pairs whose edges take the same time: they inherit one link, and share it as much."""
        users = [counts for _, found in self.sharing.on(pair) for counts in found.items()]
        return id(link), *(number for counts in users for number in counts)

    def edge_time(self, number: int, pair: Pair) -> tuple[float, float, float]:
        """Least, usual and most seconds if this edge is the worst."""
        ring, link = self.rings[number], self.sharing.links[number][pair]
        num_sharing = self.sharing.num_on_link(number, pair, self.edge_bytes)
        way_s = 2 * link.latency_s if ring.is_exchange else link.rtt_s
        seconds = ring.edge_s(way_s, link.bandwidth_bytes_per_s, num_sharing, link.flow_bytes_per_s)
        for bytes_per_s, crossing in self.sharing.through(link):
            seconds = max(seconds, ring.uplink_s(bytes_per_s, weighted(crossing, self.edge_bytes, number)))
        seconds += restart_s(link, ring.burst_bytes, ring.transport, self.silence_s)
        if not any(ring.transport.is_overflowing(self._burst(users), rate) for rate, users in self.sharing.on(pair)):
            return seconds, seconds, seconds
        extra, trip_s = OVERFLOW[ring.transport.congestion_control], ring.overflow_s(link.rtt_s)
        return seconds + extra.least * trip_s, seconds + extra.usual * trip_s, seconds + extra.most * trip_s

    def _burst(self, users: Counter[int]) -> float:
        """Bytes that the edges on a link send at once, together."""
        return sum(count * self.rings[group].burst_bytes for group, count in users.items())
