"""Layouts become plans: what the search reckons with is what the plan is predicted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts.plans import plan_of, ring_of
from hulk_placement.layouts.reducing import ways
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.sync import Sync

from bench.layout_searches import SEARCHES
from bench.planner.cases import Case

NUM_EVALUATIONS = 400
DRAWN = [
    Case(0, 8, 3, "gpt2-xl"),
    Case(2, 16, 4, "gpt2-xl"),
    Case(5, 6, 2, "gpt2-xl"),
    Case(3, 12, 3, "llama-3-8b"),
    Case(1, 24, 5, "t5-11b"),
]


def differences(case: Case, search: str, num: int) -> list[float]:
    """What the search reckons over what the plan is predicted, less 1; of so many of the best layouts."""
    topology = case.topology()
    job = replace(case.workload(topology), sync=Sync("ring"))
    trials = Trials(Ground.of(job, topology, topology.machines))
    SEARCHES[search](trials, space_of(trials.ground), lambda: trials.num_evaluations < NUM_EVALUATIONS, 0)
    found = []
    for trial in trials.best(num):
        if trials.is_possible(trial):
            plans = ways(plan_of(trials, trial), job, topology, lambda: math.inf)
            found.append(trial.cost / min(plan.prediction.step_s for plan in plans) - 1)
    return found


@pytest.mark.parametrize("case", DRAWN, ids=str)
def test_the_best_layouts_are_predicted_what_the_search_reckoned(case: Case) -> None:
    """Several stages in one region, several cells on one machine, tours over regions: exactly, or nearly."""
    found = differences(case, "portfolio", 4)
    assert found
    assert max(abs(difference) for difference in found) < 0.05


@pytest.mark.parametrize("case", DRAWN, ids=str)
def test_most_layouts_at_random_are_too(case: Case) -> None:
    found = np.abs(differences(case, "random", 60))
    assert len(found) > 20
    assert np.median(found) < 0.001
    assert np.quantile(found, 0.9) < 0.05


def test_replicas_on_one_machine_follow_each_other_in_the_ring() -> None:
    assert ring_of(np.zeros(5, np.int64), np.array([7, 3, 7, 3, 5]), [0]) == (2, 0, 4, 3, 1)
