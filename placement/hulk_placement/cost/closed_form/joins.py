"""What lies between the machines of one search, as arrays: of regions (R), of places (Q) with links of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hulk_placement.cost.closed_form.arrays import Bools, Floats, Ints
from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology
from hulk_placement.workload import Workload


class Joins(NamedTuple):
    """The arrays of a `Setting` that say what links carry; links that the workload may not use have rate 0."""

    latency_QQ: Floats
    flow_QQ: Floats
    own_QQ: Floats
    is_wire_QQ: Bools
    latency_RR: Floats
    round_trip_RR: Floats
    flow_RR: Floats
    capacity_RR: Floats
    carried_RR: Floats
    uplink_R: Floats
    egress_RR: Floats

    @classmethod
    def of(cls, workload: Workload, topology: Topology, regions: Sequence[str], apart: Sequence[Machine]) -> Joins:
        """The joins of these regions, and of the machines in them that have links of their own."""
        links = [[topology.region_link(a, b) for b in regions] for a in regions]
        latency_RR, round_trip_RR, flow_RR = _figures(links, workload)
        capacity_RR = np.array([[link.bandwidth_bytes_per_s for link in row] for row in links], np.float64)
        of_regions = latency_RR, flow_RR, _own(capacity_RR)
        latency_QQ, flow_QQ, own_QQ = _with_own_links(of_regions, workload, topology, regions, apart)
        prices = topology.egress_price_per_gb
        return cls(
            latency_QQ,
            flow_QQ,
            own_QQ,
            _wires(topology, len(regions), apart),
            latency_RR,
            round_trip_RR,
            flow_RR,
            capacity_RR,
            carried_RR=np.array([[topology.capacity((a, b)) for b in regions] for a in regions], np.float64),
            uplink_R=np.array([topology.uplinks.get(name, math.inf) for name in regions], np.float64),
            egress_RR=np.array([[prices.get((a, b), 0.0) / 1e9 for b in regions] for a in regions]),
        )

    def part(self, regions: Ints) -> Joins:
        """Those of some of the regions, where no machine has links of its own."""
        both = np.ix_(regions, regions)
        latency_RR, flow_RR, egress_RR = (
            np.ascontiguousarray(array[both]) for array in (self.latency_RR, self.flow_RR, self.egress_RR)
        )
        round_trip_RR, capacity_RR, carried_RR = (
            np.ascontiguousarray(array[both]) for array in (self.round_trip_RR, self.capacity_RR, self.carried_RR)
        )
        of_regions = (latency_RR, round_trip_RR, flow_RR, capacity_RR, carried_RR)
        is_wire_RR = np.zeros_like(latency_RR, np.bool_)
        return Joins(latency_RR, flow_RR, _own(capacity_RR), is_wire_RR, *of_regions, self.uplink_R[regions], egress_RR)


def apart(topology: Topology, machines: Iterable[Machine], pairs: Iterable[Pair]) -> list[Machine]:
    """The machines that have figures of their own: one of these pairs' links, or a NIC narrower than their region's."""
    own = {name for pair in pairs for name in pair}
    regions = list(dict.fromkeys(machine.region for machine in topology.machines))
    widest = {
        a: max(max(topology.region_link(*pair).bandwidth_bytes_per_s for pair in ((a, b), (b, a))) for b in regions)
        for a in {machine.region for machine in topology.machines if machine.nic_bytes_per_s}
    }
    return [
        machine
        for machine in machines
        if machine.name in own or (machine.nic_bytes_per_s or math.inf) < widest.get(machine.region, 0.0)
    ]


def _own(capacity_RR: Floats) -> Floats:
    """`own_QQ` of regions: two machines have a link to themselves inside one."""
    return np.where(np.eye(len(capacity_RR), dtype=np.bool_), capacity_RR, math.inf)


def _with_own_links(
    figures: tuple[Floats, Floats, Floats],
    workload: Workload,
    topology: Topology,
    regions: Sequence[str],
    apart: Sequence[Machine],
) -> tuple[Floats, Floats, Floats]:
    """The figures of places: those of their regions, but where two machines have a link of their own."""
    number = {region: number for number, region in enumerate(regions)}
    region_Q = [*number.values(), *(number[machine.region] for machine in apart)]
    both = np.ix_(region_Q, region_Q)
    latency_QQ, flow_QQ, own_QQ = (np.ascontiguousarray(array_RR[both]) for array_RR in figures)
    place = {machine.name: place for place, machine in enumerate(apart, len(regions))}
    nic_Q = np.array([math.inf] * len(regions) + [machine.nic_bytes_per_s or math.inf for machine in apart])
    nic_QQ = np.minimum(nic_Q, nic_Q[:, None])
    flow_QQ = np.minimum(flow_QQ, nic_QQ)
    own_QQ = np.where(own_QQ < math.inf, np.minimum(own_QQ, nic_QQ), math.inf)
    for source, target in topology.node_links:
        if source in place and target in place and source != target:
            link, own = topology.link(source, target), (place[source], place[target])
            latency_QQ[own], flow_QQ[own] = link.latency_s, _rate(link, workload)
            own_QQ[own] = link.bandwidth_bytes_per_s
    return latency_QQ, flow_QQ, own_QQ


def _wires(topology: Topology, num_regions: int, apart: Sequence[Machine]) -> Bools:
    """By pair of places whether two machines have a wire to themselves."""
    place = {machine.name: place for place, machine in enumerate(apart, num_regions)}
    is_wire_QQ = np.zeros((num_regions + len(apart),) * 2, np.bool_)
    for (source, target), link in topology.node_links.items():
        if link.own_wire and source in place and target in place:
            is_wire_QQ[place[source], place[target]] = True
    return is_wire_QQ


def _rate(link: Link, workload: Workload) -> float:
    """Bytes a second that one flow gets; 0 where the workload may not use the link."""
    usable = workload.allow_unknown_links or link.kind is not LinkKind.UNKNOWN
    return link.one_flow_bytes_per_s if usable else 0.0


def _figures(links: list[list[Link]], workload: Workload) -> tuple[Floats, Floats, Floats]:
    """Of each pair the seconds one way, those there and back, and the bytes a second that one flow gets."""
    return (
        np.array([[link.latency_s for link in row] for row in links], np.float64),
        np.array([[link.rtt_s for link in row] for row in links], np.float64),
        np.array([[_rate(link, workload) for link in row] for row in links], np.float64),
    )
