"""Dominant-resource fairness: workers one by one to the job that holds the smallest share."""

from __future__ import annotations

import heapq

from hulk_placement.fleet.policies.counts import Counting
from hulk_placement.fleet.problem import Problem, carry_out


def drf(problem: Problem) -> dict[str, dict[str, int]]:
    """Every round the job with the smallest accelerator share, weighed by its namespace's, gets one worker more.

    Memory and accelerators of a machine go together, so accelerators are the dominant resource. Higher priorities are
    served to their most first.
    """
    counting = Counting(problem)
    waiting: list[tuple[int, float, int]] = []
    for order, job in enumerate(problem.jobs):
        heapq.heappush(waiting, (-job.priority, 0.0, order))
    while waiting:
        rank, _, order = heapq.heappop(waiting)
        job = problem.jobs[order]
        if counting.add(job):
            weight = problem.settings.shares.get(job.namespace, 1.0)
            share = counting.counts[job.key] * max(1, job.accelerators_per_worker) / weight
            heapq.heappush(waiting, (rank, share, order))
    return carry_out(problem, counting.wanted(problem.jobs), problem.jobs)
