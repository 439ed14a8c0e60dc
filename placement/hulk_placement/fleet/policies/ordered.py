"""Policies that sort jobs and serve them in that order, interrupting the others: SRPT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hulk_placement.fleet.place import place
from hulk_placement.fleet.policies.counts import Counting
from hulk_placement.fleet.problem import Problem, carry_out
from hulk_placement.fleet.types import Job


def srpt(problem: Problem) -> dict[str, dict[str, int]]:
    """Shortest remaining time first: the job that is done soonest gets all the workers that it can use."""
    room = problem.room()

    def left_s(job: Job) -> float:
        count = min(job.max_workers, int(room.most(job).sum()))
        mapping = place(room, job, count) if count >= job.min_workers else None
        return problem.left_s(job, mapping or {})

    times = {job.key: left_s(job) for job in problem.jobs}
    return served(problem, lambda job: (-job.priority, times[job.key], job.arrived_s), lambda job, most: most, True)


def served(
    problem: Problem, rank: Callable[[Job], Any], count: Callable[[Job, int], int], resizes: bool = False
) -> dict[str, dict[str, int]]:
    """Jobs by rank, each with the count that it makes of the most that it could have; or fewer, where it `resizes`."""
    counting, order = Counting(problem), sorted(problem.jobs, key=rank)
    for job in order:
        counting.give(job, count(job, counting.room_for(job)))
    return carry_out(problem, counting.wanted(order), order if resizes else ())
