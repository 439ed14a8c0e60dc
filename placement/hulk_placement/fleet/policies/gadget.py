"""Hulk's own: the relaxation, whole workers by gain, a repair onto real machines, then local search on real speed.

Priorities are served from the highest down: what a lower one does never takes from a higher one. The relaxation says
what the best parts of workers are; rounding keeps the whole ones and hands out the rest by gain per accelerator.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hulk_placement.fleet.policies.counts import Counting
from hulk_placement.fleet.policies.improve import improve
from hulk_placement.fleet.problem import Problem, carry_out
from hulk_placement.fleet.relax import relax
from hulk_placement.fleet.types import Job
from hulk_placement.fleet.worth import Worth, all_worths


@dataclass(slots=True)
class Valued:
    """All jobs' worth by key."""

    worths: dict[str, Worth]

    def density(self, job: Job, before: int, after: int) -> float:
        """Logarithm of the gain per second and accelerator of going from so many workers to more; -inf for none."""
        worth = self.worths[job.key]
        gain = worth.gain(after) - worth.gain(before)
        if gain <= 0 or not math.isfinite(worth.log_scale):
            return -math.inf
        return math.log(gain / ((after - before) * max(1, job.accelerators_per_worker))) + worth.log_scale


def gadget(problem: Problem) -> dict[str, dict[str, int]]:
    """The mappings that gain most by the relaxation, its rounding, repair and local search."""
    valued = Valued(all_worths(problem))
    counting = Counting(problem)
    for _, group in groupby(problem.jobs, key=lambda job: job.priority):
        jobs = [job for job in group if job.key not in counting.fixed]
        jobs.sort(key=lambda job: job.key not in problem.held)  # of jobs alike those that run go on
        _count(problem, jobs, valued, counting)
    order = sorted(counting.wanted(problem.jobs), key=lambda item: _rank(valued, *item))
    others = [job for job in problem.jobs if valued.density(job, 0, job.min_workers) > -math.inf]
    chosen = carry_out(problem, order, sorted(others, key=lambda job: _rank(valued, job, job.min_workers)))
    return improve(problem, valued.worths, chosen) if problem.settings.local_search else chosen


def _rank(valued: Valued, job: Job, count: int) -> tuple[float, float]:
    return (-job.priority, -valued.density(job, 0, count))


def _count(problem: Problem, jobs: Sequence[Job], valued: Valued, counting: Counting) -> None:
    """Numbers of workers for jobs of one priority, of what higher ones leave."""
    if not jobs:
        return
    room = problem.room()
    best = relax([valued.worths[job.key] for job in jobs], room)
    for job, part in zip(jobs, best.workers, strict=True):
        whole = math.floor(part + 1e-6)
        if whole >= job.min_workers:
            counting.give(job, min(whole, counting.room_for(job)))
    _fill(jobs, valued, counting)


def _fill(jobs: Sequence[Job], valued: Valued, counting: Counting) -> None:
    """The rest one by one, to the job that gains most by an accelerator more."""
    queue: list[tuple[float, int]] = []
    for order, job in enumerate(jobs):
        _push(queue, order, job, valued, counting)
    while queue:
        _, order = heapq.heappop(queue)
        job = jobs[order]
        if counting.add(job):
            _push(queue, order, job, valued, counting)


def _push(queue: list[tuple[float, int]], order: int, job: Job, valued: Valued, counting: Counting) -> None:
    now = counting.counts.get(job.key, 0)
    density = valued.density(job, now, now + 1 if now else job.min_workers)
    if density > -math.inf:
        heapq.heappush(queue, (-density, order))
