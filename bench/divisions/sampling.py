"""Random divisions: pools in a random order, cut into a piece for each job, some of it left out."""

from __future__ import annotations

import random

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split.division import Divisions, Progress, cut, move, nothing


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """Draw until the work is done; one at least."""
    rng = random.Random(seed)
    divisions.try_(draw(divisions, rng))
    while progress() < 1.0:
        divisions.try_(draw(divisions, rng))


def draw(divisions: Divisions, rng: random.Random) -> Ints:
    """One division: pieces of the pools in a random order, or every quantum to whom chance has it."""
    pools, num_jobs = divisions.pools, len(divisions.jobs)
    if rng.random() < 0.5:
        order_P, order_J = list(range(len(pools.total_P))), list(range(num_jobs))
        rng.shuffle(order_P)
        rng.shuffle(order_J)
        return cut(divisions, order_P, order_J)
    counts, left = nothing(pools, num_jobs), pools.total_P.copy()
    for pool in range(len(left)):
        while left[pool] > 0:
            row = rng.randrange(-1, num_jobs)
            num = min(int(pools.quantum_JP[row, pool]), int(left[pool]))
            move(pools, counts, pool, -1, row, num)
            left[pool] -= num
    return counts
