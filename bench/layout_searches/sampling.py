"""Random layouts: any shape, any machines; layers and micro-batches are split as for every other search."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trial, Trials

MOST_MISSES = 10_000
"""So many shapes without room, one after the other, mean that there is none that has."""


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """Draw until the time is over; one at least, where any shape has room."""
    for _ in drawn(trials, space, np.random.default_rng(seed), going_on):
        pass


def drawn(trials: Trials, space: Space, rng: np.random.Generator, going_on: Callable[[], bool]) -> Iterator[Trial]:
    """Random layouts until the time is over, and before it is for the first of all; none where no shape has room."""
    num_misses = 0
    while num_misses < MOST_MISSES and (not trials.num_evaluations or going_on()):
        trial = draw(trials, space, rng)
        num_misses = num_misses + 1 if trial is None else 0
        if trial is not None:
            yield trial


def draw(trials: Trials, space: Space, rng: np.random.Generator) -> Trial | None:
    """Try one random layout; None where the shape that was drawn has no room."""
    option = space.options[rng.integers(len(space.options))]
    setting = trials.setting(option)
    cells_N = np.repeat(np.arange(len(setting.slots_M)), setting.slots_M)
    num_stages = space.pipelines[rng.integers(len(space.pipelines))]
    most = min(len(cells_N) // num_stages, trials.num_batches(option))
    if most < (space.data or 1):
        return None
    data = space.data or 1 + int(rng.integers(most))
    shape = Shape(option, data, num_stages)
    if not space.admits(shape):
        return None
    workers_WC = cells_N.reshape(-1, setting.worker_cells)
    order_N = workers_WC[rng.permutation(len(workers_WC))].ravel()
    return trials.build(shape, order_N, rng.permutation(len(setting.uplink_R)), by_rows=True)
