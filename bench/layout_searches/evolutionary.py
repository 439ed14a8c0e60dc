"""Evolution in the manner of DT-FM (Yuan et al. 2022, arXiv 2206.01288): a population of partitions of machines.

There, one layout is given, all its machines are used, and a partition into stages is bred: a child takes one parent's
groups and is repaired towards the other's, then improved by swaps between groups; the best replaces the worst. Here the
shape and the machines are part of what is bred, as for every other search, and the cost is the common evaluator's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trial, Trials

from bench.layout_searches import sampling

POPULATION = 32
SWAPS = 4
"""Swaps between groups that a child is improved by."""

DRAWS = 8
"""Random layouts for each member of the first population."""


def search(trials: Trials, space: Space, going_on: Callable[[], bool], seed: int) -> None:
    """Draw a population, then breed until the time is over."""
    rng = np.random.default_rng(seed)
    for _ in sampling.drawn(trials, space, rng, lambda: trials.num_evaluations < POPULATION * DRAWS and going_on()):
        pass
    population = trials.best(POPULATION)
    while population and going_on():
        shape = population[rng.integers(len(population))].shape
        parents = [trial for trial in population if trial.shape == shape]
        mother, father = (parents[rng.integers(len(parents))] for _ in range(2))
        child = _bred(trials, mother, father, rng)
        population.append(child)
        population.sort()
        population = population[:POPULATION]


def _bred(trials: Trials, mother: Trial, father: Trial, rng: np.random.Generator) -> Trial:
    """A child of two layouts of one shape: columns of one, the rest in the other's order, some swaps."""
    shape, setting = mother.shape, trials.setting(mother.shape.option)
    machine_PD = mother.layout.machine_DP.T.copy()
    kept = rng.random(shape.pipeline) < 0.5
    left_M = setting.slots_M - np.bincount(machine_PD[kept].ravel(), minlength=len(setting.slots_M))
    machine_PD[~kept] = _filled(father.layout.machine_DP.T.ravel(), left_M, machine_PD[~kept].size).reshape(
        -1, shape.data
    )
    flat_N = machine_PD.ravel()
    spare_N = np.repeat(
        np.arange(len(left_M)), np.maximum(setting.slots_M - np.bincount(flat_N, minlength=len(left_M)), 0)
    )
    for _ in range(rng.integers(SWAPS + 1)):
        a, b = rng.integers(len(flat_N)), rng.integers(len(flat_N) + len(spare_N))
        other = flat_N if b < len(flat_N) else spare_N
        b -= 0 if b < len(flat_N) else len(flat_N)
        flat_N[a], other[b] = other[b], flat_N[a]
    tour_W = mother.layout.tour_W if rng.random() < 0.5 else rng.permutation(mother.layout.tour_W)
    return trials.build(Shape(shape.option, shape.data, shape.pipeline), flat_N, tour_W, by_rows=False)


def _filled(wanted_N: Ints, left_M: Ints, num: int) -> Ints:
    """So many cells with the machines of a list, in its order, as far as they have room; others after them."""
    left_M = left_M.copy()
    chosen: list[int] = []
    for machine in [*wanted_N.tolist(), *np.repeat(np.arange(len(left_M)), np.maximum(left_M, 0)).tolist()]:
        if len(chosen) < num and left_M[machine] > 0:
            left_M[machine] -= 1
            chosen.append(machine)
    return np.array(chosen, np.int64)
