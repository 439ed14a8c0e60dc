"""The decision without any loss: a mixed-integer program over jobs, numbers of workers and machines; small cases only.

maximise  sum of gains(job, count) × chosen(job, count)
subject to  one count at most a job, its workers on machines that admit them, no machine and no quota exceeded
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.program import Rows, solve
from hulk_placement.fleet.room import Room
from hulk_placement.fleet.types import Job
from hulk_placement.fleet.worth import Worth, all_worths

MOST_CELLS = 4000
MOST_S = 60.0


def exact(problem: Problem) -> dict[str, dict[str, int]]:
    """The mappings that gain most, priorities from the highest down.

    ValueError beyond MOST_CELLS jobs × machines; ArithmeticError where MOST_S seconds do not prove an optimum.
    """
    room, chosen = problem.room(), {}
    cells = len(problem.jobs) * len(room.names)
    if cells > MOST_CELLS:
        raise ValueError(
            f"policy exact: {len(problem.jobs)} jobs x {len(room.names)} machines are {cells}, more than {MOST_CELLS}"
        )
    jobs = {job.key: job for job in problem.jobs}
    for key, mapping in problem.held.items():
        if not jobs[key].preemptible:
            room.take(jobs[key], mapping)
            chosen[key] = dict(mapping)
    for _, group in groupby(problem.jobs, key=lambda job: job.priority):
        found = _best(problem, [job for job in group if job.key not in chosen], room)
        for key, mapping in found.items():
            room.take(jobs[key], mapping)
        chosen |= found
    return chosen


def _best(problem: Problem, jobs: Sequence[Job], room: Room) -> dict[str, dict[str, int]]:
    known = all_worths(problem)
    worths = [known[job.key] for job in jobs]
    log_scale = max((worth.log_scale for worth in worths), default=-math.inf)
    if not math.isfinite(log_scale):
        return {}
    rows, num = Rows(), len(room.names)
    counted = [_counts(rows, worth, log_scale) for worth in worths]
    places = [rows.columns([0.0] * num, [float(most) for most in room.admits(job)], whole=True) for job in jobs]
    for (columns, counts), there in zip(counted, places, strict=True):
        rows.add(columns, [1.0] * len(columns), 1.0)
        rows.add([*columns, *there], [*map(float, counts), *[-1.0] * num], 0.0, equal=True)
    wanted = [float(job.accelerators_per_worker) for job in jobs]
    for machine in range(num):
        rows.add([there[machine] for there in places], wanted, float(room.free[machine]))
    for namespace, limit in room.quotas.left.items():
        mine = [n for n, job in enumerate(jobs) if job.namespace == namespace]
        rows.add([c for n in mine for c in places[n]], [wanted[n] for n in mine for _ in places[n]], float(limit))
    values = solve(rows, MOST_S).values
    found = {
        job.key: {room.names[m]: round(values[c]) for m, c in enumerate(there) if round(values[c])}
        for job, there in zip(jobs, places, strict=True)
    }
    return {key: mapping for key, mapping in found.items() if mapping}


def _counts(rows: Rows, worth: Worth, log_scale: float) -> tuple[list[int], list[int]]:
    """A column for each number of workers, and those numbers."""
    counts = [count for count in range(worth.job.min_workers, worth.counts[-1] + 1) if worth.gain(count) > 0]
    factor = math.exp(worth.log_scale - log_scale) if math.isfinite(worth.log_scale) else 0.0
    return rows.columns([worth.gain(n) * factor for n in counts], [1.0] * len(counts), whole=True), counts
