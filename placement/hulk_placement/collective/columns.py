"""Where patterns come from: for each small set of exchanging regions the trees that are cheapest at a program's prices.

A cheapest tree may be deep, and a deep one is late; the cheapest of bounded depth (in seconds) is NP-hard. So trees
are grown from their roots, always along the cheapest link that keeps within the limit, for many root sets and limits
at once; the program then prices them exactly.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from hulk_placement.collective.arrays import Bools, Floats, Ints, shortest_s
from hulk_placement.collective.pool import Forests, Pool, timed
from hulk_placement.collective.program import Program, Sharing
from hulk_placement.collective.timing import Delays

MOST_ALL_SETS = 6
"""Up to so many regions every set of regions may exchange; with more, single ones and all of them to begin with."""

SLACKS = (0.1, 0.5, 1.0)
"""Seconds by which trees may be deeper than the shallowest, in parts of T."""

MOST_VARIED = 8
"""Patterns with the largest shares, near whose exchanging sets others are tried where not all sets are."""

LATE = 1e6
"""What is later than the limit costs by its lateness, so many times more than any link."""

TIE = 1e-3
"""Of the highest price of a link is the most that its latency counts."""


@cache
def member_sets(num_regions: int) -> Bools:
    """The sets of regions that may exchange, as rows of flags."""
    sizes = range(1, num_regions + 1) if num_regions <= MOST_ALL_SETS else (1, num_regions)
    sets = [few for size in sizes for few in itertools.combinations(range(num_regions), size)]
    member = np.zeros((len(sets), num_regions), dtype=bool)
    for row, few in enumerate(sets):
        member[row, list(few)] = True
    return member


def grown(weight: Floats, hop_s: Floats, member_BR: Bools, limit_B: Floats) -> Ints:
    """Forests out of member sets along cheap links `weight[parent, child]`, no deeper than the limit where possible.

    >>> inf = np.inf
    >>> hop_s = np.array([[0, 3, 5], [3, 0, 1], [5, 1, 0.0]])
    >>> weight = np.array([[inf, 1, 1], [1, inf, 2], [1, 2, inf]])
    >>> grown(weight, hop_s, np.array([[True, False, False]] * 2), np.array([5.0, 4.0]))
    array([[0, 0, 0],
           [0, 0, 1]])
    """
    num_sets, num = member_BR.shape
    rows = np.arange(num_sets)
    late = LATE * float(weight[np.isfinite(weight)].max(initial=1e-12)) / float(hop_s[np.isfinite(hop_s)].max())
    parent = np.tile(np.arange(num), (num_sets, 1))
    depth_s = np.where(member_BR, 0.0, np.inf)
    left = ~member_BR
    through_s = np.where(member_BR[:, :, None], hop_s, np.inf)
    cost = np.where(through_s > limit_B[:, None, None] * (1 + 1e-9), late * through_s, weight)
    cost = np.where(member_BR[:, :, None], cost, np.inf)
    first = cost.argmin(axis=1)
    best = np.where(left, np.take_along_axis(cost, first[:, None, :], axis=1)[:, 0], np.inf)
    above = first
    for _ in range(num - int(member_BR.sum(axis=1).min())):
        child = best.argmin(axis=1)
        more = left[rows, child]
        node = above[rows, child]
        parent[rows[more], child[more]] = node[more]
        depth_s[rows[more], child[more]] = depth_s[rows, node][more] + hop_s[node, child][more]
        left[rows, child] = False
        best[rows, child] = np.inf
        reach_s = depth_s[rows, child][:, None] + hop_s[child]
        price = np.where(reach_s > limit_B[:, None] * (1 + 1e-9), late * reach_s, weight[child])
        nearer = left & (price < best) & more[:, None]
        best = np.where(nearer, price, best)
        above = np.where(nearer, child[:, None], above)
    return parent


def first_patterns(known: Delays) -> Pool:
    """One hop; for each region the star; for each set that may exchange the shallowest forests."""
    num = len(known.hop_s)
    everyone = np.arange(num)
    stars = np.tile(everyone[:, None], (1, num))
    hop_s = known.hop_s.copy()
    np.fill_diagonal(hop_s, np.inf)
    far_s = shortest_s(known.hop_s)
    up_NR, down_NR = _forests(hop_s, known.hop_s, 2 * float(far_s[np.isfinite(far_s)].max()), member_sets(num))
    return timed(known, *distinct(np.vstack([everyone, stars, up_NR]), np.vstack([everyone, stars, down_NR])))


def asked_for(program: Program, found: Sharing) -> Pool:
    """Patterns that are cheap at the prices of the program."""
    pool, known = program.pool, program.pool.delays
    used = np.argsort(-found.shares, kind="stable")[:MOST_VARIED]
    sets = near_sets(pool.up_NR[used] == np.arange(pool.up_NR.shape[1]))
    finite = np.isfinite(known.hop_s)
    prices = program.link_prices()
    tie = known.hop_s / known.hop_s[finite].max() * max(float(prices[finite].max()), 1e-12) * TIE
    weight = prices + tie
    np.fill_diagonal(weight, np.inf)
    cap_s = min(program.cap_s, found.seconds * 1.5)
    return timed(known, *distinct(*_forests(weight, known.hop_s, cap_s, sets)))


def near_sets(member_NR: Bools) -> Bools:
    """Sets of regions that may exchange: all if they are few, else each, everyone, and those given but for one."""
    num = member_NR.shape[1]
    if num <= MOST_ALL_SETS:
        return member_sets(num)
    flipped = (member_NR[:, None, :] ^ np.eye(num, dtype=bool)).reshape(-1, num)
    sets = np.unique(np.vstack([np.eye(num, dtype=bool), np.ones((1, num), dtype=bool), member_NR, flipped]), axis=0)
    return np.asarray(sets[sets.any(axis=1)])


def _forests(weight: Floats, hop_s: Floats, cap_s: float, member_SR: Bools) -> Forests:
    """The cheap forests of sets of members in both directions, of several depths, no later in all than the cap."""
    far_s = shortest_s(hop_s)
    up_S, down_S = depths_s(far_s.T, member_SR), depths_s(far_s, member_SR)
    exchange_S = np.where(member_SR[:, :, None] & member_SR[:, None, :], hop_s, 0.0).max(axis=(1, 2))
    latency_S = up_S + down_S + exchange_S
    slack_S = max(cap_s, float(latency_S.min())) - latency_S
    good = slack_S >= 0
    slack_FS = np.array(SLACKS)[:, None] / 2 * slack_S[good]
    member_BR = np.tile(member_SR[good], (len(slack_FS), 1))
    return (
        grown(weight.T, hop_s.T, member_BR, (up_S[good] + slack_FS).ravel()),
        grown(weight, hop_s, member_BR, (down_S[good] + slack_FS).ravel()),
    )


def depths_s(far_s: Floats, member_BR: Bools) -> Floats:
    """How far the furthest region is from each set: the least depth of its forest."""
    nearest = np.where(member_BR[:, :, None], far_s, np.inf).min(axis=1)
    deepest: Floats = nearest.max(axis=1)
    return deepest


def distinct(up_NR: Ints, down_NR: Ints) -> Forests:
    """Each pattern where it is first."""
    both = np.ascontiguousarray(np.hstack([up_NR, down_NR]).astype(np.int8))
    _, first = np.unique(both.view(f"V{both.shape[1]}").ravel(), return_index=True)
    first.sort()
    return up_NR[first], down_NR[first]
