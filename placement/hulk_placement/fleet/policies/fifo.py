"""First in, first out: each job gets a fixed number of workers and keeps them until it is done."""

from __future__ import annotations

from hulk_placement.fleet.place import is_ever_joined, place
from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.quotas import Quotas
from hulk_placement.fleet.room import Room
from hulk_placement.fleet.types import Job, Settings


def fifo(problem: Problem) -> dict[str, dict[str, int]]:
    """Running jobs stay; of the others the first starts that fits, and nobody overtakes one that waits.

    A job that no empty cluster could hold blocks nobody, unless `settings.strict_fifo`.
    """
    room, jobs = problem.room(), {job.key: job for job in problem.jobs}
    chosen = {key: dict(mapping) for key, mapping in problem.held.items()}
    for key, mapping in chosen.items():
        room.take(jobs[key], mapping)
    for job in problem.jobs:
        if job.key in chosen:
            continue
        found = place(room, job, asked(room, job, problem.settings))
        if found:
            room.take(job, found)
            chosen[job.key] = found
        elif can_ever(room, job) or problem.settings.strict_fifo:
            break
    return chosen


def asked(room: Room, job: Job, settings: Settings) -> int:
    """The workers that a job asks for where the policy does not size it: no more than an empty cluster holds."""
    wanted = settings.fixed_workers.get(job.key, job.max_workers)
    admitted = Quotas(settings.quotas).workers(job.namespace, job.accelerators_per_worker)
    return max(job.min_workers, min(wanted, int(room.most(job).sum()), admitted))


def can_ever(room: Room, job: Job) -> bool:
    """Whether the job's least number of workers fits an empty cluster, its links, and its namespace's quota."""
    is_admitted = room.quotas.is_ever_enough(job.namespace, job.min_workers, job.accelerators_per_worker)
    return is_admitted and is_ever_joined(room, job)
