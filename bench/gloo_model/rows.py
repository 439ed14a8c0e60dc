"""The measured all-reduces beside the checkout -> one row each with its predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hulk_placement.cost.gloo import HEADER_BYTES, Gloo, cut_ring
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group, GroupTime, Sharing
from hulk_placement.topology import Link, Machine, Topology

from bench.allreduce.case import Case
from bench.allreduce.gloo_orders import INSIDE_BYTES_PER_S, INSIDE_RTT_S
from bench.allreduce.profiles import MTU
from bench.data import ALLREDUCES
from bench.gloo_model.events import Collective, simulate


@dataclass(frozen=True, slots=True)
class Row:
    """One measured case. `fill`: the burst of the fullest link, in buffers; `plain_s` leaves buffers aside."""

    profile: str
    transport: Gloo
    order: tuple[str, ...]
    num_bytes: int
    measured_s: float
    predicted: GroupTime
    plain_s: float
    simulated_s: float
    fill: float

    @property
    def fits(self) -> bool:
        """Whether the bursts of all edges fit the buffers."""
        return self.fill <= 1

    @property
    def error(self) -> float:
        """Of the closed form, buffers left aside."""
        return self.plain_s / self.measured_s - 1

    @property
    def is_within(self) -> bool:
        """Whether the measured median is in the predicted range."""
        return self.predicted.low_s <= self.measured_s <= self.predicted.high_s


@cache
def topology(profile: str, mtu: int = MTU) -> Topology:
    """Three regions of two nodes over a profile's links, as TCP payload rates at this MTU."""
    case = Case(profile, (2, 2, 2))
    names = [name.upper() for name in case.region_names]
    payload = (mtu - HEADER_BYTES) / mtu / ((MTU - HEADER_BYTES) / MTU)
    links = {
        (names[a], names[b]): Link(one_way_s + case.links[b, a][1], rate * payload)
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
        control, buffer_s = row["congestion_control"], float(row["router_buffer_s"])
        transport = Gloo("bbr" if control == "bbr" else "cubic", int(row["mtu"]), buffer_s)
        order, num_bytes = tuple(row["rank_order"].split()), int(row["num_bytes"])
        links = topology(row["profile"], transport.mtu_bytes)
        yield Row(
            row["profile"],
            transport,
            order,
            num_bytes,
            float(row["median_s"]),
            ring_times([Group(order, num_bytes)], links, transport)[0],
            ring_times([Group(order, num_bytes)], links, Gloo(transport.congestion_control, transport.mtu_bytes))[
                0
            ].seconds,
            simulate([Collective(order, num_bytes)], links, transport)[0],
            fill(order, num_bytes, links, transport),
        )


def fill(order: Sequence[str], num_bytes: int, links: Topology, transport: Gloo) -> float:
    """The largest part of a buffer that the bursts of all edges on a link take: two segments of each."""
    group = Group(tuple(order), num_bytes)
    burst_bytes = cut_ring(num_bytes, len(order), 1).burst_bytes
    sharing = Sharing([group.edges()], links)
    assert transport.router_buffer_s is not None
    share = transport.mtu_bytes / transport.packet_bytes * transport.router_buffer_s
    between = [pair for pair, link in sharing.links[0].items() if link.shared is not None]
    return max(users[0] * burst_bytes / (rate * share) for pair in between for rate, users in sharing.on(pair))
