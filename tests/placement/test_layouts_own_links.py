"""What is looked at where machines have links of their own: bounded by cells of plans, whatever a machine's speed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.predict import predict
from hulk_placement.layouts import climbing, own_links
from hulk_placement.layouts.own_links import MOST_CELLS, MOST_FINALIST_CELLS, MOST_REPLICAS, exchanged
from hulk_placement.layouts.place import NUM_PLANNED, place
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, Prediction, WorkerSlot, used_pairs
from hulk_placement.solution import Budget
from hulk_placement.topology import Link, Machine, Pair, Topology
from split_cases import model, workload

INSIDE, FAR, SLOW = Link(1e-4, 1e9), Link(0.02, 1e9), Link(0.2, 1e6)


class Predicted:
    """How many cells each plan has that was predicted: to choose those that are gone on with, and to climb from one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.finalists: list[int] = []
        self.variants: list[int] = []
        for module, cells in ((own_links, self.finalists), (climbing, self.variants)):
            monkeypatch.setattr(module, "predict", self._counted(cells))

    def _counted(self, cells: list[int]) -> Any:
        def counted(plan: Plan, *given: Any) -> Prediction:
            cells.append(plan.layout.data * plan.layout.pipeline)
            return predict(plan, *given)

        return counted


def regions(num_regions: int, num_machines: int, own: dict[Pair, Link]) -> Topology:
    """Machines that are all alike, numbered region after region."""
    names = [f"r{number:02d}" for number in range(num_regions)]
    machines = tuple(Machine(f"{name}-{n:02d}", name, flops_per_s=1e12) for name in names for n in range(num_machines))
    links = {(a, b): INSIDE if a == b else FAR for a in names for b in names}
    return Topology(machines, node_links=own, region_links=links)


def replicas(world: Topology, num: int) -> tuple[Plan, Ground]:
    """One on each of the first machines, predicted; and what it may be changed on."""
    job = workload(world, trained=model(parameters=50_000_000), global_batch=num, tensor=1)
    slots = tuple(WorkerSlot(machine.name, machine.region, 1) for machine in world.machines[:num])
    plan = Plan(job.key, 1, slots, (1,) * num, 1, 1, NOT_PREDICTED, Layout(num))
    return climbing.replace(plan, prediction=predict(plan, job, world)), Ground.of(job, world, world.machines)


def test_what_is_looked_at_on_a_thousand_machines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted, names = Predicted(monkeypatch), [machine.name for machine in regions(20, 50, {}).machines]
    wires = {pair: Link(1e-4, 5e9, own_wire=True) for pair in zip(names[::25], names[13::25], strict=True)}
    world = regions(20, 50, wires)
    job = workload(world, trained=model(6), max_workers=1000, global_batch=2000, micro_batch=None)
    found = place(job, world, Budget(3000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    assert MOST_FINALIST_CELLS / 2 < sum(predicted.finalists) <= MOST_FINALIST_CELLS
    assert min(predicted.finalists) < 100  # large plans do not take the turn of small ones
    assert 0 < sum(predicted.variants) <= 2 * NUM_PLANNED * MOST_CELLS  # exchanges, then rings turned round


def test_exchanges_that_change_nothing_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """All machines but two that are not used are joined alike: there are a ring's best order, and other shares."""
    world = regions(1, 40, {("r00-38", "r00-39"): SLOW})
    plan, ground = replicas(world, 8)
    predicted = Predicted(monkeypatch)
    assert exchanged(plan, ground, lambda: math.inf) == plan
    assert len(predicted.variants) == 2


def test_a_machine_is_exchanged_that_is_badly_joined_to_the_next_one_of_a_long_ring() -> None:
    bad = ("r00-31", "r00-30")
    plan, ground = replicas(regions(1, MOST_REPLICAS + 6, {bad: SLOW}), MOST_REPLICAS + 2)
    assert plan.prediction.bottleneck == bad
    better = exchanged(plan, ground, lambda: math.inf)
    assert better.prediction.communication_s < plan.prediction.communication_s / 100
    assert bad not in used_pairs(better)
