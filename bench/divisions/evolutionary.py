"""Evolution: a population of divisions; a child has some jobs' machines of one parent, the rest as the other has it.

In the manner of DT-FM (Yuan et al. 2022, arXiv 2206.01288), whose groups of machines are the jobs here.
"""

from __future__ import annotations

import random

import numpy as np
from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split import moves
from hulk_placement.split.division import Divisions, Progress, move, nothing

from bench.divisions import sampling

POPULATION = 24


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """Draw a population, then breed: the best of parents and children stay."""
    rng = random.Random(seed)
    people: list[tuple[float, int, Ints]] = []
    while len(people) < POPULATION and (not people or progress() < 1.0):
        child = sampling.draw(divisions, rng)
        people.append((divisions.try_(child), len(people), child))
    born = len(people)
    while progress() < 1.0:
        mother, father = (min(rng.sample(people, min(3, len(people))))[2] for _ in range(2))
        child = _bred(divisions, mother, father, rng)
        people.append((divisions.try_(child), born, child))
        people = sorted(people)[:POPULATION]
        born += 1


def _bred(divisions: Divisions, mother: Ints, father: Ints, rng: random.Random) -> Ints:
    """Some rows of the mother, of the others what the father has and is left; then a change or two."""
    pools, num_jobs = divisions.pools, len(divisions.jobs)
    counts = nothing(pools, num_jobs)
    from_mother = [rng.random() < 0.5 for _ in range(num_jobs)]
    for row in sorted(range(num_jobs), key=lambda row: not from_mother[row]):
        parent = mother if from_mother[row] else father
        for pool in np.flatnonzero(parent[row]).tolist():
            move(pools, counts, pool, -1, row, int(parent[row, pool]))
    for _ in range(rng.randint(0, 2)):
        changed = moves.drawn(pools, counts, rng)
        counts = counts if changed is None else changed
    return counts
