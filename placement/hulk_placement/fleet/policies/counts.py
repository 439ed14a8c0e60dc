"""Numbers of workers before their machines: what the cluster, quotas and limits admit as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.room import workers
from hulk_placement.fleet.types import Job


class Counting:
    """Counts that a policy hands out; jobs that cannot be interrupted have theirs already."""

    def __init__(self, problem: Problem) -> None:
        room = problem.room()
        self.left = int(room.size.sum())
        self.quotas = room.quotas
        self.most = {job.key: min(job.max_workers, int(room.most(job).sum())) for job in problem.jobs}
        self.counts: dict[str, int] = {}
        self.fixed = {job.key for job in problem.jobs if not job.preemptible and job.key in problem.held}
        for job in problem.jobs:
            if job.key in self.fixed:
                self._take(job, workers(problem.held[job.key]))

    def add(self, job: Job) -> bool:
        """One worker more, or the least number at first; whether that was possible."""
        now = self.counts.get(job.key, 0)
        return self.give(job, now + 1 if now else job.min_workers)

    def give(self, job: Job, count: int) -> bool:
        """So many workers in all; whether they are there."""
        more = count - self.counts.get(job.key, 0)
        admitted = self.quotas.workers(job.namespace, job.accelerators_per_worker)
        enough = more * job.accelerators_per_worker <= self.left and more <= admitted
        if job.key in self.fixed or count > self.most[job.key] or count < job.min_workers or not enough:
            return False
        self._take(job, more)
        return True

    def room_for(self, job: Job) -> int:
        """How many workers the job could have in all."""
        wanted = job.accelerators_per_worker
        if job.key in self.fixed or not wanted:
            return self.counts.get(job.key, self.most[job.key])
        more = min(self.left // wanted, self.quotas.workers(job.namespace, wanted))
        return min(self.most[job.key], self.counts.get(job.key, 0) + more)

    def wanted(self, order: Iterable[Job]) -> list[tuple[Job, int]]:
        """The counts, as `carry_out` takes them."""
        return [(job, self.counts[job.key]) for job in order if job.key in self.counts]

    def _take(self, job: Job, more: int) -> None:
        accelerators = more * job.accelerators_per_worker
        self.counts[job.key] = self.counts.get(job.key, 0) + more
        self.left -= accelerators
        self.quotas.take(job.namespace, accelerators)
