"""Make a ring over many machines better: only its worst edge counts, so only moves that change it are tried."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from hulk_placement.search.ring.region_graph import Work

Order = tuple[int, ...]
Evaluate = Callable[[Order], tuple[float, int]]
"""An order's seconds, and the rank whose edge to the rank before it is the worst."""

TRIES_WITHOUT_GAIN = 40


def polish(order: Order, evaluate: Evaluate, substitutes: Sequence[Sequence[int]], seed: int, work: Work) -> Order:
    """The order after moves at its worst edge, each kept when the ring gets faster.

    `substitutes[m]` are machines that may take the place of machine m: one that is in the ring already changes places
    with it, another replaces it. One evaluation counts as many iterations as the ring has ranks.
    """
    draw = random.Random(seed)
    best_s, worst = evaluate(order)
    tries = 0
    while tries < TRIES_WITHOUT_GAIN and work.spend(len(order)):
        tries += 1
        rank = draw.choice((worst, worst - 1)) % len(order)
        others = substitutes[order[rank]]
        if not others:
            continue
        changed = _put(order, rank, draw.choice(others))
        changed_s, changed_worst = evaluate(changed)
        if changed_s < best_s:
            order, best_s, worst, tries = changed, changed_s, changed_worst, 0
    return order


def _put(order: Order, rank: int, machine: int) -> Order:
    """The order with a machine at a rank; if it was elsewhere in the ring, the two change places.

    >>> _put((0, 1, 2), 0, 2), _put((0, 1, 2), 0, 7)
    ((2, 1, 0), (7, 1, 2))
    """
    changed = list(order)
    if machine in order:
        changed[order.index(machine)] = order[rank]
    changed[rank] = machine
    return tuple(changed)
