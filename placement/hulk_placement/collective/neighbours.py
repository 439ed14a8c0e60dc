"""Patterns that differ little from those in use: what grown trees, which see one price a link, do not find."""

from __future__ import annotations

import numpy as np

from hulk_placement.collective.arrays import Bools, Floats, Ints
from hulk_placement.collective.pool import Forests, Pool, timed
from hulk_placement.collective.program import Program, Sharing

MOST_TIMED = 300
"""Of the neighbours of the patterns in use, so many with the lowest price a link are looked at exactly."""

MOST_VARIED = 12
"""Patterns with the largest shares, of which neighbours are looked at."""


def neighbours(program: Program, found: Sharing) -> Pool:
    """Neighbours of the patterns with the largest shares, those that seem cheapest."""
    pool = program.pool
    used = np.argsort(-found.shares, kind="stable")[:MOST_VARIED]
    used = used[found.shares[used] > 0]
    up_NR, down_NR = _changed(pool.up_NR[used], pool.down_NR[used])
    cheap = np.argsort(_linear_price(up_NR, down_NR, program.link_prices()), kind="stable")[:MOST_TIMED]
    return timed(pool.delays, up_NR[cheap], down_NR[cheap])


def _linear_price(up_NR: Ints, down_NR: Ints, weight: Floats) -> Floats:
    regions = np.arange(len(weight))
    free = weight.copy()
    np.fill_diagonal(free, 0.0)
    member = (up_NR == regions).astype(float)
    exchange = (member @ np.where(np.isfinite(free), free, 1e9) * member).sum(axis=1)
    price: Floats = free[regions, up_NR].sum(axis=1) + free[down_NR, regions].sum(axis=1) + exchange
    return price


def _changed(up_NR: Ints, down_NR: Ints) -> Forests:
    """Patterns that differ in one region: another parent (in, out or both), joining the exchange, or leaving it."""
    num_patterns, num = up_NR.shape
    n, v, u = (index.ravel() for index in np.indices((num_patterns, num, num)))
    joins = u == v
    outside = up_NR[n, v] != v
    ups, downs = [], []
    for with_up, with_down, which in (
        (True, True, np.full(len(n), True)),
        (True, False, outside & ~joins),
        (False, True, outside & ~joins),
    ):
        up, down, rows = up_NR[n[which]], down_NR[n[which]], np.arange(int(which.sum()))
        if with_up:
            up[rows, v[which]] = u[which]
        if with_down:
            down[rows, v[which]] = u[which]
        ups.append(up)
        downs.append(down)
    swapped = _swapped(up_NR, down_NR)
    return _valid(np.concatenate([*ups, swapped[0]]), np.concatenate([*downs, swapped[1]]))


def _swapped(up_NR: Ints, down_NR: Ints) -> Forests:
    """Patterns in which a member and a region outside have changed places."""
    num = up_NR.shape[1]
    n, a, b = np.nonzero((up_NR == np.arange(num))[:, :, None] & (up_NR != np.arange(num))[:, None, :])
    turn = np.tile(np.arange(num), (len(n), 1))
    rows = np.arange(len(n))
    turn[rows, a], turn[rows, b] = b, a

    def turned(parent_NR: Ints) -> Ints:
        return np.take_along_axis(turn, np.take_along_axis(parent_NR[n], turn, axis=1), axis=1)

    return turned(up_NR), turned(down_NR)


def _valid(up_NR: Ints, down_NR: Ints) -> Forests:
    """Those whose forests have the same roots, one at least, and no cycle."""
    regions = np.arange(up_NR.shape[1])
    member: Bools = np.equal(up_NR, regions)
    same = np.equal(member, np.equal(down_NR, regions)).all(axis=1)
    good = np.flatnonzero(same & _rooted(up_NR, member) & _rooted(down_NR, member))
    return up_NR[good], down_NR[good]


def _rooted(parent_NR: Ints, member_NR: Bools) -> Bools:
    ancestor = parent_NR
    for _ in range(int(parent_NR.shape[1]).bit_length()):
        ancestor = np.take_along_axis(ancestor, ancestor, axis=1)
    return np.asarray(np.take_along_axis(member_NR, ancestor, axis=1).all(axis=1))
