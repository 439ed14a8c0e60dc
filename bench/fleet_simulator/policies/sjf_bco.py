"""Smallest job first with balanced contention and overhead (SJF-BCO, MobiHoc'22): jobs queue at accelerators.

Jobs by size, the smallest first. Small ones are packed onto the servers that are fullest already, so that rings share
few links; large ones take the least busy servers. A job starts when all its accelerators are through with the jobs
before it, and is never interrupted. Both the limit on an accelerator's busy time and the size from which on a job is
large are searched, and the plan with the least makespan is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hulk_placement.fleet.policies.fifo import asked, can_ever
from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.room import Counts, Floats, Room
from hulk_placement.fleet.types import Job

from bench.fleet_simulator.step_times import SharedStepTimes

HALVINGS = 4

Ringed = tuple[float, dict[str, int]]
"""A ring that spans machines: when it ends, and its mapping."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan: when everything is done, and the mappings of the jobs that start at once."""

    makespan_s: float
    starting: dict[str, dict[str, int]]


def sjf_bco(problem: Problem) -> dict[str, dict[str, int]]:
    """Running jobs stay; of the others those start whose accelerators are free by the best plan."""
    room = problem.room()
    chosen = {key: dict(mapping) for key, mapping in problem.held.items()}
    waiting = [job for job in problem.jobs if job.key not in chosen and can_ever(room, job)]
    if not waiting:
        return chosen
    queue = _Queue(problem, room)
    for job in sorted(problem.jobs, key=lambda job: job.key not in chosen):
        if job.key in chosen:
            queue.run(job, chosen[job.key])
    if not any((queue.ready_s == 0).sum() >= queue.size(job) * job.accelerators_per_worker for job in waiting):
        return chosen
    best = _best(queue, sorted(waiting, key=lambda job: (-job.priority, queue.size(job), job.arrived_s)))
    for job in waiting:
        mapping = best.starting.get(job.key)
        if mapping and _takes(problem, chosen, job, mapping):
            chosen[job.key] = mapping
    return chosen


def _takes(problem: Problem, chosen: dict[str, dict[str, int]], job: Job, mapping: dict[str, int]) -> bool:
    """Whether the mapping fits beside what is chosen: a quota may say no where accelerators are free."""
    room = problem.room()
    jobs = {other.key: other for other in problem.jobs}
    for key, taken in chosen.items():
        room.take(jobs[key], taken)
    return room.fits(job, mapping)


def _best(queue: _Queue, order: list[Job]) -> Planned:
    """The plan of least makespan over sizes that count as large, and limits of busy time by halving."""
    best = Planned(math.inf, {})
    for large in sorted({queue.size(job) for job in order} | {1 << 30}):
        low_s, high_s = 0.0, math.inf
        limit_s = math.inf
        for _ in range(HALVINGS):
            found = queue.plan(order, large, limit_s)
            if found is None:
                low_s = limit_s
            else:
                high_s = min(limit_s, found.makespan_s)
                best = min(best, found, key=lambda plan: plan.makespan_s)
            limit_s = (low_s + high_s) / 2
    return best


class _Queue:
    """Every accelerator and when it is through with what it has; accelerators of a machine lie together."""

    def __init__(self, problem: Problem, room: Room) -> None:
        self.problem, self.room = problem, room
        self.machine: Counts = np.repeat(np.arange(len(room.names)), room.size)
        self.ready_s: Floats = np.zeros(len(self.machine))
        self.rings: list[Ringed] = []

    def size(self, job: Job) -> int:
        """Workers that the job asks for."""
        return asked(self.room, job, self.problem.settings)

    def run(self, job: Job, mapping: dict[str, int]) -> None:
        """A running job holds the first free accelerators of its machines until it is done."""
        end_s = self.problem.left_s(job, mapping)
        for machine, count in mapping.items():
            free = np.flatnonzero((self.machine == self.room.index[machine]) & (self.ready_s == 0))
            self.ready_s[free[: count * job.accelerators_per_worker]] = end_s
        if len(mapping) > 1:
            self.rings.append((end_s, mapping))

    def _left_s(self, job: Job, mapping: dict[str, int], begin_s: float, rings: list[Ringed]) -> float:
        """Seconds that the job takes from then on beside the rings that have not ended by then."""
        times = self.problem.step_times
        if len(mapping) < 2 or not isinstance(times, SharedStepTimes):
            return self.problem.left_s(job, mapping)
        others = [there for end_s, there in rings if end_s > begin_s]
        most = max(sum(machine in there for there in others) for machine in mapping)
        step_s = times.shared_step_s(job, mapping, 1 + most)
        return job.left / job.step_work(sum(mapping.values())) * step_s

    def plan(self, order: list[Job], large: int, limit_s: float) -> Planned | None:
        """All jobs in order; None where one does not fit within the limit."""
        ready_s, starting, rings = self.ready_s.copy(), {}, list(self.rings)
        for job in order:
            taken = self._take(job, ready_s, self.size(job) >= large, limit_s)
            if taken is None:
                return None
            mapping = self._mapping(job, taken)
            begin_s = float(ready_s[taken].max())
            ready_s[taken] = end_s = begin_s + self._left_s(job, mapping, begin_s, rings)
            if len(mapping) > 1:
                rings.append((end_s, mapping))
            if ready_s[taken].max() > limit_s:
                return None
            if begin_s <= 0:
                starting[job.key] = mapping
        return Planned(float(ready_s.max()), starting)

    def _take(self, job: Job, ready_s: Floats, is_large: bool, limit_s: float) -> Counts | None:
        """The accelerators for a job, whole workers of a machine together."""
        per_worker, size = max(1, job.accelerators_per_worker), self.size(job)
        usable = (ready_s < limit_s) & (self.room.most(job)[self.machine] > 0)
        num = len(self.room.names)
        busy_s = np.bincount(self.machine, weights=ready_s, minlength=num) / np.maximum(1, self.room.size)
        by_machine = busy_s if is_large else -busy_s
        order = np.lexsort((ready_s, self.machine, by_machine[self.machine]))
        order = order[usable[order]]
        inside = np.bincount(self.machine[order], minlength=num)
        alone = np.flatnonzero(inside >= size * per_worker)
        if alone.size and not is_large:
            best = alone[np.argmin(by_machine[alone])]
            here: Counts = order[self.machine[order] == best]
            return here[: size * per_worker]
        if is_large:
            return self._least_busy(order, ready_s, job, size, per_worker)
        return self._in_order(order, job, size, per_worker)

    def _least_busy(self, order: Counts, ready_s: Floats, job: Job, size: int, per_worker: int) -> Counts | None:
        """Of the least busy machines that hold the job twice over, the accelerators that are free first."""
        enough = order[: 2 * size * per_worker]
        by_machine = {
            int(m): float(np.sort(ready_s[enough[self.machine[enough] == m]])[:per_worker].max())
            for m in set(self.machine[enough])
        }
        ranked = sorted(
            enough, key=lambda place: (by_machine[int(self.machine[place])], self.machine[place], ready_s[place])
        )
        return self._in_order(np.array(ranked, dtype=np.int64), job, size, per_worker)

    def _in_order(self, order: Counts, job: Job, size: int, per_worker: int) -> Counts | None:
        """Whole workers along an order of accelerators."""
        taken: list[int] = []
        most = self.room.most(job)
        for machine in dict.fromkeys(self.machine[order].tolist()):
            here = order[self.machine[order] == machine]
            count = min(len(here) // per_worker, int(most[machine]), size - len(taken) // per_worker)
            taken += here[: count * per_worker].tolist()
            if len(taken) == size * per_worker:
                return np.array(taken, dtype=np.int64)
        return None

    def _mapping(self, job: Job, taken: Counts) -> dict[str, int]:
        machines, counts = np.unique(self.machine[taken], return_counts=True)
        return {
            self.room.names[machine]: int(count) // max(1, job.accelerators_per_worker)
            for machine, count in zip(machines, counts, strict=True)
        }
