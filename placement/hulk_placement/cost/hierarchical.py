"""All-reduces over gloo in two levels: sum inside each region, a ring between regions, hand out inside each region.

A region's members reduce to one of them, which alone sends over the WAN and broadcasts. Regions are ringed in the order
in which the group's machines first name them. Inside, as torch does it over gloo: a reduce is half a ring all-reduce
and a gather, a broadcast a binomial tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_placement.cost.gloo import SOFTWARE_S
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group, GroupTime
from hulk_placement.topology import Topology


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Two levels over gloo."""


def hierarchical_times(groups: Sequence[Group], topology: Topology) -> tuple[GroupTime, ...]:
    """What each group takes in two levels; all groups' rings between regions run at the same time."""
    regions = {group: by_region(group, topology) for group in dict.fromkeys(groups)}  # of tensor ranks many are equal
    between = ring_times([leaders(group, regions[group]) for group in groups], topology)
    times = {}
    for group, time in dict(zip(groups, between, strict=True)).items():
        inside = [inside_seconds(names, group.num_bytes, topology) for names in regions[group]]
        seconds = time.seconds + sum(max(side) for side in zip(*inside, strict=True))
        times[group] = GroupTime(seconds, time.worst)
    return tuple(times[group] for group in groups)


def leaders(group: Group, regions: Sequence[Sequence[str]]) -> Group:
    """One member of each region, which sum what the group does."""
    return Group(tuple(names[0] for names in regions), group.num_bytes, group.num_buckets)


def by_region(group: Group, topology: Topology) -> list[list[str]]:
    """The group's machines in each of its regions."""
    regions: dict[str, list[str]] = {}
    for name in group.machines:
        regions.setdefault(topology.machine(name).region, []).append(name)
    return list(regions.values())


def inside_seconds(names: list[str], num_bytes: int, topology: Topology) -> tuple[float, float]:
    """Seconds inside a region, before the rings between regions and after them."""
    if len(names) < 2:
        return 0.0, 0.0
    ring_s = ring_times([Group(tuple(names), num_bytes)], topology)[0].seconds
    links = [topology.link(name, names[0]) for name in names[1:]]
    round_trip_s = max(link.rtt_s for link in links) + SOFTWARE_S
    all_s = num_bytes / min(link.bandwidth_bytes_per_s for link in links)
    gather_s = round_trip_s + all_s * (len(names) - 1) / len(names)
    broadcast_s = math.ceil(math.log2(len(names))) * (round_trip_s + all_s)
    return ring_s / 2 + gather_s, broadcast_s
