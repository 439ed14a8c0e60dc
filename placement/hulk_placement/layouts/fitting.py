"""Where no layout tried is possible: one that fits the memory, if machines that count as alike have room for it.

A search goes by seconds and tries few numbers of stages; where memory is tight, only others may do. Where there are few
placements, all layouts are looked at, as far as there are not too many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.layouts import exact, starts
from hulk_placement.layouts.fewest import fits
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trials
from hulk_placement.topology import Machine

MOST_TRIED = 64
"""Layouts for each size of memory, those of fewest accelerators first."""


MOST_LOOKED = 5000
"""Layouts, of the attempt to look at all of them."""


def try_fitting(trials: Trials, space: Space) -> bool:
    """Build layouts of shapes that fit, and keep them; whether one is possible.

    For each size of memory, the largest first, all machines that have as much count as if they had no more.
    """
    if exact.are_few(trials, space):
        most = trials.num_evaluations + MOST_LOOKED
        exact.search(trials, space, lambda: trials.num_evaluations < most, 0, MOST_LOOKED)
        if trials.is_exhausted or trials.best_possible(1):
            return bool(trials.best_possible(1))
    by_memory = {(m.memory_bytes, m.num_accelerators): m for m in trials.ground.machines if m.memory_bytes}
    return any(_try_like(trials, space, by_memory[size]) for size in sorted(by_memory, reverse=True))


def _try_like(trials: Trials, space: Space, machine: Machine) -> bool:
    for shape, order_N, tour_W in itertools.islice(_rooms(trials, space, machine), MOST_TRIED):
        trial = trials.build(shape, order_N, tour_W, by_rows=True)
        if trial.cost < math.inf and trials.is_possible(trial):
            return True
    return False


def _rooms(trials: Trials, space: Space, machine: Machine) -> Iterator[tuple[Shape, Ints, Ints]]:
    """Shapes that fit, the cells of regions that have room for them, and a tour through those."""
    found = {fit.shape for fit in fits(trials.ground, space, machine) if space.admits(fit.shape)}
    for shape in sorted(found, key=lambda shape: (shape.num_accelerators, shape.pipeline)):
        setting = trials.setting(shape.option)
        for regions in starts.grown_sets(setting, starts.speed_by_region(setting)):
            tour_W = starts.cycle(starts.edge_seconds(setting, shape.pipeline), regions)
            order_N = starts.order_cells(setting, tour_W, regions, float(machine.memory_bytes))
            if len(order_N) >= shape.data * shape.pipeline:
                yield shape, order_N, tour_W
