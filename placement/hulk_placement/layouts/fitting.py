"""Where no layout that was tried fits the memory: one that does, if machines that count as alike have room for it.

A search goes by seconds and tries few numbers of stages; where memory is tight, only others may do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.layouts import starts
from hulk_placement.layouts.fewest import fits
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trials
from hulk_placement.topology import Machine

MOST_TRIED = 64
"""Layouts for each size of memory, those of fewest accelerators first."""


def try_fitting(trials: Trials, space: Space) -> bool:
    """Build layouts of shapes that fit, and keep them; whether one is possible.

    For each size of memory, the largest first, all machines that have as much count as if they had no more.
    """
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
            tour_W = starts.cycle(setting, regions, shape.pipeline)
            order_N = starts.order_cells(setting, tour_W, regions, float(machine.memory_bytes))
            if len(order_N) >= shape.data * shape.pipeline:
                yield shape, order_N, tour_W
