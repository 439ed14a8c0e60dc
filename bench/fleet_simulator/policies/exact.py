"""The decision without any loss: a mixed-integer program over jobs, numbers of workers and machines; small cases only.

maximise  sum of gains(job, count) × chosen(job, count) + sum of gains(job, stays) × stays(job)
subject to  one count at most a job, or it stays where it is; its workers on machines that admit them; no machine and no
            quota exceeded

Bandwidth that rings reserve is no row: what is exceeded of it is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.program import Rows, solve
from hulk_placement.fleet.room import Floats, Room
from hulk_placement.fleet.types import Job
from hulk_placement.fleet.worth import Worth, all_worths, mapping_gain, moved_gain

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
    ways = [_ways(rows, problem, worth, room, log_scale) for worth in worths]
    wanted = [float(job.accelerators_per_worker) for job in jobs]
    for machine in range(num):
        there = [(way.places[machine], each) for way, each in zip(ways, wanted, strict=True)]
        there += [(c, each * n) for way, each in zip(ways, wanted, strict=True) for c, n in way.staying(machine)]
        rows.add([column for column, _ in there], [value for _, value in there], float(room.free[machine]))
    for namespace, limit in room.quotas.left.items():
        mine = [(way, each) for job, way, each in zip(jobs, ways, wanted, strict=True) if job.namespace == namespace]
        used = [(c, each) for way, each in mine for c in way.places]
        used += [(c, each * sum(way.held.values())) for way, each in mine for c in way.stay]
        rows.add([column for column, _ in used], [value for _, value in used], float(limit))
    values = solve(rows, MOST_S).values
    found = {job.key: way.mapping(values, room) for job, way in zip(jobs, ways, strict=True)}
    return {key: mapping for key, mapping in found.items() if mapping}


@dataclass(frozen=True, slots=True)
class _Ways:
    """A job's columns: its workers by machine, and one that it stays on what it holds, by machine's number."""

    places: Sequence[int]
    held: Mapping[int, int]
    stay: Sequence[int]

    def staying(self, machine: int) -> list[tuple[int, int]]:
        """The workers that it keeps on a machine, with the column."""
        return [(column, self.held[machine]) for column in self.stay if machine in self.held]

    def mapping(self, values: Floats, room: Room) -> dict[str, int]:
        """What the columns say."""
        if any(round(values[column]) for column in self.stay):
            return {room.names[machine]: count for machine, count in self.held.items()}
        return {room.names[m]: round(values[c]) for m, c in enumerate(self.places) if round(values[c])}


def _ways(rows: Rows, problem: Problem, worth: Worth, room: Room, log_scale: float) -> _Ways:
    """Columns and rows of one job by itself: a column for each number of workers that it has anew."""
    job, held = worth.job, problem.held.get(worth.job.key, {})
    factor = math.exp(worth.log_scale - log_scale) if math.isfinite(worth.log_scale) else 0.0
    gains = {n: moved_gain(problem, worth, n) * factor for n in range(job.min_workers, worth.counts[-1] + 1)}
    counts = [count for count, gain in gains.items() if gain > 0]
    anew = rows.columns([gains[count] for count in counts], [1.0] * len(counts), whole=True)
    places = rows.columns([0.0] * len(room.names), [float(most) for most in room.admits(job)], whole=True)
    keeps = job.min_workers <= sum(held.values()) <= job.max_workers
    stay = rows.columns([mapping_gain(problem, worth, held) * factor], [1.0], whole=True) if keeps else []
    rows.add([*anew, *stay], [1.0] * (len(anew) + len(stay)), 1.0)
    rows.add([*anew, *places], [*map(float, counts), *[-1.0] * len(places)], 0.0, equal=True)
    return _Ways(places, {room.index[machine]: count for machine, count in held.items()}, stay)
