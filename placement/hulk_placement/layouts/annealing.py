"""Annealing of a tried layout: calls of the compiled loop, between which time is looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hulk_native import anneal

from hulk_placement.cost.closed_form.arrays import Cache, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.layouts.starts import tours
from hulk_placement.layouts.trials import Trial, Trials, copy_of

MOVES_A_CALL = 1000
HOT, COLD = 0.02, 0.0002


def annealed(
    trials: Trials,
    trial: Trial,
    num_calls: int,
    going_on: Callable[[], bool],
    seed: int,
    moves_a_call: int = MOVES_A_CALL,
) -> Trial:
    """The best layout that annealing finds from one, itself at worst."""
    setting, cache = trials.setting(trial.shape.option), trials.cache(trial.shape)
    layout = best_toured(setting, trial.layout, cache)
    best = copy_of(layout)
    free_M = setting.slots_M - np.bincount(layout.machine_DP.ravel(), minlength=len(setting.slots_M))
    cost = best_cost = evaluate(setting, layout, cache)
    num_moves = 0
    for call in range(num_calls):
        hot, cold = (HOT * (COLD / HOT) ** (step / num_calls) for step in (call, call + 1))
        moves = (moves_a_call, hot, cold, seed * 1_000_003 + call)
        cost, best_cost = anneal(setting, layout, cache, free_M, best, cost, best_cost, *moves)
        num_moves += moves_a_call
        if not going_on():
            break
    best = best_toured(setting, best, cache)
    return trials.keep(trial.shape, best, evaluate(setting, best, cache), num_moves)


def best_toured(setting: Setting, layout: Layout, cache: Cache) -> Layout:
    """The layout with the cheapest of its own tour and those that begin a search on the regions it uses; a copy."""
    regions = tuple(np.unique(setting.region_M[layout.machine_DP]).tolist())
    own = copy_of(layout)
    others = [own._replace(tour_W=tour_W) for tour_W in tours(setting, regions, layout.machine_DP.shape[1])]
    return copy_of(min([own, *others], key=lambda layout: evaluate(setting, layout, cache)))
