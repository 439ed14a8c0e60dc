"""Speeds on a topology's links: a ring is as quick as its narrowest link, and links between regions are shared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job, Mapped
from hulk_placement.topology import Link, Pair, Topology

MOST_REGIONS = 6
"""Of so many regions each set is looked at for the quickest ring: 63 of them."""


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """The paper's step time with b the rate of the narrowest link that the ring crosses, and gamma its round trips.

    Rings that cross the same link between two regions each get an equal part of it. Regions are crossed in the order of
    the topology. As a StepTimes it says what a job takes that meets no other.
    """

    topology: Topology
    _order: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def step_s(self, job: Job, mapping: Mapped) -> float:
        """Seconds of a step of a job that meets no other."""
        return self._step_s(job, mapping, {})

    def steps_s(self, jobs: Mapping[str, Job], running: Mapping[str, Mapped]) -> dict[str, float]:
        """Seconds of every job's step beside the others."""
        rings: dict[Pair, int] = {}
        for key, mapping in running.items():
            if jobs[key].ring is not None:
                for pair in _around(self._regions(mapping)):
                    rings[pair] = rings.get(pair, 0) + 1
        return {key: self._step_s(jobs[key], mapping, rings) for key, mapping in running.items()}

    def least_step_s(self, job: Job, admits: Mapped, count: int) -> float:
        """Seconds that no mapping of so many workers beats, with no more on a machine than it admits.

        A step depends on the machine where that is one, else on the regions alone. Where there are more of them than
        MOST_REGIONS each counts as if it held all workers: a ring that leaves it is no quicker.
        """
        ways = [[(self.topology.inside(name), 1)] for name, most in admits.items() if most >= count]
        if count > 1:
            ways += [self._between(regions, {}) for regions in self._joined(admits, count)]
        return min((self._of_links_s(job, count, links) for links in ways), default=math.inf)

    def _joined(self, admits: Mapped, count: int) -> list[Sequence[str]]:
        """The sets of regions that so many workers may have, on two machines at least."""
        inside: dict[str, list[int]] = {region: [] for region in self._regions(admits)}
        for name, most in admits.items():
            inside[self.topology.machine(name).region].append(most)
        if len(inside) > MOST_REGIONS:
            return [[region] for region in inside]
        return [
            regions
            for size in range(1, min(count, len(inside)) + 1)
            for regions in combinations(inside, size)
            if sum(sum(inside[region]) for region in regions) >= count
            and sum(len(inside[region]) for region in regions) > 1
        ]

    def _step_s(self, job: Job, mapping: Mapped, rings: Mapping[Pair, int]) -> float:
        if len(mapping) == 1:
            return self._of_links_s(job, workers(mapping), [(self.topology.inside(next(iter(mapping))), 1)])
        return self._of_links_s(job, workers(mapping), self._between(self._regions(mapping), rings))

    def _of_links_s(self, job: Job, count: int, links: Iterable[tuple[Link, int]]) -> float:
        """Of so many workers over these links, each with the number of rings that share it."""
        ring = job.ring
        if ring is None:
            raise ValueError(f"job {job.key}: a step's time needs its ring's figures")
        computed_s = ring.forward_s * ring.samples + ring.backward_s + ring.latency_s
        if count == 1 or not ring.gradient_bytes:
            return computed_s
        rate = min(min(link.bandwidth_bytes_per_s / shared, link.one_flow_bytes_per_s) for link, shared in links)
        latency_s = 2 * (count - 1) / count * sum(link.latency_s for link, _ in links)
        per_byte_s = 2 / min(rate, ring.bandwidth_bytes_per_s) + 1 / ring.reduce_bytes_per_s
        return computed_s + latency_s + ring.gradient_bytes * (count - 1) / count * per_byte_s

    def _between(self, regions: Sequence[str], rings: Mapping[Pair, int]) -> list[tuple[Link, int]]:
        """The links of a ring over machines of these regions: between them, and inside each."""
        links = [(self.topology.region_link(*pair), rings.get(pair, 1)) for pair in _around(regions)]
        return links + [(self.topology.region_link(region, region), 1) for region in regions]

    def _regions(self, machines: Iterable[str]) -> list[str]:
        """The machines' regions in the topology's order."""
        if not self._order:
            for machine in self.topology.machines:
                self._order.setdefault(machine.region, len(self._order))
        return sorted({self.topology.machine(machine).region for machine in machines}, key=self._order.__getitem__)


def _around(regions: Sequence[str]) -> list[Pair]:
    """The directed pairs of regions between which a ring goes."""
    return list(zip(regions, [*regions[1:], regions[0]], strict=True)) if len(regions) > 1 else []
