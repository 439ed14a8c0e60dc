"""The orders of a ring: all directed cycles, one of each region pattern, and those that others would have chosen.

A ring has no beginning, so that n! orders are (n - 1)! different cycles. Nodes of one region are alike up to their
speed, so that cycles with the same pattern of regions take the same time on the network: 16 patterns instead of 120
cycles for three regions of two nodes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence


def rotated(order: Sequence[str]) -> tuple[str, ...]:
    """The same cycle, begun at its smallest name (or its smallest rotation, where names repeat).

    >>> rotated(["b", "c", "a"])
    ('a', 'b', 'c')
    """
    return min(tuple(order[i:]) + tuple(order[:i]) for i in range(len(order)))


def cycles(nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """All directed cycles.

    >>> cycles(["a", "b", "c"])
    [('a', 'b', 'c'), ('a', 'c', 'b')]
    """
    first, *others = sorted(nodes)
    return [(first, *rest) for rest in itertools.permutations(others)]


def one_of_each_pattern(orders: Iterable[tuple[str, ...]], region: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The first order of every cyclic pattern of regions.

    >>> len(one_of_each_pattern(cycles(["a0", "a1", "b0", "b1"]), {"a0": "a", "a1": "a", "b0": "b", "b1": "b"}))
    2
    """
    kept: dict[tuple[str, ...], tuple[str, ...]] = {}
    for order in orders:
        kept.setdefault(rotated([region[node] for node in order]), order)
    return list(kept.values())


def random_orders(nodes: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """So many random orders.

    >>> sorted(random_orders(["a", "b"], 1, seed=1)[0])
    ['a', 'b']
    """
    draw = random.Random(seed)
    return [tuple(draw.sample(sorted(nodes), len(nodes))) for _ in range(count)]
