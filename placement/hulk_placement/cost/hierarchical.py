"""All-reduces over gloo in two levels: sum inside each region, a ring between regions, hand out inside each region.

With one member a region, its members reduce to one of them, which alone sends over the WAN and broadcasts. With all
members, each takes a share of the bytes: reduce-scatter inside, as many rings side by side, all-gather inside. Regions
are ringed in the order in which the group's machines first name them. Inside, as torch does it over gloo: a reduce is
half a ring all-reduce and a gather, a broadcast a binomial tree, a reduce-scatter a whole ring all-reduce, an
all-gather half of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hulk_placement.cost.gloo import CUBIC, SOFTWARE_S, Gloo
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group, GroupTime
from hulk_placement.topology import Topology


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Two levels over gloo: `members` of each region that send over the WAN."""

    members: Literal["one", "all"] = "one"
    gloo: Gloo = CUBIC


def hierarchical_times(
    groups: Sequence[Group], topology: Topology, transport: Hierarchical, silence_s: float = 0.0
) -> tuple[GroupTime, ...]:
    """What each group takes in two levels; all groups' rings between regions run at the same time.

    "all" makes as many rings as the smallest region has members.
    """
    regions = [by_region(group, topology) for group in groups]
    counts = [1 if transport.members == "one" else min(map(len, found)) for found in regions]
    rings, owners = [], []
    for number, (group, found) in enumerate(zip(groups, regions, strict=True)):
        share_bytes = math.ceil(group.num_bytes / counts[number])
        for member in range(counts[number]):
            rings.append(Group(tuple(names[member] for names in found), share_bytes, group.num_buckets))
            owners.append(number)
    between = list(zip(owners, ring_times(rings, topology, transport.gloo, silence_s), strict=True))
    times = []
    for number, (group, found) in enumerate(zip(groups, regions, strict=True)):
        slowest = max((time for owner, time in between if owner == number), key=lambda time: time.seconds)
        inside = [inside_seconds(names, group.num_bytes, counts[number], topology, transport.gloo) for names in found]
        times.append(_add(slowest, sum(max(side) for side in zip(*inside, strict=True))))
    return tuple(times)


def by_region(group: Group, topology: Topology) -> list[list[str]]:
    """The group's machines in each of its regions."""
    regions: dict[str, list[str]] = {}
    for name in group.machines:
        regions.setdefault(topology.machine(name).region, []).append(name)
    return list(regions.values())


def inside_seconds(
    names: list[str], num_bytes: int, num_leaders: int, topology: Topology, gloo: Gloo
) -> tuple[float, float]:
    """Seconds inside a region, before the rings between regions and after them."""
    if len(names) < 2:
        return 0.0, 0.0
    ring_s = ring_times([Group(tuple(names), num_bytes)], topology, gloo)[0].seconds
    if num_leaders > 1:
        return ring_s, ring_s / 2
    links = [topology.link(name, names[0]) for name in names[1:]]
    round_trip_s = max(link.rtt_s for link in links) + SOFTWARE_S
    all_s = num_bytes / min(link.bandwidth_bytes_per_s for link in links)
    gather_s = round_trip_s + all_s * (len(names) - 1) / len(names)
    broadcast_s = math.ceil(math.log2(len(names))) * (round_trip_s + all_s)
    return ring_s / 2 + gather_s, broadcast_s


def _add(time: GroupTime, seconds: float) -> GroupTime:
    return GroupTime(time.seconds + seconds, time.worst, time.low_s + seconds, time.high_s + seconds)
