"""Cycles over regions whose worst edge is least, compiled: where tours begin.

A ring is as slow as its slowest edge, so what counts is the worst edge (the bottleneck travelling salesman problem).
Up to `MOST_EXACT` regions the optimum, by the dynamic programme over sets of Held and Karp (1962) with the maximum in
place of the sum; beyond, a cycle that no moved region and no reversed part makes better.
"""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.compiled import compiled
from hulk_placement.cost.closed_form.arrays import Floats, Ints

MOST_EXACT = 10
POWER = 8.0
"""Sums of such powers of edges stand for the worst edge where moves are compared: most moves leave the worst alone."""

FAR = 1e9
"""In place of an edge that has no link, in units of the longest that has one."""


def shortest_cycle(seconds_RR: Floats, regions: tuple[int, ...]) -> list[int]:
    """The regions in the order of a cycle, the first of them first; (R, R) seconds of every directed edge.

    >>> ring = np.array([[0, 9, 1, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 1, 9, 0.0]])
    >>> shortest_cycle(ring, (0, 1, 2, 3))
    [0, 2, 3, 1]
    """
    chosen = np.array(regions)
    seconds = seconds_RR[np.ix_(chosen, chosen)].astype(np.float64)
    if len(regions) < 3:
        return list(regions)
    if len(regions) <= MOST_EXACT:
        order = _least_worst(seconds)
    else:
        longest = seconds[np.isfinite(seconds)].max(initial=1e-9)
        order = _improved(np.minimum(seconds / longest, FAR) ** POWER, _inserted(seconds))
    return [int(region) for region in chosen[order]]


@compiled
def _least_worst(seconds: Floats) -> Ints:
    """The cycle whose worst edge is least; of paths whose worst edges are alike the one with the least sum."""
    num = seconds.shape[0]
    worst, total = np.full((1 << num, num), math.inf), np.full((1 << num, num), math.inf)
    before = np.zeros((1 << num, num), np.int64)
    worst[1, 0] = total[1, 0] = 0.0
    for chosen in range(1, 1 << num, 2):
        for last in range(num):
            if total[chosen, last] == math.inf and chosen != 1:
                continue
            for new in range(1, num):
                if chosen >> new & 1:
                    continue
                longer = chosen | 1 << new
                edge = max(worst[chosen, last], seconds[last, new])
                length = total[chosen, last] + min(seconds[last, new], FAR)
                if edge < worst[longer, new] or (edge == worst[longer, new] and length < total[longer, new]):
                    worst[longer, new], total[longer, new], before[longer, new] = edge, length, last
    everything, last, best, best_total = (1 << num) - 1, 1, math.inf, math.inf
    for end in range(1, num):
        edge = max(worst[everything, end], seconds[end, 0])
        length = total[everything, end] + min(seconds[end, 0], FAR)
        if edge < best or (edge == best and length < best_total):
            last, best, best_total = end, edge, length
    order = np.zeros(num, np.int64)
    for position in range(num - 1, 0, -1):
        order[position] = last
        last, everything = before[everything, last], everything & ~(1 << last)
    return order


@compiled
def _inserted(seconds: Floats) -> Ints:
    """A cycle that grows region by region, each where its worse new edge is least."""
    num = seconds.shape[0]
    order = np.arange(num)
    for new in range(2, num):
        best, best_edge = 0, math.inf
        for k in range(new):
            edge = max(seconds[order[k], new], seconds[new, order[(k + 1) % new]])
            if edge < best_edge:
                best, best_edge = k, edge
        order[best + 2 : new + 1] = order[best + 1 : new].copy()
        order[best + 1] = new
    return order


@compiled
def _length(cost: Floats, order: Ints) -> float:
    total = 0.0
    for k in range(order.shape[0]):
        total += cost[order[k], order[(k + 1) % order.shape[0]]]
    return total


@compiled
def _improved(cost: Floats, order: Ints) -> Ints:
    """Reverse a part, or move one of up to three regions elsewhere, as long as that makes the sum less."""
    num = order.shape[0]
    best, is_better = _length(cost, order), True
    while is_better:
        is_better = False
        for first in range(1, num):
            for last in range(first + 1, num + 1):
                reversed_part = order.copy()
                reversed_part[first:last] = order[first:last][::-1]
                length = _length(cost, reversed_part)
                if length < best * (1 - 1e-9):
                    order, best, is_better = reversed_part, length, True
        for first in range(1, num):
            for last in range(first + 1, min(first + 3, num) + 1):
                for target in range(1, num - (last - first) + 1):
                    moved = _moved(order, first, last, target)
                    length = _length(cost, moved)
                    if length < best * (1 - 1e-9):
                        order, best, is_better = moved, length, True
    return order


@compiled
def _moved(order: Ints, first: int, last: int, target: int) -> Ints:
    """The part first .. last - 1 taken out and put back at a position among the others."""
    rest = np.concatenate((order[:first], order[last:]))
    return np.concatenate((rest[:target], order[first:last], rest[target:]))
