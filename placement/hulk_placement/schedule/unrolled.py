"""A pattern for any number of micro-batches, with the warm-up and the cool-down that fit it.

The three are found together, without barriers between them: in a schedule of few micro-batches those in the middle
follow each other by the pattern's period, and all others are free. Such a schedule is cut in its middle, and as many
periods as are asked for are put in there.
"""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from hulk_placement.schedule.bounds import least_makespan
from hulk_placement.schedule.exact import Starts, time_optimal
from hulk_placement.schedule.found import Repetend
from hulk_placement.schedule.memory import Memory
from hulk_placement.schedule.operations import Ticks
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.timing import Schedule, check, earliest


def periodic(pattern: Repetend, num_micro_batches: int) -> Schedule:
    """The pattern from the first micro-batch to the last, all of it as early as its order lets it."""
    starts_ON = pattern.offset_O[:, None] + pattern.period * np.arange(num_micro_batches)
    orders = Schedule(pattern.operations, starts_ON).orders()
    return earliest(pattern.operations, orders, num_micro_batches)


def joined(
    placement: Placement, pattern: Repetend, num_micro_batches: int, memory: Memory, seconds: float, seed: int
) -> Schedule:
    """The pattern with a warm-up and a cool-down of its own, where that is shorter than `periodic`."""
    plain, free = periodic(pattern, num_micro_batches), pattern.num_micro_batches
    steady = 2 * free + 1
    least = least_makespan(plain.operations, num_micro_batches, memory)
    if plain.makespan <= least * (1 + 1e-9) or seconds <= 0.0:
        return plain
    if num_micro_batches <= 2 * free + steady:
        return time_optimal(placement, num_micro_batches, memory, seconds, begin=plain, seed=seed).schedule

    def constrain(model: cp_model.CpModel, starts: Starts, ticks: Ticks) -> None:
        for row in starts:
            for m in range(free, free + steady - 1):
                model.add(row[m + 1] == row[m] + round(pattern.period / ticks.length))

    few = periodic(pattern, 2 * free + steady)
    found = time_optimal(placement, few.num_micro_batches, memory, seconds, few, seed, constrain).schedule
    longer = stretched(found, free + steady // 2, pattern.period, num_micro_batches)
    longer = earliest(longer.operations, longer.orders(), num_micro_batches)
    try:
        check(longer, memory)
    except ValueError:  # what is near the ends reaches over the middle
        return plain
    return longer if longer.makespan < plain.makespan else plain


def stretched(schedule: Schedule, middle: int, period: float, num_micro_batches: int) -> Schedule:
    """The schedule with more micro-batches like its middle one, each a period later than the one before."""
    starts_ON, more = schedule.starts_ON, num_micro_batches - schedule.num_micro_batches
    between_ON = starts_ON[:, [middle]] + period * np.arange(1, more + 1)
    behind_ON = starts_ON[:, middle + 1 :] + period * more
    return Schedule(schedule.operations, np.hstack([starts_ON[:, : middle + 1], between_ON, behind_ON]))
