"""The regions of a job's machines and the directed links between them, as one all-reduce sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hulk_placement.topology import SAME_MACHINE, LinkKind, Topology

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Regions by number; `ranks` of each in rank order.

    `rate[a][b]` is what the directed link from a to b carries in bytes/s, of all node pairs together; 0 where there is
    no link, and on the diagonal. `latency_s[a][b]` is one way (RTT / 2, an assumption); infinite where there is no
    link, 0 on the diagonal. `egress` and `ingress` cap what leaves and what enters a region, infinite without a cap.
    `inside_rate` and `inside_latency_s` are a region's own links, per machine.
    """

    regions: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    rate: Matrix
    latency_s: Matrix
    egress: tuple[float, ...]
    ingress: tuple[float, ...]
    inside_rate: tuple[float, ...]
    inside_latency_s: tuple[float, ...]

    def __post_init__(self) -> None:
        num = len(self.regions)
        shapes = [len(row) for matrix in (self.rate, self.latency_s) for row in matrix]
        lists = (self.ranks, self.egress, self.ingress, self.inside_rate, self.inside_latency_s)
        if not num or shapes != [num] * 2 * num or any(len(values) != num for values in lists):
            raise ValueError(f"network: {num} regions, rows of {shapes} and lists of {[len(v) for v in lists]} values")
        if not all(self.ranks):
            raise ValueError(f"network: regions of {[len(r) for r in self.ranks]} ranks: each must have one")

    @property
    def num_ranks(self) -> int:
        """Ranks of all regions together."""
        return sum(map(len, self.ranks))

    def without(self, regions: Iterable[int]) -> Network:
        """The network of the other regions, numbered anew in the same order."""
        gone = set(regions)
        kept = [a for a in range(len(self.regions)) if a not in gone]

        def some(values: Sequence[float]) -> tuple[float, ...]:
            return tuple(values[a] for a in kept)

        return Network(
            regions=tuple(self.regions[a] for a in kept),
            ranks=tuple(self.ranks[a] for a in kept),
            rate=tuple(some(self.rate[a]) for a in kept),
            latency_s=tuple(some(self.latency_s[a]) for a in kept),
            egress=some(self.egress),
            ingress=some(self.ingress),
            inside_rate=some(self.inside_rate),
            inside_latency_s=some(self.inside_latency_s),
        )

    def scaled(self, factor: float, link: tuple[int, int] | None = None) -> Network:
        """The network with the rate of one link, or of all links and uplinks, times a factor."""
        if link is None:
            return replace(
                self,
                rate=tuple(tuple(rate * factor for rate in row) for row in self.rate),
                egress=tuple(cap * factor for cap in self.egress),
                ingress=tuple(cap * factor for cap in self.ingress),
            )
        rows = [list(row) for row in self.rate]
        rows[link[0]][link[1]] *= factor
        return replace(self, rate=tuple(map(tuple, rows)))


def build_network(topology: Topology, machines: Sequence[str], allow_unknown: bool = False) -> Network:
    """The network of ranks on these machines (one entry a rank, in rank order); regions in order of first appearance.

    Links that are unknown are absent unless allowed.
    """
    by_region: dict[str, list[int]] = {}
    for rank, machine in enumerate(machines):
        by_region.setdefault(topology.machine(machine).region, []).append(rank)
    names = tuple(by_region)

    def usable(a: str, b: str) -> bool:
        return a != b and (allow_unknown or topology.region_link(a, b).kind is not LinkKind.UNKNOWN)

    def rate(a: str, b: str) -> float:
        return topology.region_link(a, b).bandwidth_bytes_per_s if usable(a, b) else 0.0

    def latency_s(a: str, b: str) -> float:
        return 0.0 if a == b else topology.region_link(a, b).latency_s if usable(a, b) else math.inf

    inside = {
        region: topology.region_link(region, region) if len({machines[r] for r in ranks}) > 1 else SAME_MACHINE
        for region, ranks in by_region.items()
    }
    caps = tuple(topology.uplinks.get(region, math.inf) for region in names)
    return Network(
        regions=names,
        ranks=tuple(map(tuple, by_region.values())),
        rate=tuple(tuple(rate(a, b) for b in names) for a in names),
        latency_s=tuple(tuple(latency_s(a, b) for b in names) for a in names),
        egress=caps,
        ingress=caps,
        inside_rate=tuple(inside[region].bandwidth_bytes_per_s for region in names),
        inside_latency_s=tuple(inside[region].latency_s for region in names),
    )
