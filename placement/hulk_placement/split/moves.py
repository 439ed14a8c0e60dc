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
        move(pools, counts, pool, source, target, some(pools, counts, source, pool, rng))


def _swap(pools: Pools, counts: Ints, source: int, target: int, rng: random.Random) -> None:
    """Some of one pool for some of another."""
    here, there = (np.flatnonzero(counts[row]).tolist() for row in (source, target))
    if here and there:
        out, back = rng.choice(here), rng.choice(there)
        num_out, num_back = some(pools, counts, source, out, rng), some(pools, counts, target, back, rng)
        move(pools, counts, out, source, target, num_out)
        if back != out:
            move(pools, counts, back, target, source, num_back)


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


def some(pools: Pools, counts: Ints, row: int, pool: int, rng: random.Random) -> int:
    """A power of two of quanta, or all."""
    held, quantum = int(counts[row, pool]), int(pools.quantum_P[pool])
    power = rng.randint(0, max(1, (held // quantum).bit_length()))
    return held if quantum << power >= held else quantum << power


def _all(pools: Pools, counts: Ints, source: int, target: int, region: int) -> None:
    for pool in np.flatnonzero(pools.region_P == region).tolist():
        move(pools, counts, pool, source, target, int(counts[source, pool]))


CHANGES: tuple[Change, ...] = (_give, _swap, _give_region, _swap_regions, _exchange)
WEIGHTS = (0.4, 0.25, 0.15, 0.15, 0.05)
