"""What a job's step takes on a mapping: by the paper's formula, or by the evaluator and by what was observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job, Mapped


@dataclass(frozen=True, slots=True)
class PaperStepTimes:
    """GADGET's own: tau = (d (w-1)/w)(2/b + 1/G) + t_f M + t_b + gamma. The reservation b hides where workers are."""

    def step_s(self, job: Job, mapping: Mapped) -> float:
        """Seconds of a step; ValueError where the job has no `ring`."""
        return self.of_workers(job, workers(mapping))

    def of_workers(self, job: Job, count: int) -> float:
        """The same for a number of workers, wherever they are."""
        ring = job.ring
        if ring is None:
            raise ValueError(f"job {job.key}: the paper's step time needs its ring's figures")
        per_byte_s = 2 / ring.bandwidth_bytes_per_s + 1 / ring.reduce_bytes_per_s
        summing_s = ring.gradient_bytes * (count - 1) / count * per_byte_s
        return summing_s + ring.forward_s * ring.samples + ring.backward_s + ring.latency_s


@runtime_checkable
class SharedStepTimes(Protocol):
    """Step times that know what rings on the same links do to each other."""

    def shared_step_s(self, job: Job, mapping: Mapped, num_rings: int) -> float:
        """Seconds of a step where so many rings leave the fullest of the job's machines, its own among them."""
        ...


@runtime_checkable
class PlacedStepTimes(Protocol):
    """Step times that differ by where workers are, and know how short they can be."""

    def least_step_s(self, job: Job, admits: Mapped, count: int) -> float:
        """Seconds that no mapping of so many workers beats, with no more on a machine than it admits."""
        ...
