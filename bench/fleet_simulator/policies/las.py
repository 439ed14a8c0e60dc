"""Least attained service in Tiresias's two queues."""

from __future__ import annotations

from hulk_placement.fleet.policies.fifo import asked
from hulk_placement.fleet.policies.ordered import served
from hulk_placement.fleet.problem import Problem

QUEUE_SLOTS = 8.0
"""A job that held more accelerator-slots than this leaves the first queue for the second."""


def las(problem: Problem) -> dict[str, dict[str, int]]:
    """First the jobs that held few accelerator-seconds, then by arrival.

    Each job gets the fixed number of workers that it asks for, or none.
    """
    limit_s = QUEUE_SLOTS * problem.settings.slot_s
    room = problem.room()
    return served(
        problem,
        lambda job: (-job.priority, job.served_s > limit_s, job.arrived_s),
        lambda job, most: count if (count := asked(room, job, problem.settings)) <= most else 0,
    )
