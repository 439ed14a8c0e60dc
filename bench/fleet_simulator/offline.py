"""Upper bounds of what any policy can reach, even one that knows all arrivals: a linear program over time.

    maximise  sum over jobs of hull(samples)
    subject to  samples <= best speed per worker × worker-seconds over the intervals after the arrival
                in each interval between arrivals: worker-seconds of a job <= most workers × length,
                accelerator-seconds of all, and of a namespace <= what there are × length

`hull` is never below the utility: between two points of a fine grid it takes the value at the upper one. Gangs,
machines and restarts are left out, which only raises the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hulk_placement.fleet.place import place
from hulk_placement.fleet.program import Rows, solve
from hulk_placement.fleet.room import Floats, Room
from hulk_placement.fleet.types import Job
from hulk_placement.fleet.utility import UtilityKind
from hulk_placement.fleet.worth import upper_hull

from bench.fleet_simulator.scenario import Scenario
from bench.fleet_simulator.step_times import PlacedStepTimes

NUM_POINTS = 400

TOLERANCE = 1e-6
"""Of the solver, which may stop so far below the optimum."""


def bound(scenario: Scenario) -> float:
    """No policy's total utility is above this; inf where jobs may go on for ever with a utility that grows."""
    if math.isinf(scenario.until_s):
        return _unbounded(scenario)
    room = Room(scenario.topology, scenario.settings)
    times = sorted({min(job.arrived_s, scenario.until_s) for job in scenario.jobs} | {scenario.until_s})
    intervals = list(pairwise(times))
    rows, constant = Rows(), 0.0
    held: list[list[int]] = []
    for job in scenario.jobs:
        worker_rate, rate, most = speed(scenario, room, job)
        constant += _job_columns(rows, held, job, (worker_rate, rate, most), intervals, scenario.until_s)
    _share(rows, held, scenario, intervals)
    return (constant + solve(rows).objective) * (1 + TOLERANCE)


def _unbounded(scenario: Scenario) -> float:
    """Without an end all work of every job that fits gets done."""
    room = Room(scenario.topology, scenario.settings)
    jobs = [job for job in scenario.jobs if int(room.most(job).sum()) >= job.min_workers]
    return sum(job.utility.value(job.total_work, job.total_work) for job in jobs)


def makespan_bound(scenario: Scenario) -> float:
    """No policy is through with all jobs sooner: all work shared out without loss, or the longest job alone."""
    room = Room(scenario.topology, scenario.settings)
    held_s, longest_s, first_s = 0.0, 0.0, min(job.arrived_s for job in scenario.jobs)
    for job in scenario.jobs:
        worker_rate, rate, most = speed(scenario, room, job)
        if most:
            held_s += job.accelerators_per_worker * job.left / worker_rate
            longest_s = max(longest_s, job.arrived_s - first_s + job.left / rate)
    num = sum(machine.num_accelerators for machine in scenario.topology.machines)
    return max(longest_s, held_s / max(1, num))


def speed(scenario: Scenario, room: Room, job: Job) -> tuple[float, float, int]:
    """Best samples per second of one worker among any number, of all together, and the most workers.

    Of step times that differ by place the shortest counts that any place could give: `place` finds a good one only.
    """
    most = min(job.max_workers, int(room.most(job).sum()))
    rates = [0.0]
    per_worker = [0.0]
    times = scenario.step_times
    admits = {name: int(number) for name, number in zip(room.names, room.most(job), strict=True) if number}
    for count in range(job.min_workers, most + 1):
        mapping = place(room, job, count)
        if mapping:
            step_s = times.step_s(job, mapping)
            if isinstance(times, PlacedStepTimes):
                step_s = min(step_s, times.least_step_s(job, admits, count))
            rate = job.step_work(count) / step_s
            rates.append(rate)
            per_worker.append(rate / count)
    return max(per_worker), max(rates), most if max(rates) else 0


def _job_columns(
    rows: Rows,
    held: list[list[int]],
    job: Job,
    speeds: tuple[float, float, int],
    intervals: Sequence[tuple[float, float]],
    until_s: float,
) -> float:
    """The job's worker-seconds by interval, its hull's segments, and the row between; the hull's value at none."""
    worker_rate, rate, most = speeds
    ways = [most * (end - start) if start >= job.arrived_s - 1e-9 else 0.0 for start, end in intervals]
    utility = job.utility
    per_second = utility.power_cost(1, job.watts_per_worker)
    mine = rows.columns([-per_second] * len(ways), ways)
    held.append(mine)
    reach = min(job.left, rate * max(0.0, until_s - job.arrived_s))
    if reach <= 0:
        return 0.0
    samples, gains = outer_hull(job, reach, rate)
    lengths, rises = np.diff(samples), np.diff(gains)
    segments = rows.columns([float(rise) for rise in rises / lengths], [float(length) for length in lengths])
    rows.add([*segments, *mine], [*[1.0] * len(segments), *[-worker_rate] * len(mine)], 0.0)
    return float(gains[0])


def outer_hull(job: Job, reach: float, rate: float) -> tuple[Floats, Floats]:
    """A concave curve that is nowhere below the job's utility, from what it has done to what it can reach."""
    points = reach * np.linspace(0, 1, NUM_POINTS)
    points = np.union1d(points, reach * np.geomspace(1e-6, 1, NUM_POINTS))
    utility = job.utility
    if utility.kind is UtilityKind.SIGMOID:
        around = np.concatenate([np.linspace(-10, 10, 201), np.linspace(10, 40, 61)]) / (utility.steepness or 1.0)
        around = (utility.midpoint or 0.0) + around - job.work_done
        points = np.union1d(points, around[(around > 0) & (around < reach)])
    late = utility.kind is UtilityKind.DEADLINE and not _in_time(job, rate)
    gains = np.exp(utility.log_gain(0.0, job.work_done + points, job.total_work, late))
    if utility.kind is UtilityKind.DEADLINE and not late:
        gains = np.maximum(gains, np.exp(utility.log_gain(0.0, job.work_done + points, job.total_work, True)))
    above = np.append(gains[1:], gains[-1])
    return upper_hull(points, above)


def _in_time(job: Job, rate: float) -> bool:
    deadline_s = job.utility.deadline_s
    return deadline_s is not None and job.left <= rate * (deadline_s - job.arrived_s) * (1 + 1e-9)


def _share(
    rows: Rows, held: Sequence[Sequence[int]], scenario: Scenario, intervals: Sequence[tuple[float, float]]
) -> None:
    """In every interval no more than the machines have, and no more than a namespace's quota."""
    num = sum(machine.num_accelerators for machine in scenario.topology.machines)
    limits = [(None, num), *scenario.settings.quotas.items()]
    for place_, (start, end) in enumerate(intervals):
        for namespace, limit in limits:
            jobs = [n for n, job in enumerate(scenario.jobs) if namespace in (None, job.namespace)]
            wanted = [float(scenario.jobs[n].accelerators_per_worker) for n in jobs]
            rows.add([held[n][place_] for n in jobs], wanted, float(limit) * (end - start))
