"""Divisions of all pools among the jobs that were tried, and the best of them.

A division is an array of J + 1 rows: accelerators of each pool for each job, and in the last row those that none has.
Its value is the sum of the logarithms of what the jobs' steps take, so that a job's hours weigh as much as another's
seconds; least is best.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.split.estimate import IMPOSSIBLE
from hulk_placement.split.job import Job
from hulk_placement.split.pools import Pools
from hulk_placement.stopping import RUN_S, known_steps

if TYPE_CHECKING:
    from hulk_placement.split.arrange import Arranged

Progress = Callable[[], float]
"""How much of a search's work is done: 1 or more ends it."""

KEPT = 64


@dataclass
class Divisions:
    """All that was tried for some jobs on some pools."""

    pools: Pools
    jobs: list[Job]
    num_divisions: int = 0
    """Asked about, one that was asked about before counts again."""
    num_guessed: int = 0
    """Shares that a network was asked about."""
    proven: float = math.nan
    """The value below which that of no division is, infinite where none is possible; nan where nothing is proven."""
    arranged: dict[tuple[int, frozenset[tuple[str, int]]], Arranged] = field(default_factory=dict, repr=False)
    """Jobs laid out, by their numbers and machines."""
    least_value: float = math.inf
    """Of all that were tried in which every job has a layout."""
    first_value: float = math.inf
    """Of the first of these."""
    run_s: float = 0.0
    """Seconds that a job runs by the first of these, in the mean."""
    _kept: list[tuple[float, int, Ints]] = field(default_factory=list, repr=False)
    _num_kept: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether it is known what the best division is worth."""
        return not math.isnan(self.proven)

    @property
    def num_evaluations(self) -> int:
        """Layouts that were priced."""
        return sum(job.num_evaluations for job in self.jobs)

    def values(self, counts: Ints) -> Floats:
        """The value of each job."""
        self.num_divisions += 1
        return np.array([job.value(row) for job, row in zip(self.jobs, counts, strict=False)])

    def values_after(self, counts: Ints, values: Floats, changed: Ints) -> Floats:
        """The values of the jobs after a change."""
        self.num_divisions += 1
        new = values.copy()
        for number in np.flatnonzero((changed[:-1] != counts[:-1]).any(axis=1)).tolist():
            new[number] = self.jobs[number].value(changed[number])
        return new

    def keep(self, counts: Ints, values: Floats) -> float:
        """Remember a division; its value, the sum of those of all jobs."""
        value = float(values.sum())
        if value < self.least_value and (values < IMPOSSIBLE / 2).all():
            self.least_value = value
            if self.first_value == math.inf:
                self.first_value, self.run_s = value, _mean_run_s(self.jobs, np.exp(values))
        self._num_kept += 1
        entry = (-value, -self._num_kept, counts.copy())
        if len(self._kept) < KEPT:
            heapq.heappush(self._kept, entry)
        elif -value > self._kept[0][0]:
            heapq.heapreplace(self._kept, entry)
        return value

    def try_(self, counts: Ints) -> float:
        """The value of a division, remembered."""
        return self.keep(counts, self.values(counts))

    def best(self, num: int = 1) -> list[Ints]:
        """The best that differ, the best first."""
        found: dict[bytes, Ints] = {}
        for _, _, counts in sorted(self._kept, key=lambda entry: (-entry[0], -entry[1])):
            found.setdefault(counts.tobytes(), counts)
        return list(found.values())[:num]

    def is_any_possible(self) -> bool:
        """Whether every job has a layout in the best that was tried."""
        found = self.best()
        return bool(found and (self.values(found[0]) < IMPOSSIBLE / 2).all())


def _mean_run_s(jobs: Sequence[Job], costs: Floats) -> float:
    """Of jobs whose steps cost so much."""
    known = [(known_steps(job.workload), cost) for job, cost in zip(jobs, costs.tolist(), strict=True)]
    return sum(RUN_S if num_steps is None else num_steps * cost for num_steps, cost in known) / len(known)


def nothing(pools: Pools, num_jobs: int) -> Ints:
    """The division in which no job has anything."""
    counts = np.zeros((num_jobs + 1, len(pools.total_P)), np.int64)
    counts[-1] = pools.total_P
    return counts


def move(pools: Pools, counts: Ints, pool: int, source: int, target: int, num: int) -> int:
    """Give accelerators of a pool from one row to another, as many as there are and may be; how many that is.

    They are whole workers of who gets them. What is left of a worker of who gives them is nobody's. Where workers have
    3 and 2 accelerators, and 9 and 0 are held:

    asked for   given   held then   nobody's
            1       0           9          0
            2       2           6          1
            4       4           3          2
    """
    nobody = len(counts) - 1
    num = min(num, int(counts[source, pool]))
    if target not in (-1, nobody):
        num = min(num, int(pools.most_JP[target, pool] - counts[target, pool]))
    num -= num % pools.each_J[target]
    rest = int(counts[source, pool] - num) % pools.each_J[source]
    counts[source, pool] -= num + rest
    counts[target, pool] += num
    counts[nobody, pool] += rest
    return num


def cut(divisions: Divisions, order_P: list[int], order_J: list[int]) -> Ints:
    """All pools in an order, cut into one piece for each job in an order, of as much speed each.

    The largest workers go first.
    Speed is each job's own; where a job may not use a pool, or has enough, the next one goes on.
    """
    pools, jobs = divisions.pools, divisions.jobs
    counts = nothing(pools, len(jobs))
    for turn, job in enumerate(pools.largest_first(order_J)):
        speed_P = speed_by_pool(jobs[job])
        wanted = float((speed_P * counts[-1]).sum()) / (len(order_J) - turn)
        for pool in order_P:
            per, quantum = float(speed_P[pool]), int(pools.quantum_JP[job, pool])
            while per > 0.0 and wanted > 0.0 and counts[-1, pool] > 0:
                quanta = max(1, round(wanted / per / quantum))
                given = move(pools, counts, pool, -1, job, quanta * quantum)
                wanted -= given * per
                if not given:
                    break
    return counts


def speed_by_pool(job: Job) -> Floats:
    """Micro-batches a second of one accelerator of each pool; 0 where the job may not use it."""
    setting = job.setting(job.space.options[0])
    kind_P = setting.kind_M[job.first_P]
    seconds_P = setting.forward_KJ[kind_P, -1] + setting.backward_KJ[kind_P, -1]
    return np.where(job.most_P > 0, 1.0 / seconds_P, 0.0)


def along(divisions: Divisions, first: int) -> list[int]:
    """Pools by region, from one region on always the nearest that is left."""
    job = divisions.jobs[0]
    walk, left = [first], [region for region in range(len(job.ground.regions)) if region != first]
    while left:
        nearest = min(left, key=lambda region: (job.both_RR[walk[-1], region], region))
        walk.append(nearest)
        left.remove(nearest)
    region_P = job.ground.region_M
    return list(itertools.chain.from_iterable(np.flatnonzero(region_P == region).tolist() for region in walk))
