"""The closed form beside the simulation over boxes in zones in regions: on layouts by chance, on those searches find."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hulk_placement.cost.foresee import foresee, promising
from hulk_placement.cost.money import judged
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.layouts import place as placing

from bench.closed_form.drawn import by_chance, found
from bench.closed_form.question import TOLERANCE, compared

NUM_DRAWN, LEAST_WITHIN = 150, 0.9
NUM_FOUND, LEAST_WITHIN_FOUND, MOST_OFF = 40, 0.95, 0.15
EVALUATIONS = 3000


def within(off: list[float]) -> float:
    return sum(one <= TOLERANCE for one in off) / len(off)


def test_layouts_by_chance_take_what_the_simulation_says() -> None:
    assert within([compared(seed, by_chance).off for seed in range(NUM_DRAWN)]) >= LEAST_WITHIN


def test_layouts_that_searches_find_take_what_the_simulation_says() -> None:
    off = [compared(seed, lambda seed: found(seed, EVALUATIONS)).off for seed in range(NUM_FOUND)]
    assert within(off) >= LEAST_WITHIN_FOUND
    assert max(off) <= MOST_OFF


def test_one_replica_alone_on_its_links_is_exact() -> None:
    """Machines that are regions of their own, with no uplinks: no two of its transfers meet."""
    num = 0
    for seed in range(400):
        case = by_chance(seed)
        regions = [worker.region for worker in case.plan.workers]
        if case.plan.layout.data == 1 and len(set(regions)) == len(regions) > 1 and not case.topology.uplinks:
            given = case.plan, case.workload, case.topology
            assert predict(*given).step_s == pytest.approx(simulate(*given).step_s, rel=1e-9), seed
            num += 1
    assert num >= 5


def test_the_plan_that_is_returned_is_the_best_of_the_last_by_what_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = []

    def watched(plans: list, workload: object, topology: object, left_s: object) -> object:
        chosen = promising(plans, workload, topology, left_s)
        ranked.append((plans, chosen, workload, topology))
        return chosen

    monkeypatch.setattr(placing, "promising", watched)
    for seed in range(12):
        found(seed, EVALUATIONS)
    assert len(ranked) == 12
    for plans, chosen, workload, topology in ranked:
        promised = [judged(replace(plan, prediction=foresee(plan, workload, topology)), workload) for plan in plans]
        assert promised[plans.index(chosen)] == pytest.approx(min(promised), rel=1e-6)


def test_the_simulation_decides_where_the_closed_form_is_off() -> None:
    """Of two plans the one that is better by the formula, and said to be more than it is, loses."""
    case = max((by_chance(seed) for seed in range(60)), key=lambda case: -ratio(case))
    assert ratio(case) < 1 - TOLERANCE
    seems = replace(case.plan, prediction=predict(case.plan, case.workload, case.topology))
    promised_s = foresee(case.plan, case.workload, case.topology).step_s
    assert promised_s == simulate(case.plan, case.workload, case.topology).step_s > seems.prediction.step_s
    assert promising([seems], case.workload, case.topology) is seems
    assert math.isfinite(promised_s)


def ratio(case: object) -> float:
    given = case.plan, case.workload, case.topology
    return predict(*given).step_s / simulate(*given).step_s
