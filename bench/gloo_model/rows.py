"""The all-reduces measured with gloo over cubic, beside the checkout -> one row each with its predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hulk_placement.cost.gloo import cut_ring
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group, Sharing
from hulk_placement.topology import Link, Machine, Topology

from bench.allreduce.case import Case
from bench.allreduce.gloo_orders import INSIDE_BYTES_PER_S, INSIDE_RTT_S
from bench.allreduce.profiles import MTU
from bench.data import ALLREDUCES
from bench.gloo_model.events import Collective, simulate

HEADER_BYTES = 52
"""Of a packet: IP, TCP and its timestamps."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case. `fill`: the burst of the fullest link, in buffers."""

    profile: str
    order: tuple[str, ...]
    num_bytes: int
    measured_s: float
    predicted_s: float
    simulated_s: float
    fill: float

    @property
    def fits(self) -> bool:
        """Whether the bursts of all edges fit the buffers."""
        return self.fill <= 1

    @property
    def error(self) -> float:
        """Of the closed form."""
        return self.predicted_s / self.measured_s - 1


@cache
def topology(profile: str) -> Topology:
    """Three regions of two nodes over a profile's links, as TCP payload rates."""
    case = Case(profile, (2, 2, 2))
    names = [name.upper() for name in case.region_names]
    links = {
        (names[a], names[b]): Link(one_way_s + case.links[b, a][1], rate)
        for (a, b), (rate, one_way_s) in case.links.items()
    }
    links |= {(name, name): Link(INSIDE_RTT_S, INSIDE_BYTES_PER_S) for name in names}
    return Topology(tuple(Machine(name + i, name) for name in names for i in "01"), region_links=links)


def rows(table: Path = ALLREDUCES) -> list[Row]:
    """All measured rows."""
    with table.open() as file:
        return list(_rows(csv.DictReader(file)))


def _rows(table: csv.DictReader[str]) -> Iterator[Row]:
    for row in table:
        if row["congestion_control"] != "cubic":
            continue
        order, num_bytes, links = tuple(row["rank_order"].split()), int(row["num_bytes"]), topology(row["profile"])
        yield Row(
            row["profile"],
            order,
            num_bytes,
            float(row["median_s"]),
            ring_times([Group(order, num_bytes)], links)[0].seconds,
            simulate([Collective(order, num_bytes)], links)[0],
            fill(order, num_bytes, links, float(row["router_buffer_s"])),
        )


def fill(order: Sequence[str], num_bytes: int, links: Topology, buffer_s: float) -> float:
    """The largest part of a buffer that the bursts of all edges on a link take: two segments of each."""
    group = Group(tuple(order), num_bytes)
    burst_bytes = 2 * cut_ring(num_bytes, len(order), 1).segment_bytes
    sharing = Sharing([group.edges()], links)
    buffered_s = MTU / (MTU - HEADER_BYTES) * buffer_s
    between = [pair for pair, link in sharing.links[0].items() if link.shared is not None]
    return max(users[0] * burst_bytes / (rate * buffered_s) for pair in between for rate, users in sharing.on(pair))
