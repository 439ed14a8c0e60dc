"""Every division there is, each job's step searched exactly: for a few machines and jobs, with a proof.

What cannot be better than the best known is not looked at: no job is quicker than with all that is left for it. The
layouts of the best are kept for `laid_out`. Of machines with links of their own nothing is proven: those of a pool are
alike here, and of all ways to hand them out one is tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split.arrange import Arranged, only
from hulk_placement.split.division import Divisions, Progress, nothing
from hulk_placement.split.pools import assign


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """Enumerate; `seed` decides nothing."""
    jobs, pools = divisions.jobs, divisions.pools
    shares: dict[tuple[int, bytes], Arranged | None] = {}
    best, open_value = math.inf, math.inf

    def share(number: int, row: Ints) -> Arranged | None:
        key = (number, row.tobytes())
        if key not in shares:
            shares[key] = arranged = Arranged.of(divisions, number, row)
            if arranged is not None:
                jobs[number].learn(row, arranged.prove(lambda: progress() < 1.0))
        return shares[key]

    def least(number: int, row: Ints) -> float:
        arranged = share(number, row)
        return math.inf if arranged is None else arranged.least

    everything = [least(number, np.minimum(pools.total_P, pools.most_JP[number])) for number in range(len(jobs))]

    def divide(number: int, counts: Ints, so_far: float) -> bool:
        nonlocal best, open_value
        if number == len(jobs):
            divisions.num_divisions += 1
            if _is_carried_out(divisions, counts):
                shared = (share(number, row) for number, row in enumerate(counts[:-1]))
                laid_out = [arranged for arranged in shared if arranged is not None]  # all of them: see below
                open_value = min(open_value, sum(arranged.least for arranged in laid_out))
                values = np.array([arranged.value for arranged in laid_out])
                if values.sum() < best:
                    best = divisions.keep(counts, values)
            return True
        for row in _rows(divisions, number, counts[-1]):
            if progress() >= 1.0:
                return False
            sum_ = so_far + least(number, row)
            if sum_ + sum(everything[number + 1 :]) < best:
                given = counts.copy()
                given[number], given[-1] = row, counts[-1] - row
                if not divide(number + 1, given, sum_):
                    return False
        return True

    is_whole = divide(0, nothing(pools, len(jobs)), 0.0) and progress() < 1.0
    if best < math.inf:
        _hand_on(divisions, share, progress)
    if is_whole and open_value >= best and not any(job.ground.topology.node_links for job in jobs):
        divisions.proven = best


def _hand_on(divisions: Divisions, share: Callable[[int, Ints], Arranged | None], progress: Progress) -> None:
    """Keep the layouts of the best division; a job with other machines there than by itself is laid out on those."""
    counts = divisions.best()[0]
    for number, machines in enumerate(assign(divisions.pools, counts[:-1])):
        arranged = share(number, counts[number])
        if arranged is None or arranged.topology.machines != only(arranged.job.ground.topology, machines).machines:
            arranged = Arranged.of(divisions, number, counts[number], machines)
            if arranged is not None:
                arranged.prove(lambda: progress() < 1.0)
        if arranged is not None:
            divisions.arranged[number, frozenset(machines.items())] = arranged


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
