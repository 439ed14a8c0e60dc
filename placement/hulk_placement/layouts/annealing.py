"""Annealing of a tried layout: calls of the compiled loop, between which time is looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.layouts.anneal import anneal
from hulk_placement.layouts.trials import Trial, Trials, copy_of

MOVES_A_CALL = 2000
HOT, COLD = 0.02, 0.0002


def annealed(trials: Trials, trial: Trial, num_calls: int, going_on: Callable[[], bool], seed: int) -> Trial:
    """The best layout that annealing finds from one, itself at worst."""
    setting, cache = trials.setting(trial.shape.option), trials.cache(trial.shape)
    layout, best = copy_of(trial.layout), copy_of(trial.layout)
    free_M = setting.slots_M - np.bincount(layout.machine_DP.ravel(), minlength=len(setting.slots_M))
    cost = best_cost = evaluate(setting, layout, cache)
    num_moves = 0
    for call in range(num_calls):
        hot, cold = (HOT * (COLD / HOT) ** (step / num_calls) for step in (call, call + 1))
        moves = (MOVES_A_CALL, hot, cold, seed * 1_000_003 + call)
        cost, best_cost = anneal(setting, layout, cache, free_M, best, cost, best_cost, *moves)
        num_moves += MOVES_A_CALL
        if not going_on():
            break
    return trials.keep(trial.shape, best, best_cost, num_moves)
