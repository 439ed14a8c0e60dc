"""Speeds on a topology's links: a ring is as quick as its narrowest link, and links between regions are shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job, Mapped
from hulk_placement.topology import Pair, Topology


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
                for pair in self._crossed(mapping):
                    rings[pair] = rings.get(pair, 0) + 1
        return {key: self._step_s(jobs[key], mapping, rings) for key, mapping in running.items()}

    def _step_s(self, job: Job, mapping: Mapped, rings: Mapping[Pair, int]) -> float:
        ring, count = job.ring, workers(mapping)
        if ring is None:
            raise ValueError(f"job {job.key}: a step's time needs its ring's figures")
        computed_s = ring.forward_s * ring.samples + ring.backward_s + ring.latency_s
        if count == 1 or not ring.gradient_bytes:
            return computed_s
        links = [(self.topology.region_link(*pair), rings.get(pair, 1)) for pair in self._crossed(mapping)]
        if len(mapping) > 1:
            regions = {self.topology.machine(machine).region for machine in mapping}
            links += [(self.topology.region_link(region, region), 1) for region in sorted(regions)]
        else:
            links = [(self.topology.inside(next(iter(mapping))), 1)]
        rate = min(min(link.bandwidth_bytes_per_s / shared, link.one_flow_bytes_per_s) for link, shared in links)
        latency_s = 2 * (count - 1) / count * sum(link.latency_s for link, _ in links)
        per_byte_s = 2 / min(rate, ring.bandwidth_bytes_per_s) + 1 / ring.reduce_bytes_per_s
        return computed_s + latency_s + ring.gradient_bytes * (count - 1) / count * per_byte_s

    def _crossed(self, mapping: Mapped) -> list[Pair]:
        """The directed pairs of regions between which the ring goes."""
        if not self._order:
            for machine in self.topology.machines:
                self._order.setdefault(machine.region, len(self._order))
        regions = sorted({self.topology.machine(machine).region for machine in mapping}, key=self._order.__getitem__)
        if len(regions) < 2:
            return []
        return list(zip(regions, [*regions[1:], regions[0]], strict=True))
