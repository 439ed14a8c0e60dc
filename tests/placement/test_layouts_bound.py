"""What no step is below: floors that every layout keeps, and the gap of a plan that several searches looked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts.data_parallel import best_of
from hulk_placement.layouts.reasons import least_step_s
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from split_cases import model, workload


def far(num_regions: int, rtt_s: float) -> Topology:
    """A machine of 1 TFLOP/s in each region; links that carry anything."""
    regions = "abcdef"[:num_regions]
    links = {(a, b): Link(1e-4 if a == b else rtt_s, 1e12) for a in regions for b in regions}
    return Topology(tuple(Machine(f"{r}0", r, flops_per_s=1e12) for r in regions), region_links=links)


def least_s(job: Workload, world: Topology) -> float:
    trials = Trials(Ground.of(job, world, world.machines))
    return least_step_s(trials, space_of(trials.ground))


def planned(job: Workload, world: Topology) -> Plan:
    solution = solve([job], [], world, Budget(5000))
    assert job.key in solution.plans, solution.unplaced
    return solution.plans[job.key]


@pytest.mark.parametrize(
    "sync", [Sync("ring"), Sync("wan"), Sync("auto"), Sync("local", inner_steps=50)], ids=lambda sync: sync.mode
)
@pytest.mark.parametrize("rtt_s", [0.5, 2.0, 2.6])
def test_no_plan_is_below_the_bound(sync: Sync, rtt_s: float) -> None:
    """Four machines compute a step of 4 s in 1 s; Hulk's own all-reduce goes one way, at once."""
    world = far(4, rtt_s)
    job = workload(world, trained=model(1, flops=1e12 / 3, parameters=1000), sync=sync)
    plan = planned(job, world)
    assert least_s(job, world) <= plan.prediction.step_s
    assert plan.prediction.step_s * (1 - plan.optimality_gap) >= min(1.0, least_s(job, world)) * (1 - 1e-9)


def test_a_pair_of_machines_that_is_nearer_than_its_regions_counts() -> None:
    """Two machines have 1 ms between them, where their regions have 2 s."""
    world = far(2, 2.0)
    near = {("a0", "b0"): Link(0.001, 1e12), ("b0", "a0"): Link(0.001, 1e12)}
    world = replace(world, node_links=near)
    job = workload(world, trained=model(1, flops=1e12 / 3, parameters=1000))
    plan = planned(job, world)
    assert plan.prediction.step_s < 2.1
    assert least_s(job, world) <= plan.prediction.step_s


def plan_with(gap: float, step_s: float) -> Plan:
    world = far(1, 1.0)
    plan = planned(workload(world, trained=model(1)), world)
    return replace(plan, prediction=replace(plan.prediction, step_s=step_s), optimality_gap=gap)


def test_a_bound_that_rounding_takes_below_a_proven_step_leaves_no_gap() -> None:
    gap = 1 - 1 / 1.27
    assert (1 - gap) * 1.27 < 1.0
    assert not best_of([plan_with(gap, 1.27), plan_with(0.0, 1.0)], workload(far(1, 1.0))).optimality_gap


@pytest.mark.parametrize(
    ("gaps", "expected"), [((0.0, 0.0), 0.0), ((0.5, 0.0), 0.4), ((0.1, 0.2), 0.2)], ids=["proven", "other", "own"]
)
def test_the_best_of_two_searches_is_proven_no_better_than_both_are(gaps: tuple[float, float], expected: float) -> None:
    """1.2 s with a gap of one half: a step of 0.6 s may be. That one kind's best takes 1 s says nothing of it."""
    found = best_of([plan_with(gaps[0], 1.2), plan_with(gaps[1], 1.0)], workload(far(1, 1.0)))
    assert found.prediction.step_s == 1.0
    assert found.optimality_gap == pytest.approx(expected)
