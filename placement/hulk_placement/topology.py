"""Machines and the directed links between them, as the planner sees them.

Measurements come in per pair of machines and per pair of regions; `Topology.link` turns them into one answer for any
pair, and says how well it is known. Nothing is ever assumed to be free: a pair about which nothing is known is UNKNOWN.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hulk_placement.accelerators.table import INSIDE_RTT_S, INSIDE_SHARE, look_up

Pair = tuple[str, str]

UNKNOWN_RTT_S = 2.0
UNKNOWN_BANDWIDTH_BYTES_PER_S = 125_000.0
"""What an unknown link costs where a job allows it: worse than any usable WAN link, and finite."""


def is_positive(value: float) -> bool:
    """Whether a figure is more than 0 and finite."""
    return 0 < value < math.inf


def is_amount(value: float) -> bool:
    """Whether a figure is at least 0 and finite."""
    return 0 <= value < math.inf


class LinkKind(StrEnum):
    """How a link's figures came to be known."""

    MEASURED = "measured"
    UNDER_LOAD = "under load"
    DECLARED = "declared"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """A node with its accelerators.

    `num_accelerators` is what the planner may hand out: allocatable minus what pods outside `solve`'s `running` hold.
    All other figures are per accelerator. `memory_bytes`, `memory_bandwidth_bytes_per_s` 0 and `flops_per_s` None mean
    unknown, `price_per_hour` 0 that none is stated. `inside` is the link between two accelerators of the machine where
    it is known better than by the product; see `Topology.inside`. `keeps_windows`: whether its TCP connections keep
    their congestion windows while they are silent (Linux: net.ipv4.tcp_slow_start_after_idle = 0, or BBR).
    `nic_bytes_per_s` caps what leaves the machine, and what enters it, over all its links together, those inside its
    region too; None: no cap is known.
    """

    name: str
    region: str
    zone: str = ""
    num_accelerators: int = 1
    product: str = "unknown"
    memory_bytes: int = 0
    flops_per_s: float | None = None
    memory_bandwidth_bytes_per_s: float = 0.0
    inside: Link | None = None
    price_per_hour: float = 0.0
    keeps_windows: bool = False
    nic_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.region:
            raise ValueError(f"machine {self.name!r} in region {self.region!r}: both names must be given")
        if self.num_accelerators < 0 or self.memory_bytes < 0:
            raise ValueError(
                f"machine {self.name}: {self.num_accelerators} accelerators of {self.memory_bytes} bytes must be >= 0"
            )
        if self.flops_per_s is not None and not is_positive(self.flops_per_s):
            raise ValueError(f"machine {self.name}: speed {self.flops_per_s} FLOP/s must be > 0 and finite")
        if not is_amount(self.memory_bandwidth_bytes_per_s) or not is_amount(self.price_per_hour):
            raise ValueError(
                f"machine {self.name}: memory bandwidth {self.memory_bandwidth_bytes_per_s} B/s and price "
                f"{self.price_per_hour} an hour must be >= 0 and finite"
            )
        if self.nic_bytes_per_s is not None and not is_positive(self.nic_bytes_per_s):
            raise ValueError(f"machine {self.name}: NIC {self.nic_bytes_per_s} B/s must be > 0 and finite")


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link: round-trip time, and the TCP payload rate of `num_streams` streams from source to target.

    `one_way_s` is how long the way there takes of the round trip, None: half. `flow_bytes_per_s` is what one TCP flow
    gets of the bandwidth, None: as much as the link. `shared` names the directed region link whose capacity the link
    draws on; None inside a region, inside a machine, and with `own_wire`: then the two machines share neither their
    regions' link and uplinks nor their NICs with anybody. `by_size` are points (bytes of a message, bytes/s that it
    gets, its latency included), by rising bytes; () where all messages get the bandwidth.
    """

    rtt_s: float
    bandwidth_bytes_per_s: float
    num_streams: int = 1
    age_s: float = 0.0
    kind: LinkKind = LinkKind.MEASURED
    shared: Pair | None = None
    flow_bytes_per_s: float | None = None
    one_way_s: float | None = None
    own_wire: bool = False
    by_size: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rtt_s) and self.rtt_s >= 0):
            raise ValueError(f"link: round trip {self.rtt_s} s must be >= 0 and finite")
        if self.one_way_s is not None and not 0 <= self.one_way_s <= self.rtt_s:
            raise ValueError(f"link: one way {self.one_way_s} s must be >= 0 and within the round trip, {self.rtt_s} s")
        if not is_positive(self.bandwidth_bytes_per_s):
            raise ValueError(f"link: bandwidth {self.bandwidth_bytes_per_s} B/s must be > 0 and finite")
        if self.num_streams < 1 or self.age_s < 0:
            raise ValueError(f"link: {self.num_streams} streams must be >= 1, age {self.age_s} s must be >= 0")
        if self.flow_bytes_per_s is not None and not is_positive(self.flow_bytes_per_s):
            raise ValueError(f"link: one flow's {self.flow_bytes_per_s} B/s must be > 0 and finite")
        sizes = [num_bytes for num_bytes, _ in self.by_size]
        if not all(is_positive(figure) for point in self.by_size for figure in point) or sizes != sorted(set(sizes)):
            raise ValueError(f"link: bandwidths by size {self.by_size} must be > 0 and finite, of rising sizes")
        for num_bytes, rate in self.by_size:
            if num_bytes / rate < self.latency_s:
                raise ValueError(
                    f"link: a message of {num_bytes:g} bytes at {rate:g} B/s takes {num_bytes / rate:g} s with its "
                    f"latency, but the latency alone is {self.latency_s:g} s"
                )

    @property
    def latency_s(self) -> float:
        """Seconds from source to target."""
        return self.rtt_s / 2 if self.one_way_s is None else self.one_way_s

    @property
    def one_flow_bytes_per_s(self) -> float:
        """What one TCP flow gets that has the link to itself."""
        return min(self.bandwidth_bytes_per_s, self.flow_bytes_per_s or math.inf)

    def at(self, num_bytes: float) -> Link:
        """The link as messages of one size find it: with the bandwidth that makes such a message take its seconds.

        Between two points the rate is interpolated over the logarithm of the size; beyond the ends it is theirs. A
        message takes bytes / rate, of which the latency passes on the way; what is left keeps the link busy. Many
        messages after each other never get more than the largest rate of all points, nor than the bandwidth.

        >>> Link(0.0, 200.0, by_size=((1.0, 50.0), (100.0, 150.0))).at(10).bandwidth_bytes_per_s
        100.0
        """
        if not self.by_size:
            return self
        return replace(self, bandwidth_bytes_per_s=self._rate_at(num_bytes), by_size=())

    def _rate_at(self, num_bytes: float) -> float:
        sizes, rates = [size for size, _ in self.by_size], [rate for _, rate in self.by_size]
        upper = bisect_left(sizes, num_bytes)
        if 0 < upper < len(sizes):
            part = math.log(num_bytes / sizes[upper - 1]) / math.log(sizes[upper] / sizes[upper - 1])
            rate = rates[upper - 1] + part * (rates[upper] - rates[upper - 1])
        else:
            rate = rates[min(upper, len(sizes) - 1)]
        most = min(self.bandwidth_bytes_per_s, max(rates))
        busy_s = num_bytes / rate - self.latency_s
        return min(most, num_bytes / busy_s) if busy_s > 0 else most

    def one_flow_s(self, num_bytes: float) -> float:
        """Seconds until so many bytes are there that one TCP flow sends alone."""
        return self.latency_s + num_bytes / self.one_flow_bytes_per_s

    def message_s(self, num_bytes: float) -> float:
        """Seconds until a message of so many bytes is there: latency + bytes / bandwidth.

        The share of the bandwidth that it reaches is n / (n + latency x bandwidth), so half of it with as many bytes as
        the link holds.

        >>> Link(rtt_s=0.5, bandwidth_bytes_per_s=100.0).message_s(25)
        0.5
        """
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


SAME_MACHINE = Link(rtt_s=0.0001, bandwidth_bytes_per_s=1e9, kind=LinkKind.INFERRED)
"""Two ranks on one machine talk through its memory: an assumption, far above any WAN link."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Every machine and what is known about the links between them.

    `node_links` are keyed by machine names, `region_links` by region names, (source, target); (a, a) is the inside of
    region a. A pair whose link is UNKNOWN inherits nothing. `uplinks` caps what all flows that leave a region, or all
    that enter it, carry together, in bytes per second.
    `egress_price_per_gb` is what 10^9 bytes from one region to another cost; nothing where no price is stated.
    """

    machines: tuple[Machine, ...]
    node_links: Mapping[Pair, Link] = field(default_factory=dict)
    region_links: Mapping[Pair, Link] = field(default_factory=dict)
    uplinks: Mapping[str, float] = field(default_factory=dict)
    egress_price_per_gb: Mapping[Pair, float] = field(default_factory=dict)
    _by_name: Mapping[str, Machine] = field(init=False, repr=False, compare=False)
    _by_nodes: Mapping[Pair, Link] = field(init=False, repr=False, compare=False)
    _by_regions: Mapping[Pair, Link] = field(init=False, repr=False, compare=False)
    _widest: Mapping[Pair, float] = field(init=False, repr=False, compare=False)
    _turns: Mapping[str, tuple[int, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {machine.name: machine for machine in self.machines}
        if len(by_name) != len(self.machines):
            raise ValueError(f"{len(self.machines)} machines have only {len(by_name)} different names")
        for region, bytes_per_s in self.uplinks.items():
            if not is_positive(bytes_per_s):
                raise ValueError(f"region {region}: uplink {bytes_per_s} B/s must be > 0 and finite")
        for (source, target), price in self.egress_price_per_gb.items():
            if not is_amount(price):
                raise ValueError(f"egress {source} to {target}: price {price} a GB must be >= 0 and finite")
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_by_nodes", self._own_links(by_name))
        inherited = {**self._medians(by_name), **self.region_links}
        resolved = {
            pair: self._drawing_on(pair, replace(link, kind=LinkKind.INFERRED))
            for pair, link in inherited.items()
            if link.kind is not LinkKind.UNKNOWN
        }
        object.__setattr__(self, "_by_regions", resolved)
        object.__setattr__(self, "_widest", _widest(self._by_nodes.values()))
        regions: dict[str, int] = {}
        turns = {m.name: (regions.setdefault(m.region, len(regions)), n) for n, m in enumerate(self.machines)}
        object.__setattr__(self, "_turns", turns)

    def machine(self, name: str) -> Machine:
        """The machine of that name; KeyError when there is none."""
        return self._by_name[name]

    def turn(self, name: str) -> tuple[int, int]:
        """What machines are sorted by, so that they stand region by region, in the topology's order; KeyError."""
        return self._turns[name]

    def link(self, source: str, target: str) -> Link:
        """The link between two machines: measured or declared, else its region pair's (inferred), else unknown.

        No wider than the NICs of both.
        """
        src, dst = self._by_name[source], self._by_name[target]
        if source == target:
            return SAME_MACHINE
        link = self._by_nodes.get((source, target)) or self.region_link(src.region, dst.region)
        narrowest = min(src.nic_bytes_per_s or math.inf, dst.nic_bytes_per_s or math.inf)
        if link.own_wire or narrowest >= link.bandwidth_bytes_per_s:
            return link
        return replace(link, bandwidth_bytes_per_s=narrowest)

    def inside(self, name: str) -> Link:
        """The link between two accelerators of a machine, for a transport that uses it: declared, else its product's.

        Where nothing is known of either, and for gloo always (`link`), ranks talk through the machine's memory.
        """
        machine = self._by_name[name]
        if machine.inside is not None:
            return machine.inside
        known = look_up(machine.product)
        if known is None:
            return SAME_MACHINE
        return Link(INSIDE_RTT_S, INSIDE_SHARE * known.inside_bytes_per_s, kind=LinkKind.INFERRED)

    def region_link(self, source: str, target: str) -> Link:
        """The link that a pair of machines of these regions inherits; `source == target` is the region's inside."""
        known = self._by_regions.get((source, target))
        if known is not None:
            return known
        unknown = Link(UNKNOWN_RTT_S, UNKNOWN_BANDWIDTH_BYTES_PER_S, kind=LinkKind.UNKNOWN)
        return self._drawing_on((source, target), unknown)

    def has_own_link(self, source: str, target: str) -> bool:
        """Whether two machines have figures of their own, and do not inherit their region pair's."""
        return (source, target) in self._by_nodes

    def capacity(self, regions: Pair) -> float:
        """Bytes/s that a directed link between two regions carries: at least what any machine pair alone gets of it."""
        return max(self.region_link(*regions).bandwidth_bytes_per_s, self._widest.get(regions, 0.0))

    @property
    def goes_by_size(self) -> bool:
        """Whether some link's bandwidth goes by the size of messages."""
        return any(link.by_size for link in (*self.node_links.values(), *self.region_links.values()))

    def at_message(self, num_bytes: float) -> Topology:
        """The topology as messages of one size find it (`Link.at`); itself where no link's bandwidth goes by size."""
        return self.with_links(lambda link: link.at(num_bytes)) if self.goes_by_size else self

    def with_links(self, changed: Callable[[Link], Link]) -> Topology:
        """The topology with every known link changed."""
        return replace(
            self,
            node_links={pair: changed(link) for pair, link in self.node_links.items()},
            region_links={pair: changed(link) for pair, link in self.region_links.items()},
        )

    def _own_links(self, by_name: Mapping[str, Machine]) -> dict[Pair, Link]:
        """The links of machine pairs, each with the region link that it shares."""
        return {
            (source, target): self._drawing_on((by_name[source].region, by_name[target].region), link)
            for (source, target), link in self.node_links.items()
            if source in by_name and target in by_name and source != target
        }

    def _drawing_on(self, regions: Pair, link: Link) -> Link:
        """A link between two regions shares their link, and no flow on it gets more than their uplinks carry."""
        if regions[0] == regions[1] or link.own_wire:
            return replace(link, shared=None)
        narrowest = min((self.uplinks[region] for region in regions if region in self.uplinks), default=math.inf)
        if narrowest >= link.one_flow_bytes_per_s:
            return replace(link, shared=regions)
        return replace(link, shared=regions, flow_bytes_per_s=narrowest)

    def _medians(self, by_name: Mapping[str, Machine]) -> dict[Pair, Link]:
        """Per region pair without a figure of its own: the median of its machine pairs."""
        groups: dict[Pair, list[Link]] = {}
        for (source, target), link in self.node_links.items():
            known = source in by_name and target in by_name and link.kind is not LinkKind.UNKNOWN
            known = known and not link.own_wire  # says nothing of the others' link
            if known and source != target:
                groups.setdefault((by_name[source].region, by_name[target].region), []).append(link)
        return {pair: _median(links) for pair, links in groups.items()}


def _widest(own: Iterable[Link]) -> dict[Pair, float]:
    """By region pair the most bytes/s of the links that machine pairs have of their own between them."""
    found: dict[Pair, float] = {}
    for link in own:
        if link.shared is not None:
            found[link.shared] = max(link.bandwidth_bytes_per_s, found.get(link.shared, 0.0))
    return found


def _median(links: Iterable[Link]) -> Link:
    found = list(links)
    flows = [link.flow_bytes_per_s for link in found if link.flow_bytes_per_s is not None]
    rtt_s = statistics.median(link.rtt_s for link in found)
    is_halved = all(link.one_way_s is None for link in found)
    return Link(
        rtt_s=rtt_s,
        bandwidth_bytes_per_s=statistics.median(link.bandwidth_bytes_per_s for link in found),
        num_streams=max(link.num_streams for link in found),
        age_s=max(link.age_s for link in found),
        kind=LinkKind.INFERRED,
        flow_bytes_per_s=statistics.median(flows) if flows else None,
        one_way_s=None if is_halved else min(rtt_s, statistics.median(link.latency_s for link in found)),
    )


def less(topology: Topology, taken: Mapping[str, int]) -> Topology:
    """The topology with so many accelerators of each machine taken; machines it no longer has are not missed."""
    return replace(
        topology,
        machines=tuple(
            replace(machine, num_accelerators=max(0, machine.num_accelerators - taken.get(machine.name, 0)))
            for machine in topology.machines
        ),
    )
