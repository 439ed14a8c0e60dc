"""The region graph of a problem: what the ring search over regions may count on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hulk_placement.cost.drawn import Shared, drawn_on
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.machines import Edge, MachineGraph
from hulk_placement.search.ring.region_graph import RegionGraph
from hulk_placement.topology import Link, LinkKind, Pair

Figures = tuple[float, float, float]
"""Round trip in seconds, bytes/s of the link, and of it what one flow gets."""


@dataclass(frozen=True, slots=True)
class Graphs:
    """`typical` has what a machine pair inherits; `optimistic` the best of any pair of each two regions.

    No ring over machines is faster than the same ring on `optimistic`. Where both are equal, the best walk over regions
    is the best ring over machines.
    """

    typical: RegionGraph
    optimistic: RegionGraph

    @property
    def alike(self) -> bool:
        """Whether all machines of a region are the same to the ring."""
        return self.typical == self.optimistic


def region_graphs(problem: Problem) -> Graphs:
    """Both graphs of the problem's regions. A link that may not be used has bandwidth 0."""
    typical, optimistic = {}, {}
    own, size = _own_links(problem), Counter(problem.region_of)
    for a, source in enumerate(problem.regions):
        for b, target in enumerate(problem.regions):
            inherited = _inside(problem, a) if a == b else problem.topology.region_link(source, target)
            figures = _figures(inherited, problem.workload.allow_unknown_links)
            typical[a, b] = figures
            found = [_figures(link, usable=True) for link in own.get((a, b), ())]
            if len(found) < size[a] * (size[b] - (a == b)) and figures[1]:
                found.append(figures)
            rtts, widths, flows = zip(*found or [figures], strict=True)
            common = problem.topology.capacity((source, target)) if own.get((a, b)) and a != b else 0.0
            optimistic[a, b] = min(rtts), max(common, *widths), max(flows)
    apart = tuple(False for _ in problem.regions)
    roomy = tuple(_has_room_for_two(problem, a) for a in range(len(problem.regions)))
    return Graphs(_graph(problem, typical, apart), _graph(problem, optimistic, roomy))


def _figures(link: Link, usable: bool) -> Figures:
    if link.kind is LinkKind.UNKNOWN and not usable:
        return link.rtt_s, 0.0, 0.0
    return link.rtt_s, link.bandwidth_bytes_per_s, link.one_flow_bytes_per_s


def _inside(problem: Problem, region: int) -> Link:
    """The link inside a region; a region of one machine only has that machine's inside."""
    members = [name for name, of in zip(problem.names, problem.region_of, strict=True) if of == region]
    if len(members) == 1:
        return problem.topology.link(members[0], members[0])
    return problem.topology.region_link(problem.regions[region], problem.regions[region])


def _own_links(problem: Problem) -> dict[tuple[int, int], list[Link]]:
    """Links that were measured or declared for pairs of the problem's machines, by region pair."""
    region = dict(zip(problem.names, problem.region_of, strict=True))
    own: dict[tuple[int, int], list[Link]] = {}
    for (source, target), link in problem.topology.node_links.items():
        if source in region and target in region and source != target:
            own.setdefault((region[source], region[target]), []).append(link)
    return own


def _has_room_for_two(problem: Problem, region: int) -> bool:
    slots = zip(problem.num_slots, problem.region_of, strict=True)
    return any(num > 1 for num, of in slots if of == region)


def _graph(problem: Problem, figures: dict[tuple[int, int], Figures], roomy: tuple[bool, ...]) -> RegionGraph:
    size = range(len(problem.regions))
    rtt_s, bandwidth, flow = (tuple(tuple(figures[a, b][k] for b in size) for a in size) for k in range(3))
    return RegionGraph(
        rtt_s=rtt_s,
        bandwidth=bandwidth,
        flow=flow,
        uplink=tuple(problem.topology.uplinks.get(region, 0.0) for region in problem.regions),
        roomy=roomy,
    )


def machine_graph(problem: Problem) -> MachineGraph:
    """The graph of the problem's machines: every pair's own link."""
    numbers = range(len(problem.names))
    numbered: dict[Shared, int] = {}

    def edge(a: int, b: int) -> Edge | None:
        ends = problem.names[a], problem.names[b]
        link = problem.topology.link(*ends)
        if link.kind is LinkKind.UNKNOWN and not problem.workload.allow_unknown_links:
            return None
        found = drawn_on(*ends, problem.topology) if link.shared is not None or _has_nic(problem, ends) else ()
        drawn = tuple((numbered.setdefault(shared, len(numbered)), rate) for shared, rate in found)
        return Edge(link.rtt_s, link.bandwidth_bytes_per_s, link.one_flow_bytes_per_s, drawn)

    return MachineGraph(
        edges=tuple(tuple(edge(a, b) for b in numbers) for a in numbers),
        num_slots=problem.num_slots,
        speed=problem.speed,
        classes=_classes(problem),
        region_of=problem.region_of,
        uplink=tuple(problem.topology.uplinks.get(region, 0.0) for region in problem.regions),
    )


def _has_nic(problem: Problem, ends: Pair) -> bool:
    return any(problem.topology.machine(name).nic_bytes_per_s for name in ends)


def _classes(problem: Problem) -> tuple[int, ...]:
    """Machines alike to the ring get one number: same region, room, speed and NIC, and no link of their own."""
    named = {name for pair in problem.topology.node_links for name in pair}
    numbers: dict[tuple[object, ...], int] = {}
    found = []
    for machine, name in enumerate(problem.names):
        nic = problem.topology.machine(name).nic_bytes_per_s
        alike = (problem.region_of[machine], problem.num_slots[machine], problem.speed[machine], nic)
        key = (*alike, name) if name in named else alike
        found.append(numbers.setdefault(key, len(numbers)))
    return tuple(found)


def unknown_pairs(problem: Problem) -> list[Pair]:
    """Pairs of the problem's regions about which nothing is known."""
    known = problem.topology.region_link
    return [(a, b) for a in problem.regions for b in problem.regions if a != b and known(a, b).kind is LinkKind.UNKNOWN]
