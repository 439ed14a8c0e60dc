"""Annealing alone: from random layouts, again and again, each time for twice as long."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hulk_placement.layouts.annealing import annealed
from hulk_placement.layouts.searches import sampling
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials

DRAWN = 32
"""Random layouts of which the best is annealed."""


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """Draw some, anneal the best of them, begin again."""
    rng = np.random.default_rng(seed)
    round_ = 0
    while not round_ or going_on():
        first = trials.num_evaluations
        while trials.num_evaluations < first + DRAWN and (not trials.num_evaluations or going_on()):
            sampling.draw(trials, space, rng)
        best = trials.best_since(first)
        if best is not None:
            annealed(trials, best, 1 << min(round_, 10), going_on, seed + round_)
        round_ += 1
