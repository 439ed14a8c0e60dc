"""Cycles over regions whose worst edge is least: where tours begin; found by `hulk_native.cycle_of`."""

from __future__ import annotations

import numpy as np
from hulk_native import cycle_of

from hulk_placement.cost.closed_form.arrays import Floats


def shortest_cycle(seconds_RR: Floats, regions: tuple[int, ...]) -> list[int]:
    """The regions in the order of a cycle, the first of them first; (R, R) seconds of every directed edge.

    >>> ring = np.array([[0, 9, 1, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 1, 9, 0.0]])
    >>> shortest_cycle(ring, (0, 1, 2, 3))
    [0, 2, 3, 1]
    """
    chosen = np.array(regions)
    order = cycle_of(seconds_RR[np.ix_(chosen, chosen)].astype(np.float64))
    return [regions[number] for number in order]
