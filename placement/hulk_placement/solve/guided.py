"""Local search from divisions that the value network proposes: drawn by the dozen, the best changed by guesses alone.

The network decides nothing: what it proposes is priced by constructed layouts, and changed further by their prices.
"""

from __future__ import annotations

import random

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.guide import Guide
from hulk_placement.gnn.network import Network
from hulk_placement.split import local
from hulk_placement.split.division import Divisions, Progress, along, cut, speed_by_pool

PROPOSED_END = 0.4
"""Part of the work after which no more divisions are drawn and changed by guesses alone."""

DRAWN_END = 0.1
"""As above, drawn."""

DRAWN_A_TIME, MOST_DRAWN, NUM_PROPOSED, MOST_CHANGED = 16, 512, 6, 400
"""Divisions that are drawn and guessed together, all that are drawn, those that are changed by guesses, how often."""

BLIND_SHARE = 0.25
"""Of what is drawn: divisions without regard to regions."""

SPREADS = (0.0, 0.5)
"""Of the logarithms of the pieces' widths."""


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """By the network of the package."""
    search_with(divisions, progress, seed, Guide(divisions, Network.trained()))


def search_with(divisions: Divisions, progress: Progress, seed: int, guide: Guide) -> None:
    """By a given network."""
    rng = random.Random(seed)
    for turn, counts in enumerate(proposed(guide, rng, progress)):
        if turn and progress() >= PROPOSED_END + local.STARTS_END:
            break
        divisions.try_(counts)
    if progress() < PROPOSED_END + local.STARTS_END:
        local.scan(divisions, divisions.best()[0])
    local.anneal(divisions, divisions.best(local.NUM_CHAINS), progress, rng)


def proposed(guide: Guide, rng: random.Random, progress: Progress) -> list[Ints]:
    """Divisions of low guessed values, the best first: drawn by the dozen, and the best of them changed by guesses."""
    divisions = guide.divisions
    found = [cut(divisions, along(divisions, 0), list(range(len(divisions.jobs))))]
    while len(found) < MOST_DRAWN and (len(found) < DRAWN_A_TIME or progress() < DRAWN_END):
        found += drawn(divisions, rng, DRAWN_A_TIME)
    best = guide.ranked(found)[:NUM_PROPOSED]
    for turn in range(MOST_CHANGED):
        if progress() >= PROPOSED_END:
            break
        rank = turn % len(best)
        rise, changed = guide.exchange(best[rank], rng)
        if rise < 0.0:
            best[rank] = changed
    return guide.ranked(best)


def drawn(divisions: Divisions, rng: random.Random, num: int) -> list[Ints]:
    """Pieces for the jobs in any order along the nearest regions from any on; now and then along pools in any order."""
    num_jobs, found = len(divisions.jobs), []
    speed_JP = np.array([speed_by_pool(job) for job in divisions.jobs])
    size_P = (speed_JP / speed_JP.sum(axis=1, keepdims=True)).sum(axis=0) * divisions.pools.total_P
    walks: dict[int, list[int]] = {}
    for _ in range(num):
        first = rng.randrange(len(divisions.jobs[0].ground.regions))
        order_P = walks.setdefault(first, walks.get(first) or along(divisions, first))
        if rng.random() < BLIND_SHARE:
            order_P = rng.sample(order_P, len(order_P))
        spread = rng.choice(SPREADS)
        width_J = np.exp([spread * rng.gauss(0.0, 1.0) for _ in range(num_jobs)])
        order_J = divisions.pools.largest_first(rng.sample(range(num_jobs), num_jobs))
        found.append(pieces(divisions, size_P[order_P], order_P, order_J, width_J))
    return found


def pieces(divisions: Divisions, size_W: Floats, order_W: list[int], order_J: list[int], width_J: Floats) -> Ints:
    """Pools of given sizes in an order, cut into pieces of given widths, in whole workers.

    What a job may not have is left to nobody.
    """
    pools, counts = divisions.pools, np.zeros((len(order_J) + 1, len(order_W)), np.int64)
    end_W, cut_J = np.cumsum(size_W) / size_W.sum(), np.cumsum(width_J) / width_J.sum()
    part_JW = np.clip(1.0 - (end_W - cut_J[:, None]) * size_W.sum() / size_W, 0.0, 1.0)
    total_W, quantum_JW = pools.total_P[order_W], pools.quantum_JP[np.ix_(order_J, order_W)]
    upto_JW = np.minimum(np.rint(part_JW * total_W / quantum_JW).astype(np.int64) * quantum_JW, total_W)
    upto_JW[-1] = total_W
    counts[np.ix_(order_J, order_W)] = np.diff(np.maximum.accumulate(upto_JW, axis=0), axis=0, prepend=0)
    counts[:-1] = np.minimum(counts[:-1], pools.most_JP)
    counts[:-1] -= counts[:-1] % np.array(pools.each_J[:-1])[:, None]
    counts[-1] = pools.total_P - counts[:-1].sum(axis=0)
    return counts
