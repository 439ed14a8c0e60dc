"""Annealing alone: from random layouts, again and again, each time for twice as long."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
from hulk_placement.layouts.annealing import annealed
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials

from bench.layout_searches import sampling

DRAWN = 32
"""Random layouts of which the best is annealed."""


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """Draw some, anneal the best of them, begin again."""
    rng = np.random.default_rng(seed)
    round_ = 0
    while not round_ or going_on():
        drawn = list(islice(sampling.drawn(trials, space, rng, going_on), DRAWN))
        if not drawn:
            return
        annealed(trials, min(drawn), 1 << min(round_, 10), going_on, seed + round_)
        round_ += 1
