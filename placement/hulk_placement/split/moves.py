"""Changes of a division: accelerators, whole regions or all that they have change hands between two jobs.

"Nobody" takes part as a job does: machines may be left out and taken up.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split.division import move
from hulk_placement.split.pools import Pools

Change = Callable[[Pools, Ints, int, int, random.Random], None]


def drawn(pools: Pools, counts: Ints, rng: random.Random) -> Ints | None:
    """The division after a change at random; None where it changes nothing."""
    num_jobs = len(counts) - 1
    source, target = rng.sample(range(num_jobs + 1), 2)
    changed = counts.copy()
    rng.choices(CHANGES, WEIGHTS)[0](pools, changed, source, target, rng)
    return None if (changed == counts).all() else changed


def _give(pools: Pools, counts: Ints, source: int, target: int, rng: random.Random) -> None:
    """Some of one pool, to the other."""
    held = np.flatnonzero(counts[source]).tolist()
    if held:
        pool = rng.choice(held)
        num = some(pools, counts, pool, source, target, rng)
        _hand_over(pools, counts, pool, source, target, num, rng)


def _hand_over(pools: Pools, counts: Ints, pool: int, source: int, target: int, num: int, rng: random.Random) -> None:
    """Accelerators from one row to another; where they make no worker, one of what nobody has and others give up."""
    if move(pools, counts, pool, source, target, num):
        return
    nobody, need = len(counts) - 1, pools.each_J[target]
    if target == nobody or pools.most_JP[target, pool] - counts[target, pool] < need:
        return
    for row in rng.sample(range(nobody), nobody):
        if row != target and (lacking := need - int(counts[nobody, pool])) > 0:
            move(pools, counts, pool, row, nobody, lacking)
    move(pools, counts, pool, nobody, target, need)


def _swap(pools: Pools, counts: Ints, source: int, target: int, rng: random.Random) -> None:
    """Some of one pool for some of another."""
    here, there = (np.flatnonzero(counts[row]).tolist() for row in (source, target))
    if here and there:
        out, back = rng.choice(here), rng.choice(there)
        if out != back and counts[target, back] < pools.each_J[source]:
            _change_places(pools, counts, source, out, back, rng)
            return
        num_out = some(pools, counts, out, source, target, rng)
        num_back = some(pools, counts, back, target, source, rng)
        _hand_over(pools, counts, out, source, target, num_out, rng)
        if back != out:
            _hand_over(pools, counts, back, target, source, num_back, rng)


def _change_places(pools: Pools, counts: Ints, job: int, here: int, there: int, rng: random.Random) -> None:
    """A worker goes from one pool to another; those who make room for it there get as much in its old place."""
    nobody, need = len(counts) - 1, pools.each_J[job]
    if pools.most_JP[job, there] - counts[job, there] < need:
        return
    move(pools, counts, here, job, nobody, need)
    for row in rng.sample(range(nobody), nobody):
        if row != job and (lacking := need - int(counts[nobody, there])) > 0:
            held = int(counts[row, there])
            move(pools, counts, there, row, nobody, lacking)
            move(pools, counts, here, nobody, row, held - int(counts[row, there]))
    move(pools, counts, there, nobody, job, need)


def _give_region(pools: Pools, counts: Ints, source: int, target: int, rng: random.Random) -> None:
    """All that one has in a region."""
    region_P = pools.region_P[counts[source] > 0]
    if len(region_P):
        _all(pools, counts, source, target, int(rng.choice(region_P.tolist())))


def _swap_regions(pools: Pools, counts: Ints, source: int, target: int, rng: random.Random) -> None:
    """All that one has in a region for all that the other has in another."""
    here, there = (pools.region_P[counts[row] > 0].tolist() for row in (source, target))
    if here and there:
        out, back = rng.choice(here), rng.choice(there)
        if out != back:
            _all(pools, counts, source, target, out)
            _all(pools, counts, target, source, back)


def _exchange(pools: Pools, counts: Ints, source: int, target: int, rng: random.Random) -> None:
    """All that two jobs have, as far as each may use it."""
    if len(counts) - 1 in (source, target):
        return
    here, there = counts[source].copy(), counts[target].copy()
    counts[-1] += here + there
    counts[source] = counts[target] = 0
    for pool in range(counts.shape[1]):
        move(pools, counts, pool, -1, source, int(there[pool]))
        move(pools, counts, pool, -1, target, int(here[pool]))


def some(pools: Pools, counts: Ints, pool: int, source: int, target: int, rng: random.Random) -> int:
    """A power of two of quanta, the larger of both rows', or all."""
    held, quantum = int(counts[source, pool]), int(pools.quantum_JP[[source, target], pool].max())
    power = rng.randint(0, max(1, (held // quantum).bit_length()))
    return held if quantum << power >= held else quantum << power


def _all(pools: Pools, counts: Ints, source: int, target: int, region: int) -> None:
    for pool in np.flatnonzero(pools.region_P == region).tolist():
        move(pools, counts, pool, source, target, int(counts[source, pool]))


CHANGES: tuple[Change, ...] = (_give, _swap, _give_region, _swap_regions, _exchange)
WEIGHTS = (0.4, 0.25, 0.15, 0.15, 0.05)
