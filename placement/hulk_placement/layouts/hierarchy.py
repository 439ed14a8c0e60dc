"""The levels at which machines are joined, from their links alone: boxes, racks, zones, regions, whatever they are.

Places whose links are measured are merged by average linkage (UPGMA, Sokal and Michener 1958) over the logarithms of
the seconds that a message takes between them, the slower direction. Where those seconds grow by more than `GAP` from
one merge to the next lies a level. Labels decide nothing, but that machines of one place are alike to their links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hulk_native import MOST_EXACT_REGIONS

from hulk_placement.cost.closed_form.arrays import Floats, Ints, Setting
from hulk_placement.layouts.cycles import shortest_cycle
from hulk_placement.layouts.starts import merit

GAP = 1.5
"""Between the seconds of two levels, at least."""

MOST_LEVELS = 4
"""Cuts, at most: those at the largest gaps."""

FAR = 1e6
"""What two places without a usable link are apart, in units of the slowest link that is usable."""


@dataclass(frozen=True)
class Hierarchy:
    """Partitions of the machines, each of which joins groups of the one before; and the order that keeps groups whole.

    `group_LM` (levels, machines): from the finest on; neither the machines themselves nor all in one are a level.
    `order_M`: the machines group by group at every level, groups that are near each other next to each other.
    """

    group_LM: Ints
    order_M: Ints


def hierarchy_of(setting: Setting) -> Hierarchy:
    """The levels of all machines of a setting."""
    places, place_M = np.unique(setting.place_M, return_inverse=True)
    seconds_QQ = np.log(message_seconds(setting)[np.ix_(places, places)])
    num_Q = np.bincount(place_M)
    merges = average_linkage(seconds_QQ, num_Q)
    inside_Q = np.diag(seconds_QQ)[num_Q > 1]
    heights = np.sort(np.concatenate([inside_Q, [height for _, _, height in merges]]))
    labels = [np.arange(len(places)), *(cut(merges, len(places), height) for height in gaps(heights))]
    order_Q, above_L = np.arange(len(places)), [*labels[1:], np.zeros(len(places), np.int64)]
    order_Q = _order(seconds_QQ, labels, above_L)
    rank_Q = np.empty(len(places), np.int64)
    rank_Q[order_Q] = np.arange(len(places))
    order_M = np.lexsort((np.arange(len(place_M)), merit(setting)[setting.kind_M], rank_Q[place_M]))
    levels = [label_Q[place_M] for label_Q in labels]
    return Hierarchy(np.array(_distinct(levels), np.int64).reshape(-1, len(place_M)), order_M)


def message_seconds(setting: Setting) -> Floats:
    """Seconds of a message between places, as large as what a layer gives to the next or as its gradients; (Q, Q).

    The geometric mean of the two sizes; of both directions the slower.
    """
    outputs = float(np.median(setting.output_L[:-1])) if len(setting.output_L) > 1 else 0.0
    gradients = float(setting.gradient_J[-1]) / len(setting.output_L)
    num_bytes = math.sqrt(max(1.0, outputs) * max(1.0, gradients))
    with np.errstate(divide="ignore"):
        seconds_QQ = setting.latency_QQ + num_bytes / setting.flow_QQ
    seconds_QQ = np.maximum(np.maximum(seconds_QQ, seconds_QQ.T), 1e-9)
    is_usable_QQ = np.isfinite(seconds_QQ)
    seconds_QQ[~is_usable_QQ] = FAR * seconds_QQ[is_usable_QQ].max(initial=1e-9)
    return seconds_QQ


def average_linkage(far_QQ: Floats, num_Q: Ints) -> list[tuple[int, int, float]]:
    """Merges of items by the mean distance of their members, the nearest first: which two groups' items, how far.

    Chains of nearest neighbours find them in O(n^2). `num_Q`: members of each item.

    >>> average_linkage(np.array([[0.0, 1, 8], [1, 0, 6], [8, 6, 0]]), np.ones(3, np.int64))
    [(0, 1, 1.0), (1, 2, 7.0)]
    """
    far = far_QQ.astype(np.float64).copy()
    np.fill_diagonal(far, math.inf)
    weight, chain = num_Q.astype(np.float64), list[int]()
    merges: list[tuple[int, int, float]] = []
    alive = np.ones(len(far), np.bool_)
    while len(merges) < len(far) - 1:
        if not chain:
            chain = [int(alive.argmax())]
        last = chain[-1]
        near = int(far[last].argmin())
        if len(chain) > 1 and far[last, chain[-2]] <= far[last, near]:
            near = chain[-2]
        if len(chain) < 2 or near != chain[-2]:
            chain.append(near)
            continue
        del chain[-2:]
        first, second = min(last, near), max(last, near)
        merges.append((first, second, float(far[first, second])))
        joined = (weight[first] * far[first] + weight[second] * far[second]) / (weight[first] + weight[second])
        weight[second] += weight[first]
        far[second], far[:, second] = joined, joined
        far[first], far[:, first] = math.inf, math.inf
        far[second, second], alive[first] = math.inf, False
    return sorted(merges, key=lambda merge: merge[2])


def gaps(heights: Floats) -> list[float]:
    """Where to cut between sorted logarithms of seconds, the lowest first: inside the largest gaps.

    >>> gaps(np.array([0.0, 0.1, 2.0, 2.1, 5.0]))
    [1.05, 3.55]
    """
    gap_H = np.diff(heights)
    largest = np.argsort(-gap_H, kind="stable")[:MOST_LEVELS]
    chosen = sorted(int(number) for number in largest if gap_H[number] > math.log(GAP))
    return [float(heights[number] + heights[number + 1]) / 2 for number in chosen]


def cut(merges: list[tuple[int, int, float]], num: int, height: float) -> Ints:
    """The group of each of so many items, where all that merge below a height are one."""
    parent = list(range(num))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for first, second, at in merges:
        if at < height:
            parent[root(first)] = root(second)
    return np.unique([root(item) for item in range(num)], return_inverse=True)[1]


def _order(far_QQ: Floats, labels: list[Ints], above: list[Ints]) -> Ints:
    """Places level by level: inside each group the groups below in a cycle whose worst edge is least."""
    sequences = {int(label): [int(label)] for label in labels[0]}
    for label_Q, above_Q in zip(labels, above, strict=True):
        num = int(label_Q.max()) + 1
        is_in_GQ = np.arange(num)[:, None] == label_Q
        share_GQ = is_in_GQ / is_in_GQ.sum(axis=1, keepdims=True)
        far_GG = share_GQ @ far_QQ @ share_GQ.T
        above_G = np.zeros(num, np.int64)
        above_G[label_Q] = above_Q
        merged = {}
        for group in range(int(above_Q.max()) + 1):
            merged[group] = [
                place for child in _walk(far_GG, np.flatnonzero(above_G == group)) for place in sequences[child]
            ]
        sequences = merged
    return np.array(sequences[0], np.int64)


def _walk(far_GG: Floats, groups: Ints) -> list[int]:
    """Groups in the order of a cycle; of many the nearest next."""
    if len(groups) <= MOST_EXACT_REGIONS:
        return shortest_cycle(np.exp(far_GG - far_GG.min()), tuple(groups.tolist()))
    walk, left = [int(groups[0])], list(groups[1:].tolist())
    while left:
        walk.append(left.pop(int(far_GG[walk[-1], left].argmin())))
    return walk


def _distinct(levels: list[Ints]) -> list[Ints]:
    """Without partitions that are as the one before, of machines alone, or of all in one."""
    kept: list[Ints] = []
    for group_M in levels:
        num = int(group_M.max()) + 1
        if 1 < num < len(group_M) and (not kept or num < int(kept[-1].max()) + 1):
            kept.append(group_M)
    return kept
