"""Random layouts: any shape, any machines; layers and micro-batches are split as for every other search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trial, Trials


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """Draw until the time is over; one at least."""
    rng = np.random.default_rng(seed)
    while draw(trials, space, rng) is None or going_on():
        pass


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
    return trials.build(shape, rng.permutation(cells_N), rng.permutation(len(setting.uplink_R)), by_rows=True)
