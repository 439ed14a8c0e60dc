"""The order of blocks in a plan's pipelines: searched where links make stages wait, kept where it is no better."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.cost.memory import in_flight
from hulk_placement.cost.pipelines import arrays_of
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.layouts.ordering import reordered, rooms, searched
from hulk_placement.layouts.place import place
from hulk_placement.model import Layer, Model
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.solution import Budget
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

KEPT, BESIDE = 1000, 500
"""Bytes of activations of a micro-batch of a stage; room for its parameters."""


def world(way_s: float, memory_bytes: int = 1 << 40, num_regions: int = 2) -> Topology:
    """Two machines in each of some regions, `way_s` apart."""
    names = "abcd"[:num_regions]
    machines = tuple(
        Machine(f"{region}{n}", region, flops_per_s=1e11, memory_bytes=memory_bytes) for region in names for n in (0, 1)
    )
    links = {(a, b): Link(1e-9 if a == b else 2 * way_s, 1e12) for a in names for b in names}
    return Topology(machines, region_links=links)


def job(topology: Topology, global_batch: int = 8, num_layers: int = 4) -> Workload:
    """Layers that take 10 s forward and 20 s backward, and weigh nothing beside their activations."""
    layers = tuple(Layer(f"layer.{n}", 1, 1e12, 2e12, 8, KEPT) for n in range(num_layers))
    return Workload(
        "team/job",
        Model(layers),
        global_batch,
        {machine.name: 1 for machine in topology.machines},
        max_workers=100,
        pipeline=None,
        tensor=1,
        micro_batch=1,
        sync=Sync("ring"),
    )


def plan_of(topology: Topology, workload: Workload, num_replicas: int = 1) -> Plan:
    """One stage a machine, replicas one after the other."""
    stages = len(topology.machines) // num_replicas
    plan = Plan(
        key=workload.key,
        attempt=1,
        workers=tuple(WorkerSlot(machine.name, machine.region, 1) for machine in topology.machines),
        shares=(workload.global_batch // num_replicas,) * num_replicas,
        micro_batch=1,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=Layout(num_replicas, stages),
        stages=tuple(range(0, len(workload.model.layers), len(workload.model.layers) // stages)),
    )
    return replace(plan, prediction=predict(plan, workload, topology))


@pytest.mark.parametrize(
    ("way_s", "num_held", "step_s"),
    [
        (40, 8, 410),
        pytest.param(40, 4, 490, marks=pytest.mark.whole),  # a minute: little memory leaves many orders to refute
        pytest.param(40, 6, 430, marks=pytest.mark.whole),
        pytest.param(80, 6, 590, marks=pytest.mark.whole),
    ],
)
def test_memory_buys_the_latency_between_two_regions(way_s: float, num_held: int, step_s: float) -> None:
    """The known optima of four stages, eight micro-batches, forward 10 and backward 20, one slow link in the middle."""
    topology = world(way_s, memory_bytes=num_held * KEPT + BESIDE)
    workload = job(topology)
    plan = plan_of(topology, workload)
    assert plan.prediction.step_s == pytest.approx(330 + 8 * way_s, rel=1e-6)
    better = reordered(plan, workload, topology, seconds=60)
    assert better.schedule == "explicit"
    assert better.prediction.step_s == pytest.approx(step_s, rel=1e-6)
    assert better.prediction.memory_bytes <= num_held * KEPT + BESIDE
    assert max(in_flight(better, 0, stage) for stage in range(4)) <= num_held
    assert simulate(better, workload, topology).step_s == pytest.approx(step_s, rel=1e-6)


def test_one_order_serves_replicas_of_as_many_micro_batches() -> None:
    topology = world(40, num_regions=4)
    workload = job(topology, 16)
    plan = plan_of(topology, workload, num_replicas=2)
    better = reordered(plan, workload, topology)
    assert better.schedule == "explicit"
    assert better.prediction.step_s < plan.prediction.step_s
    uneven = replace(plan, shares=(9, 7))
    uneven = replace(uneven, prediction=predict(uneven, workload, topology))
    assert reordered(uneven, workload, topology) is uneven


def test_what_is_no_better_is_kept() -> None:
    """No latency: 1F1B is as short as anything can be, and says more in fewer words."""
    topology = world(1e-9)
    workload = job(topology)
    plan = plan_of(topology, workload)
    assert reordered(plan, workload, topology, seconds=5) is plan
    small = world(40, memory_bytes=KEPT // 2)
    assert reordered(plan, workload, small, seconds=5) is plan


def test_memory_is_that_of_the_smallest_machine_of_a_stage() -> None:
    topology = world(40, num_regions=4)
    sizes = dict(zip((machine.name for machine in topology.machines), (8, 7, 6, 5, 9, 9, 3, 9), strict=True))
    machines = tuple(
        replace(machine, memory_bytes=KEPT * sizes[machine.name] + BESIDE) for machine in topology.machines
    )
    topology = replace(topology, machines=machines)
    workload = job(topology, 20)
    setting, layout = arrays_of(plan_of(topology, workload, num_replicas=2), workload, topology)
    assert rooms(setting, layout, 10).tolist() == [8, 7, 3, 5]


def test_the_planner_asks_for_an_order_of_the_best_layouts() -> None:
    """A model that fits no region: its pipeline crosses a link, and waits less than 1F1B would."""
    topology = world(40, memory_bytes=6 * KEPT + BESIDE)
    workload = replace(job(topology, num_layers=4), pipeline=4)
    found = place(workload, topology, Budget(iterations=500))
    assert isinstance(found, Plan)
    assert found.schedule == "explicit"
    plain = predict(replace(found, schedule="1f1b", blocks=()), workload, topology)
    assert found.prediction.step_s < plain.step_s
    assert found.prediction.memory_bytes <= 6 * KEPT + BESIDE  # GPipe holds eight
    assert 0 < found.optimality_gap < 1


def test_the_same_pipeline_is_searched_once() -> None:
    topology = world(40)
    workload = job(topology)
    plan = plan_of(topology, workload)
    first, second = (searched(plan, workload, topology, seconds=2, seed=0) for _ in range(2))
    assert first is second
