"""Sums that torch makes of a divided model, each layer by itself: what a step waits for them, and who says so."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hulk_placement.collective.network import build_network
from hulk_placement.cost.closed_form.arrays import Cache
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.gloo import SOFTWARE_S
from hulk_placement.cost.layer_sums import largest_sum, layer_sums
from hulk_placement.cost.pipelines import arrays_of
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.wan import simulated
from hulk_placement.model import Model
from hulk_placement.model.layer import Frozen, Layer
from hulk_placement.model.layers import Known
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.search.flows import flows_of
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

MIB = 1 << 20
SIZES = (1, 4, 0, 1)
"""MiB of gradients of each layer; one is frozen."""
RTT_S, RATE = 0.1, 10 * MIB
REGIONS = ("eu", "us")
TOPOLOGY = Topology(
    tuple(Machine(region, region, num_accelerators=2, keeps_windows=True, flops_per_s=1e9) for region in REGIONS),
    region_links={(a, b): Link(RTT_S, RATE) if a != b else Link(0.0, 1e12) for a in REGIONS for b in REGIONS},
)

DEGREES = pytest.mark.parametrize("degrees", [{"shard": 2, "tensor": 1}, {"shard": 1, "tensor": 2}])
"""Of a replica's ranks."""


def model(sizes: tuple[int, ...] = SIZES, **changes: object) -> Model:
    layers = tuple(
        Layer(f"h.{number}", (size or 1) * MIB // 4, 1e6, 2e6, 0, 0, frozen=Frozen(0 if size else MIB // 4))
        for number, size in enumerate(sizes)
    )
    return replace(Model(layers), **changes)  # type: ignore[arg-type]


def job(**changes: object) -> Workload:
    asked = Workload("a/b", model(), 4, dict.fromkeys(REGIONS, 2), 4, 4, shard=2, micro_batch=1, sums_by_layer=True)
    return replace(asked, **changes)  # type: ignore[arg-type]


def drawn(algorithm: str = "ring", **changes: object) -> Plan:
    """A replica of two shards in each region."""
    workers = tuple(WorkerSlot(region, region, 2) for region in REGIONS)
    flows = flows_of(job(), TOPOLOGY, REGIONS, [1, 2], lambda: True, whole=True, width=2)
    collective = flows if algorithm == "wan" else None
    plan = Plan("a/b", 1, workers, (2, 2), 1, 2, NOT_PREDICTED, Layout(2, shard=2), algorithm, collective)
    return replace(plan, **changes)  # type: ignore[arg-type]


def waited_s(plan: Plan, workload: Workload) -> float:
    """By the closed form and by the simulation."""
    found = predict(plan, workload, TOPOLOGY)
    assert simulate(plan, workload, TOPOLOGY).step_s == pytest.approx(found.step_s, rel=1e-6)
    return found.communication_s


def test_gloo_sums_each_layer_after_the_one_before() -> None:
    """Two shards of a layer share the link, so it carries the layer once; a ring of two waits two round trips."""
    assert layer_sums(drawn(), job()) == ((MIB, 4 * MIB, MIB),)
    by_hand = sum(size * MIB / RATE + 2 * (RTT_S + SOFTWARE_S) for size in SIZES if size)
    assert waited_s(drawn(), job()) == pytest.approx(by_hand)
    assert waited_s(drawn(num_buckets=1), job()) == pytest.approx(by_hand)


@DEGREES
def test_hulks_own_sums_each_layer_after_the_one_before(degrees: dict[str, int]) -> None:
    """Shards' parts of it, or tensor ranks'."""
    plan, asked = drawn("wan", layout=Layout(2, **degrees)), job(**degrees)
    assert layer_sums(plan, asked) == ((MIB, 4 * MIB, MIB),)
    assert plan.collective is not None
    network = build_network(TOPOLOGY, REGIONS, allow_unknown=True)
    each = [simulated(plan.collective, network, size * MIB).seconds for size in (1, 4, 1)]
    assert waited_s(plan, asked) == pytest.approx(sum(each))
    # the vector's bytes cross the link once each way, after its latency
    for size, seconds in zip((1, 4, 1), each, strict=True):
        assert RTT_S / 2 + size * MIB / RATE < seconds < 1.3 * (RTT_S / 2 + size * MIB / RATE)
    assert predict(plan, asked, TOPOLOGY).bottleneck in (REGIONS, REGIONS[::-1])


def test_layers_of_stages_are_summed_beside_each_other() -> None:
    """Each stage's in turn; what a later stage shares with an earlier one it sums, too."""
    plan = drawn(
        layout=Layout(2, 2, shard=2), workers=tuple(WorkerSlot(r, r, 4) for r in REGIONS), stages=(0, 1), num_buckets=1
    )
    assert layer_sums(plan, job()) == ((MIB,), (4 * MIB, MIB))
    tied = model()
    tied = replace(tied, layers=(*tied.layers[:3], replace(tied.layers[3], tied_to=0, tied_parameters=100)))
    assert layer_sums(plan, job(model=tied)) == ((MIB,), (4 * MIB, MIB, 400))
    machines = tuple(replace(machine, num_accelerators=4) for machine in TOPOLOGY.machines)
    topology = replace(TOPOLOGY, machines=machines)
    found = predict(plan, job(pipeline=2), topology)
    # the first sums of both stages share the link, two shards of each; then the second stage has it for itself
    crossing_s = [(1 + 4) * MIB / RATE, MIB / RATE]
    assert found.communication_s == pytest.approx(sum(crossing_s) + 2 * 2 * (RTT_S + SOFTWARE_S), rel=0.01)


@DEGREES
@pytest.mark.parametrize(("algorithm", "error"), [("ring", 0.01), ("wan", 0.1)])
@pytest.mark.parametrize("sizes", [(1,) * 8, (2, 0, 3, 2)])
def test_searches_go_by_as_many_sums(
    algorithm: str, error: float, sizes: tuple[int, ...], degrees: dict[str, int]
) -> None:
    """Of the mean layer."""
    workload = job(model=model(sizes), sync=Sync(algorithm), **degrees)
    plan = drawn(algorithm, layout=Layout(2, **degrees))
    setting, layout = arrays_of(plan, workload, TOPOLOGY)
    cache = Cache(2, 1, len(setting.uplink_R), len(setting.kind_M))
    found_s = evaluate(setting, layout, cache)
    assert found_s == pytest.approx(predict(plan, workload, TOPOLOGY).step_s, rel=error)
    num_sums = sum(size > 0 for size in sizes)
    assert found_s - evaluate(setting._replace(sums_by_layer=False), layout, cache) > (num_sums - 1) * RTT_S / 2


@pytest.mark.parametrize(
    ("plan", "changes"),
    [
        (drawn("wan"), {"sums_by_layer": False}),
        (drawn(), {"sums_by_layer": False}),
        (drawn("nccl"), {}),
        (drawn("wan", inner_steps=20), {}),
        (drawn(layout=Layout(4), shares=(1, 1, 1, 1)), {"shard": 1}),
        (drawn(), {"model": model(known=Known.SEQUENCE)}),
    ],
    ids=["Hulk's own loop", "its ring", "NCCL", "local SGD", "whole models", "layers not known"],
)
def test_others_sum_as_before(plan: Plan, changes: dict[str, object]) -> None:
    workload = job(**changes)
    assert layer_sums(plan, workload) == ()
    before = replace(workload, sums_by_layer=False)
    assert predict(plan, workload, TOPOLOGY) == predict(plan, before, TOPOLOGY)
    assert largest_sum(plan, workload) == math.ceil(6 * MIB / plan.num_buckets)


@pytest.mark.parametrize("mode", ["wan", "ring"])
def test_a_plan_is_chosen_and_explained_by_what_layers_wait(mode: str) -> None:
    plans = {}
    for by_layer in (True, False):
        workload = job(sync=Sync(mode), sums_by_layer=by_layer)
        plan = solve([workload], [], TOPOLOGY, Budget(seconds=10.0, iterations=20_000)).plans["a/b"]
        assert plan.layout == Layout(2, shard=2)
        assert plan.prediction.step_s == pytest.approx(predict(plan, workload, TOPOLOGY).step_s)
        plans[by_layer] = plan
    by_layer, in_buckets = plans[True], plans[False]
    # the search goes by the mean layer, which proves nothing of what is predicted
    assert by_layer.optimality_gap > 0
    assert (in_buckets.optimality_gap == 0) == (mode == "ring")
    assert by_layer.prediction.step_s > in_buckets.prediction.step_s + RTT_S
    said = "torch sums each of 3 layers by itself, one after another: backward passes hide nothing of that."
    assert said in by_layer.why
    assert said not in in_buckets.why
