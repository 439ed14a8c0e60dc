"""One decision's question, made of what `decide` is given: which jobs, what they hold, what is free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hulk_placement.fleet.place import largest
from hulk_placement.fleet.room import Room, workers
from hulk_placement.fleet.types import Job, Mapped, Settings, StepTimes
from hulk_placement.topology import Topology

if TYPE_CHECKING:
    from hulk_placement.fleet.worth import Worth


@dataclass(frozen=True)
class Problem:
    """Jobs that are not done, in order of priority and arrival, and the mappings of those that run as they may stay.

    A running job whose machines are gone, or hold less than they did, holds nothing here: it is to be placed anew.
    """

    now_s: float
    jobs: Sequence[Job]
    held: Mapping[str, Mapped]
    topology: Topology
    step_times: StepTimes
    settings: Settings
    quotas: Mapping[str, int]
    """Accelerators that the jobs of a namespace may have here: no fewer than those have that cannot be interrupted."""
    worths: dict[str, Worth] = field(default_factory=dict, repr=False, compare=False)
    """What is known of each job's worth: `worth.all_worths` fills it once."""

    def room(self) -> Room:
        """Machines and links as if no job ran."""
        room = Room(self.topology, self.settings)
        room.quotas.left.update(self.quotas)
        return room

    def rate(self, job: Job, mapping: Mapped) -> float:
        """Samples per second of the job on a mapping."""
        if not mapping:
            return 0.0
        return job.step_work(workers(mapping)) / self.step_times.step_s(job, mapping)

    def left_s(self, job: Job, mapping: Mapped) -> float:
        """Seconds to the job's end on a mapping; inf where it does not get there."""
        rate = self.rate(job, mapping)
        return job.left / rate if rate else math.inf


def ask(
    now_s: float,
    jobs: Sequence[Job],
    topology: Topology,
    running: Mapping[str, Mapped],
    step_times: StepTimes,
    settings: Settings,
) -> Problem:
    """The question; what runs without fitting any more is dropped from the lowest priority up.

    Jobs that cannot be interrupted keep what they have as long as the machines have it, whatever the quotas say.

    Who moved less than `settle_s` ago stays, unless a job of a higher priority waits. A move that lies ahead, because
    the clock was set back, is none.
    """
    highest = max((job.priority for job in jobs if job.left > 0 and not running.get(job.key)), default=0)
    waiting = sorted(
        (
            replace(job, preemptible=False)
            if 0 <= now_s - job.moved_s < settings.settle_s and job.priority >= highest and running.get(job.key)
            else job
            for job in jobs
            if job.left > 0
        ),
        key=lambda job: (-job.priority, job.arrived_s),
    )
    room = Room(topology, settings)
    before, held = dict(room.quotas.left), _pinned(room, jobs, running)
    quotas = {namespace: before[namespace] + max(0, -left) for namespace, left in room.quotas.left.items()}
    for job in sorted(waiting, key=lambda job: job.preemptible):
        mapping = running.get(job.key, {})
        if job.key not in held and mapping and room.fits(job, mapping):
            room.take(job, mapping)
            held[job.key] = dict(mapping)
    return Problem(now_s, tuple(waiting), held, topology, step_times, settings, quotas)


def _pinned(room: Room, jobs: Sequence[Job], running: Mapping[str, Mapped]) -> dict[str, Mapped]:
    """What the jobs have that cannot be interrupted, taken in the room."""
    held: dict[str, Mapped] = {}
    for job in jobs:
        mapping = running.get(job.key, {})
        if job.left > 0 and mapping and not job.preemptible and room.has_accelerators(job, mapping):
            room.take(job, mapping)
            held[job.key] = dict(mapping)
    return held


def carry_out(
    problem: Problem, wanted: Sequence[tuple[Job, int]], others: Sequence[Job] = ()
) -> dict[str, dict[str, int]]:
    """Mappings for the wanted numbers of workers, the highest priority first, within it earlier ones first.

    Of one priority whoever wants what it holds keeps it where it can; whoever cannot be interrupted keeps it in any
    case. A number that does not fit becomes the next smaller one that does, down to the job's least. `others` then get
    their least where it fits, before a lower priority's turn.
    """
    room, chosen = problem.room(), {}
    for job in problem.jobs:
        if not job.preemptible and job.key in problem.held:
            room.take(job, problem.held[job.key])
            chosen[job.key] = dict(problem.held[job.key])
    for priority in sorted({job.priority for job in problem.jobs}, reverse=True):
        mine = [(job, count) for job, count in wanted if job.priority == priority and job.key not in chosen]
        for job, count in mine:
            mapping = problem.held.get(job.key)
            if mapping and workers(mapping) == count and room.fits(job, mapping):
                room.take(job, mapping)
                chosen[job.key] = dict(mapping)
        for job, count in [*mine, *((job, job.min_workers) for job in others if job.priority == priority)]:
            found = None if job.key in chosen else largest(room, job, count, problem.held.get(job.key))
            if found:
                room.take(job, found)
                chosen[job.key] = found
    return chosen
