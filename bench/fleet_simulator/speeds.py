"""Speeds of jobs that run side by side: each as if alone, or slowed by rings that share machines' links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job, Mapped, StepTimes
from hulk_placement.topology import Topology


@dataclass(frozen=True, slots=True)
class Alone:
    """Each job runs as if it were alone; a machine whose accelerators are given out more than once shares its time."""

    step_times: StepTimes
    topology: Topology

    def steps_s(self, jobs: Mapping[str, Job], running: Mapping[str, Mapped]) -> dict[str, float]:
        """Seconds of a step, as many times longer as the fullest machine of the job is over-committed."""
        held: dict[str, int] = {}
        for key, mapping in running.items():
            for machine, count in mapping.items():
                held[machine] = held.get(machine, 0) + count * jobs[key].accelerators_per_worker
        over = {name: max(1.0, held[name] / max(1, self.topology.machine(name).num_accelerators)) for name in held}
        return {
            key: self.step_times.step_s(jobs[key], mapping) * max(over[machine] for machine in mapping)
            for key, mapping in running.items()
        }


@dataclass(frozen=True, slots=True)
class Contended:
    """The contention model of SJF-BCO's paper (MobiHoc'22).

    A ring on one machine has `inside_bytes_per_s`. One that spans machines gets of the slowest link, on the machine
    where most rings contend, b / f(k) with k = `contention` × rings there and f(k) = k + `degradation` × (k - 1), and
    waits `overhead_s` a step for every machine that it spans:

        tau = (d (w-1)/w)(2/B + 1/G) + overhead × machines + t_f M + t_b + gamma

    As a StepTimes it says what a job takes that meets no other.
    """

    link_bytes_per_s: float
    inside_bytes_per_s: float
    contention: float = 1.0
    degradation: float = 0.2
    overhead_s: float = 0.0

    def step_s(self, job: Job, mapping: Mapped) -> float:
        """Seconds of a step of a job that contends with nobody."""
        return self.shared_step_s(job, mapping, 1)

    def steps_s(self, jobs: Mapping[str, Job], running: Mapping[str, Mapped]) -> dict[str, float]:
        """Seconds of every job's step, by how many rings leave the fullest of its machines."""
        rings = rings_of(running)
        return {
            key: self.shared_step_s(jobs[key], mapping, max(rings.get(machine, 1) for machine in mapping))
            for key, mapping in running.items()
        }

    def shared_step_s(self, job: Job, mapping: Mapped, num_rings: int) -> float:
        """Seconds of a step where so many rings leave the fullest of the job's machines, its own among them."""
        ring, count = job.ring, workers(mapping)
        if ring is None:
            raise ValueError(f"job {job.key}: the paper's step time needs its ring's figures")
        met = max(1.0, self.contention * num_rings)
        rate = self.inside_bytes_per_s
        if len(mapping) > 1:
            rate = self.link_bytes_per_s / (met + self.degradation * (met - 1))
        summing_s = ring.gradient_bytes * (count - 1) / count * (2 / rate + 1 / ring.reduce_bytes_per_s)
        waiting_s = self.overhead_s * len(mapping) + ring.latency_s
        return summing_s + waiting_s + ring.forward_s * ring.samples + ring.backward_s


def rings_of(running: Mapping[str, Mapped]) -> dict[str, int]:
    """How many rings that span machines there are on each machine."""
    rings: dict[str, int] = {}
    for mapping in running.values():
        if len(mapping) > 1:
            for machine in mapping:
                rings[machine] = rings.get(machine, 0) + 1
    return rings
