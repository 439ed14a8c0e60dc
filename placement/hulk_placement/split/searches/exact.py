"""Every division there is, each job's step searched exactly: for a few machines and jobs, with a proof.

What cannot be better than the best known is not looked at: no job is quicker than with all that is left for it.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split.arrange import Arranged
from hulk_placement.split.division import Divisions, Progress, nothing
from hulk_placement.split.pools import assign


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """Enumerate; `seed` decides nothing."""
    jobs, pools = divisions.jobs, divisions.pools
    known: dict[tuple[int, bytes], float] = {}

    def value(number: int, row: Ints) -> float:
        key = (number, row.tobytes())
        if key not in known:
            arranged = Arranged.of(divisions, number, row)
            known[key] = math.inf if arranged is None else arranged.prove(lambda: progress() < 1.0)
        return known[key]

    everything = [value(number, np.minimum(pools.total_P, pools.most_JP[number])) for number in range(len(jobs))]
    best = math.inf

    def divide(number: int, counts: Ints, so_far: float) -> bool:
        nonlocal best
        if number == len(jobs):
            divisions.num_divisions += 1
            if so_far < best and _is_carried_out(divisions, counts):
                best = so_far
                divisions.keep(counts, so_far)
            return True
        for row in _rows(divisions, number, counts[-1]):
            if progress() >= 1.0:
                return False
            sum_ = so_far + value(number, row)
            if sum_ + sum(everything[number + 1 :]) < best:
                given = counts.copy()
                given[number], given[-1] = row, counts[-1] - row
                if not divide(number + 1, given, sum_):
                    return False
        return True

    divisions.is_proven = divide(0, nothing(pools, len(jobs)), 0.0) and progress() < 1.0


def _is_carried_out(divisions: Divisions, counts: Ints) -> bool:
    """Whether single machines hold the whole workers of all jobs."""
    given = assign(divisions.pools, counts[:-1])
    return all(sum(part.values()) == row.sum() for part, row in zip(given, counts, strict=False))


def _rows(divisions: Divisions, number: int, left_P: Ints) -> itertools.chain[Ints]:
    """All that a job may have of what is left, in whole workers."""
    pools = divisions.pools
    most_P = np.minimum(left_P, pools.most_JP[number]).tolist()
    ranges = [range(0, most + 1, pools.each_J[number]) for most in most_P]
    return itertools.chain(np.array(row, np.int64) for row in itertools.product(*ranges))
