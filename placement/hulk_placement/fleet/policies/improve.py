"""Local search on true speed: mappings change as long as that gains, by the step times of the very machines.

The relaxation counts workers as if every number of them were on its best machines. Here each job's gain is that of the
machines that it got, and a job may move, grow, shrink, start, or change machines with another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hulk_placement.fleet.place import place
from hulk_placement.fleet.problem import Problem
from hulk_placement.fleet.types import Job, Mapped
from hulk_placement.fleet.worth import Worth, mapping_gain

MOST_PLACINGS = 6000
LEAST = 1e-9
"""Of the best job's gain, what a change must gain."""

Chosen = dict[str, dict[str, int]]


def improve(problem: Problem, worths: Mapping[str, Worth], chosen: Chosen) -> Chosen:
    """Mappings that gain no less; jobs that may not be interrupted keep theirs."""
    search = _Search(problem, worths, chosen)
    while search.one_round() and search.num_placings < MOST_PLACINGS:
        pass
    return search.chosen


class _Search:
    """The mappings under way, what they leave free, and what each gains."""

    def __init__(self, problem: Problem, worths: Mapping[str, Worth], chosen: Chosen) -> None:
        self.problem, self.worths, self.chosen = problem, worths, dict(chosen)
        self.room, self.num_placings = problem.room(), 0
        scale = max((w.log_scale for w in worths.values()), default=-math.inf)
        self.factor = {
            key: math.exp(worth.log_scale - scale) if math.isfinite(worth.log_scale) else 0.0
            for key, worth in worths.items()
        }
        self.jobs = [
            job for job in problem.jobs if self.factor[job.key] and (job.preemptible or job.key not in problem.held)
        ]
        by_key = {job.key: job for job in problem.jobs}
        for key, mapping in chosen.items():
            self.room.take(by_key[key], mapping)

    def gain(self, job: Job, mapping: Mapped) -> float:
        """Of a job on a mapping, in the unit of the search."""
        if not mapping:
            return 0.0
        return self.factor[job.key] * mapping_gain(self.problem, self.worths[job.key], mapping)

    def one_round(self) -> bool:
        """Every job once alone, then those that lose most against another's machines; whether anything gained."""
        gained = [self._alone(job) for job in self.jobs]
        lacking = sorted(self.jobs, key=self._lost, reverse=True)[:8]
        exchanged = [self._exchange(job, other) for job in lacking if self._lost(job) > LEAST for other in self.jobs]
        return any(gained) or any(exchanged)

    def _lost(self, job: Job) -> float:
        """What the job would gain more with its best number of workers on machines that are best for it."""
        best = max(self.worths[job.key].gains) * self.factor[job.key]
        return best - self.gain(job, self.chosen.get(job.key, {}))

    def _alone(self, job: Job) -> bool:
        """The job's best mapping on what the others leave free."""
        before = self.chosen.get(job.key, {})
        if self._lost(job) <= LEAST:
            return False
        self._set(job, {})
        best = self._best(job, before)
        self._set(job, best)
        return best != before

    def _exchange(self, job: Job, other: Job) -> bool:
        """Both placed anew, the first one first, where that gains for both together."""
        if other.priority > job.priority or other.key not in self.chosen or job.key == other.key:
            return False
        if self.num_placings >= MOST_PLACINGS:
            return False
        before = self.chosen.get(job.key, {}), self.chosen[other.key]
        worth_before = self.gain(job, before[0]) + self.gain(other, before[1])
        self._set(job, {})
        self._set(other, {})
        mine = self._best(job, {})
        self._set(job, mine)
        theirs = self._best(other, before[1] if self.room.fits(other, before[1]) else {})
        self._set(other, theirs)
        more = self.gain(job, mine) + self.gain(other, theirs) - worth_before
        if more > LEAST or (job.priority > other.priority and self.gain(job, mine) > self.gain(job, before[0]) + LEAST):
            return True
        self._set(other, {})
        self._set(job, before[0])
        self._set(other, before[1])
        return False

    def _best(self, job: Job, before: dict[str, int]) -> dict[str, int]:
        """Of the present mapping and of new ones with each number of workers that was looked at, the best."""
        best, most = before, self.gain(job, before) + LEAST
        room_for = int(self.room.admits(job).sum())
        counts = {*self.worths[job.key].counts[1:], min(room_for, job.max_workers), self._largest_together(job)}
        for count in sorted(counts):
            if not job.min_workers <= count <= min(room_for, job.max_workers):
                continue
            self.num_placings += 1
            for held in (self.problem.held.get(job.key), None):
                mapping = place(self.room, job, count, held)
                if mapping and self.gain(job, mapping) > most:
                    best, most = mapping, self.gain(job, mapping) + LEAST
        return best

    def _largest_together(self, job: Job) -> int:
        """The most workers that one machine has room for."""
        return min(job.max_workers, int(self.room.admits(job).max(initial=0)))

    def _set(self, job: Job, mapping: dict[str, int]) -> None:
        if job.key in self.chosen:
            self.room.give(job, self.chosen.pop(job.key))
        if mapping:
            self.room.take(job, mapping)
            self.chosen[job.key] = mapping


def total_gain(
    problem: Problem, worths: Mapping[str, Worth], jobs: Sequence[Job], chosen: Mapping[str, Mapped], log_scale: float
) -> float:
    """Gain per second of all mappings, in units of e^log_scale."""
    return sum(
        math.exp(worths[job.key].log_scale - log_scale) * mapping_gain(problem, worths[job.key], chosen[job.key])
        for job in jobs
        if job.key in chosen and math.isfinite(worths[job.key].log_scale)
    )
