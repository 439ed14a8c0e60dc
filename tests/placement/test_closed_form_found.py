"""The closed form beside the simulation over boxes in zones in regions: on layouts by chance and as found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hulk_placement.cost.foresee import foresee, promising
from hulk_placement.cost.money import judged
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.layouts import place as placing
from hulk_placement.model import Layer, Model
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.closed_form.drawn import by_chance, found
from bench.closed_form.question import TOLERANCE, compared

NUM_DRAWN, LEAST_WITHIN = 150, 0.9
NUM_FOUND, LEAST_WITHIN_FOUND, MOST_OFF = 40, 0.9, 0.15
"""Of so few layouts of short searches 37 are within; the bench, of more and longer ones, holds the aim of 95 %."""

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
    ranked: list[tuple[list[Plan], Plan, Workload, Topology]] = []

    def watched(plans: list[Plan], workload: Workload, topology: Topology, left_s: Callable[[], float]) -> Plan:
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
    """Of two plans for one job the one that is less by the formula alone, and more by the simulation, loses."""
    links = {(a, b): Link(1e-4, 1e9) if a == b else Link(0.0, 2e7) for a in "ab" for b in "ab"}
    machines = tuple(Machine(f"{region}{n}", region, flops_per_s=1e12) for region in "ab" for n in range(2))
    layers = tuple(Layer(f"layer.{n}", 1000, 0.05e12 / 3, 0.1e12 / 3, 5_000_000, 10_000_000) for n in range(4))
    topology, workload = Topology(machines, region_links=links), Workload("team/job", Model(layers), 8, {})
    made = Plan(
        key="team/job",
        attempt=0,
        workers=tuple(WorkerSlot(name, name[0], 1) for name in ("a0", "b0", "a1", "b1")),
        shares=(8,),
        micro_batch=1,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=Layout(1, 4),
        stages=(0, 1, 2, 3),
    )
    plans = [replace(made, schedule=schedule) for schedule in ("1f1b", "gpipe")]
    plans = [replace(plan, prediction=predict(plan, workload, topology)) for plan in plans]
    simulated = [simulate(plan, workload, topology).step_s for plan in plans]
    for order in (plans, plans[::-1]):
        chosen = promising(order, workload, topology)
        assert simulated[plans.index(chosen)] == min(simulated)
    assert abs(plans[0].prediction.step_s / simulated[0] - 1) > TOLERANCE
