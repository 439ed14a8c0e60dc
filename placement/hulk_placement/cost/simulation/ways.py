"""The links of a topology as ways that draw on resources: links (`cost.drawn`) and both regions' uplinks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hulk_placement.cost.drawn import drawn_on
from hulk_placement.cost.simulation.step import Place, Resource, Way
from hulk_placement.nccl import Nccl
from hulk_placement.topology import Link, Topology

Key = tuple[Place, object]


@dataclass(slots=True)
class Ways:
    """Numbers resources as they come to be used. `nccl`: what ranks of one machine talk over, else its memory."""

    topology: Topology
    nccl: Nccl | None = None
    _numbers: dict[Key, int] = field(default_factory=dict)
    _rates: dict[Key, float] = field(default_factory=dict)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Those that are in use, by number."""
        return tuple(Resource(place, rate) for (place, _), rate in self._rates.items())

    def between(self, source: str, target: str) -> Way:
        """The way of one TCP flow between two machines, or two ranks of one."""
        link, (a, b) = self.link(source, target), map(self.topology.machine, (source, target))
        is_cold = not a.keeps_windows and a.region != b.region
        return Way(self.drawn_on(source, target), link.one_flow_bytes_per_s, link.latency_s, is_cold=is_cold)

    def link(self, source: str, target: str) -> Link:
        """What joins two machines, or two ranks of one."""
        return self.nccl.link(source, target, self.topology) if self.nccl else self.topology.link(source, target)

    def drawn_on(self, source: str, target: str) -> tuple[int, ...]:
        """What a flow between two machines shares with others, the tightest first."""
        if source == target:
            return (self.number(Place("inside machine", (source,)), math.inf),)
        link, rates = self.topology.link(source, target), dict[Key, float]()
        place, (a, b) = self._place(source, target), link.shared or ("", "")
        for shared, bytes_per_s in reversed(drawn_on(source, target, self.topology)):
            if shared.part == "NIC out of" or shared.part == "NIC into":
                rates[Place(shared.part, shared.ends[:1]), None] = bytes_per_s
            else:
                rates[place, None if shared.part == "regions" else shared] = bytes_per_s
        for end in (Place("uplink out of", (a,)), Place("uplink into", (b,))):
            if end.ends[0] in self.topology.uplinks:
                rates[end, None] = self.topology.uplinks[end.ends[0]]
        return tuple(self.number(key[0], rates[key], key[1]) for key in sorted(rates, key=rates.__getitem__))

    def _place(self, source: str, target: str) -> Place:
        """Where the link of two machines is."""
        regions = self.topology.machine(source).region, self.topology.machine(target).region
        if regions[0] == regions[1]:
            return Place("inside region", regions[:1])
        return (
            Place("wire", (source, target)) if self.topology.link(source, target).own_wire else Place("link", regions)
        )

    def uplinks(self, source: str, target: str) -> tuple[int, ...]:
        """Those of two regions, as far as there are any."""
        ends = (Place("uplink out of", (source,)), Place("uplink into", (target,)))
        rates = self.topology.uplinks
        return tuple(self.number(end, rates[end.ends[0]]) for end in ends if end.ends[0] in rates)

    def number(self, place: Place, bytes_per_s: float, connection: object = None) -> int:
        """The number of a place, or of one connection there, that carries so much, or more where that is known."""
        key = place, connection
        self._rates[key] = max(self._rates.get(key, 0.0), bytes_per_s)
        return self._numbers.setdefault(key, len(self._numbers))

    def place(self, number: int) -> Place:
        """Of a resource."""
        return list(self._rates)[number][0]

    @property
    def rates(self) -> tuple[float, ...]:
        """Bytes a second that all who draw on a resource have together, by number."""
        return tuple(self._rates.values())
