"""Where patterns come from when there are too many to list: simple ones to begin with, then what prices ask for."""

from __future__ import annotations

import itertools

import numpy as np

from hulk_placement.collective.arborescence import cheapest_arborescence
from hulk_placement.collective.network import Bools, Floats, Ints
from hulk_placement.collective.program import Pool, Program, Sharing, distinct
from hulk_placement.collective.timing import Delays

MOST_TIMED = 800
"""Of the neighbours of the patterns in use, so many with the lowest price a link are looked at exactly."""

MOST_VARIED = 16
"""Patterns with the largest shares, of which neighbours are looked at."""

MOST_ADDED = 24
MOST_ROOTS = 3
MOST_TOGETHER, MOST_REGIONS_TOGETHER = 3, 8
"""Exchanges of so many regions are among the first patterns where there are at most so many."""

Forests = tuple[Ints, Ints]
"""`up_NR` and `down_NR` of N patterns."""


def first_patterns(known: Delays) -> Forests:
    """One hop; for each region the star and the shortest-path trees; for each few, the nearest of them."""
    num = len(known.hop_s)
    in_by, out_by, far_s = _shortest_paths(known.hop_s)
    regions = np.arange(num)
    found = [(regions, regions)]
    for root in regions:
        found += [(np.full(num, root), np.full(num, root)), (in_by[:, root], out_by[root])]
    for size in range(2, min(num, MOST_TOGETHER if num <= MOST_REGIONS_TOGETHER else 2) + 1):
        for few in map(list, itertools.combinations(regions, size)):
            to, of = np.array(few)[far_s[:, few].argmin(axis=1)], np.array(few)[far_s[few].argmin(axis=0)]
            found.append((in_by[regions, to], out_by[of, regions]))
    return distinct(*_valid(np.array([up for up, _ in found]), np.array([down for _, down in found])))


def _shortest_paths(hop_s: Floats) -> tuple[Ints, Ints, Floats]:
    """For all pairs (a, b): where a sends first towards b, whom b hears last from a, and the seconds."""
    num = len(hop_s)
    far = hop_s.copy()
    first = np.tile(np.arange(num), (num, 1))
    last = first.T.copy()
    for middle in range(num):
        through = far[:, middle, None] + far[None, middle, :]
        nearer = through < far - 1e-12
        far = np.where(nearer, through, far)
        first = np.where(nearer, first[:, middle, None], first)
        last = np.where(nearer, last[None, middle, :], last)
    return first, last, far


def asked_for(program: Program, found: Sharing) -> Forests:
    """Patterns that would make the sharing faster at the program's prices, best first; none: it cannot be told how."""
    pool = program.pool
    weight = link_weights(program)
    used = np.array(sorted(found.bytes_by_pattern, key=lambda p: -found.bytes_by_pattern[p])[:MOST_VARIED])
    up, down = _neighbours(pool.up_NR[used], pool.down_NR[used])
    cheap = np.argsort(_linear_price(up, down, weight), kind="stable")[:MOST_TIMED]
    trees_up, trees_down = _trees(weight, pool.delays)
    nearby = Pool(pool.delays, np.concatenate([up[cheap], trees_up]), np.concatenate([down[cheap], trees_down]))
    best = program.promising(nearby, found, MOST_ADDED)
    return nearby.up_NR[best], nearby.down_NR[best]


def link_weights(program: Program) -> Floats:
    """The price of a byte on each link, by source and target, as if it met all of its windows; absent: infinite."""
    pool = program.pool
    num = pool.num_regions
    prices, _ = program.duals()
    total = np.zeros(len(pool.delays.capacity))
    for (resource, _, _), price in zip(program.windows, prices, strict=True):
        total[resource] += price
    out, into = total[num * num : num * num + num], total[num * num + num :]
    weight = total[: num * num].reshape(num, num) + out[:, None] + into[None, :]
    return np.where(np.isfinite(pool.delays.hop_s), weight, np.inf)


def _trees(weight: Floats, known: Delays) -> Forests:
    """For the roots that are cheapest to reach and to reach from: the cheapest trees, latency breaking ties."""
    finite = np.isfinite(weight)
    tie = known.hop_s / known.hop_s[finite].max() * max(float(weight[finite].max()), 1e-12) * 1e-3
    priced = weight + tie
    np.fill_diagonal(priced, np.inf)
    roots = np.argsort(priced.min(axis=0) + priced.min(axis=1), kind="stable")[:MOST_ROOTS]
    found = [(cheapest_arborescence(priced.T, int(root)), cheapest_arborescence(priced, int(root))) for root in roots]
    trees = [(up, down) for up, down in found if up is not None and down is not None]
    num = len(weight)
    return np.array([up for up, _ in trees]).reshape(-1, num), np.array([down for _, down in trees]).reshape(-1, num)


def _linear_price(up_NR: Ints, down_NR: Ints, weight: Floats) -> Floats:
    regions = np.arange(len(weight))
    free = weight.copy()
    np.fill_diagonal(free, 0.0)
    member = (up_NR == regions).astype(float)
    exchange = (member @ np.where(np.isfinite(free), free, 1e9) * member).sum(axis=1)
    price: Floats = free[regions, up_NR].sum(axis=1) + free[down_NR, regions].sum(axis=1) + exchange
    return price


def _neighbours(up_NR: Ints, down_NR: Ints) -> Forests:
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
