"""What lies between the machines of one search, as arrays: of regions (R), of places (Q) with links of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hulk_placement.workload import Workload

Place = tuple[str, str | None]
"""A region, and the machine in it that has links of its own; None stands for the others."""


class Joins(NamedTuple):
    """The arrays of a `Setting` that say what links carry; links that the workload may not use have rate 0."""

    latency_QQ: Floats
    flow_QQ: Floats
    latency_RR: Floats
    round_trip_RR: Floats
    flow_RR: Floats
    capacity_RR: Floats
    uplink_R: Floats
    egress_RR: Floats

    @classmethod
    def of(cls, workload: Workload, topology: Topology, regions: Sequence[str], apart: Sequence[Machine]) -> Joins:
        """The joins of these regions, and of the machines in them that have links of their own."""

        def between(a: Place, b: Place) -> Link:
            if a[1] is not None and b[1] is not None and a != b:
                return topology.link(a[1], b[1])
            return topology.region_link(a[0], b[0])

        regional: list[Place] = [(name, None) for name in regions]
        places = regional + [(machine.region, machine.name) for machine in apart]
        links = [[between(a, b) for b in regional] for a in regional]
        of_regions = _figures(links, workload)
        own = _figures([[between(a, b) for b in places] for a in places], workload) if apart else of_regions
        prices = topology.egress_price_per_gb
        return cls(
            own[0],
            own[2],
            *of_regions,
            capacity_RR=np.array([[link.bandwidth_bytes_per_s for link in row] for row in links], np.float64),
            uplink_R=np.array([topology.uplinks.get(name, math.inf) for name in regions], np.float64),
            egress_RR=np.array([[prices.get((a, b), 0.0) / 1e9 for b in regions] for a in regions]),
        )

    def part(self, regions: Ints) -> Joins:
        """Those of some of the regions, where no machine has links of its own."""
        both = np.ix_(regions, regions)
        latency_RR, round_trip_RR, flow_RR, capacity_RR, egress_RR = (
            np.ascontiguousarray(array[both])
            for array in (self.latency_RR, self.round_trip_RR, self.flow_RR, self.capacity_RR, self.egress_RR)
        )
        of_regions = (latency_RR, round_trip_RR, flow_RR)
        return Joins(latency_RR, flow_RR, *of_regions, capacity_RR, self.uplink_R[regions], egress_RR)


def _figures(links: list[list[Link]], workload: Workload) -> tuple[Floats, Floats, Floats]:
    """Of each pair the seconds one way, those there and back, and the bytes a second that one flow gets."""

    def rate(link: Link) -> float:
        usable = workload.allow_unknown_links or link.kind is not LinkKind.UNKNOWN
        return link.one_flow_bytes_per_s if usable else 0.0

    return (
        np.array([[link.latency_s for link in row] for row in links], np.float64),
        np.array([[link.rtt_s for link in row] for row in links], np.float64),
        np.array([[rate(link) for link in row] for row in links], np.float64),
    )
