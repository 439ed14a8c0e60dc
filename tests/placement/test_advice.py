"""Advice whose answer is known by hand, and what must not be advised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hulk_placement.advice import Advised, advise, rank
from hulk_placement.advice.changes import changes
from hulk_placement.advice.inputs import with_links, with_speed
from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.predict import predict
from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hulk_placement.workload import Workload

A100, V100 = "NVIDIA-A100-SXM4-40GB", "Tesla-V100-SXM2-16GB"


def world(rtt_s: float = 0.0, rate: float = 1e15, **machine: Any) -> Topology:
    """Two machines in each of two regions; 1 TFLOP/s each, nothing between them inside a region, open windows."""
    given = {"flops_per_s": 1e12, "num_accelerators": 4, "keeps_windows": True} | machine
    machines = tuple(Machine(name, name[0], **given) for name in ("a0", "a1", "b0", "b1"))
    near, far = Link(0.0, 1e15), Link(rtt_s, rate)
    return Topology(machines, region_links={(p, q): near if p == q else far for p in "ab" for q in "ab"})


def job(num_layers: int = 4, parameters: int = 1, **changes: Any) -> Workload:
    """Layers of 10 + 20 TFLOP that send and keep one byte."""
    layers = (Layer(f"layers.{n}", parameters, 1e13, 2e13, 1, 1) for n in range(num_layers))
    given = {"global_batch": 8, "max_workers": 99, "pipeline": None, "tensor": None}
    return Workload("team/job", Model(tuple(layers)), candidates=dict.fromkeys(("a0", "a1"), 4), **(given | changes))


def predicted(names: str, topology: Topology, workload: Workload, pipeline: int = 1, **changes: Any) -> Plan:
    slots = tuple(WorkerSlot(name, name[0], 1) for name in names.split())
    data = len(slots) // pipeline
    given: dict[str, Any] = {"shares": (workload.global_batch // data,) * data, "micro_batch": 1, "num_buckets": 1}
    given["stages"] = tuple(range(pipeline))
    made = Plan("team/job", 1, slots, prediction=NOT_PREDICTED, layout=Layout(data, pipeline), **(given | changes))
    return replace(made, prediction=predict(made, workload, topology))


def gains(found: Advised) -> dict[str, float]:
    return {row.words: row.share for row in found.rows}


def test_a_single_machine_gains_by_its_speed_alone() -> None:
    found = advise(predicted("a0", world(), job()), job(), world())
    assert gains(found) == pytest.approx({"the accelerators twice as fast": 0.5})
    assert [row.step_s for row in found.rows] == pytest.approx([8 * 4 * 30 / 2])


def test_a_pipeline_over_an_ocean_gains_half_of_its_eight_waits() -> None:
    """Four stages, eight micro-batches, passes of 10 and 20 s, 40 s one way between stages 1 and 2: 330 + 8 x 40 s."""
    topology = world(rtt_s=80.0)
    plan = predicted("a0 a1 b0 b1", topology, job(), pipeline=4)
    assert plan.prediction.step_s == pytest.approx(650, rel=1e-4)
    found = gains(advise(plan, job(), topology))
    assert found["half the latency between a and b"] == pytest.approx(160 / 650, rel=1e-3)
    assert found["the gpipe schedule"] == pytest.approx(1 - (330 + 2 * 40) / 650, rel=1e-3)
    assert "twice the bandwidth between a and b" not in found
    assert not any("inside" in words for words in found)


def test_replicas_behind_a_narrow_link_gain_half_of_its_time() -> None:
    """Gradients of 4 x 25 MB over 1 MB/s: 100 s each way at the same time, beside 480 s of passes."""
    workload, topology = job(parameters=6_250_000), world(rate=1e6)
    plan = predicted("a0 b0", topology, workload)
    waits_s = plan.prediction.communication_s
    assert waits_s == pytest.approx(100, rel=0.01)
    found = gains(advise(plan, workload, topology))
    assert found["twice the bandwidth between a and b"] == pytest.approx(waits_s / 2 / (480 + waits_s), rel=0.01)
    bigger = found["a global batch of 16 (trains differently)"]
    assert bigger == pytest.approx(1 - (960 + waits_s) / 2 / (480 + waits_s))


def test_an_uplink_that_holds_the_links_back_is_what_to_widen() -> None:
    topology = replace(world(rate=1e6), uplinks={"b": 0.5e6})
    found = gains(advise(predicted("a0 b0", topology, job(parameters=6_250_000)), job(parameters=6_250_000), topology))
    assert found["twice the uplink of b"] > 0.1
    assert "twice the bandwidth between a and b" not in found


def test_what_does_not_fit_is_not_advised() -> None:
    """GPipe waits for the link less often than 1F1B, and keeps a MiB for each of eight micro-batches, not of two."""
    layers = tuple(Layer(f"layers.{n}", 1, 1e13, 2e13, 1, 1 << 20) for n in range(2))
    workload = replace(job(), model=Model(layers))
    for mebibytes, expected in ((3, set()), (9, {"the gpipe schedule"})):
        topology = world(rtt_s=20.0, memory_bytes=mebibytes << 20)
        plan = predicted("a0 b0", topology, workload, pipeline=2)
        found = gains(advise(plan, workload, topology))
        assert found.keys() & {"the gpipe schedule"} == expected


def solved(workload: Workload, topology: Topology) -> Plan | None:
    return solve((workload,), (), topology, Budget(3000)).plans.get(workload.key)


def test_a_new_plan_uses_what_the_old_one_could_not() -> None:
    topology = world()
    ring = Sync(mode="ring")
    workload = job(pipeline=1, tensor=1, data=2, sync=ring, layer_pins=(LayerPin((0,), machines=("a0",)),))
    plan = solved(workload, topology)
    assert plan is not None
    found = advise(plan, workload, topology, solved)
    named = {row.words: row.is_new_plan for row in found.rows}
    assert named["the layout left to the planner"]
    assert found.searched_again_s == plan.prediction.step_s
    assert all(row.share >= 0.005 for row in found.rows)


def test_a_region_that_is_denied_is_worth_what_it_computes() -> None:
    """8 accelerators of region a share 8 sequences; with those of b there are 16, and only a new plan can use them."""
    topology, workload = world(), job(global_batch=16, sync=Sync(mode="ring"), pipeline=1, tensor=1, max_workers=8)
    plan = solved(workload, topology)
    assert plan is not None
    rows = {row.words: row for row in advise(plan, workload, topology, solved).rows}
    assert rows["region b allowed"].is_new_plan
    assert rows["region b allowed"].share == pytest.approx(0.5, abs=0.01)


SOURCES = {
    "declared": ({"flops_per_s": 5e13, "product": A100}, {"flops_per_s": 3e13, "product": V100}, {}),
    "data sheets": ({"product": A100}, {"product": V100}, {}),
    "one declared, the other by its data sheet": ({"product": A100, "flops_per_s": 5e13}, {"product": V100}, {}),
    "measured": (
        {"product": A100},
        {"product": V100},
        {"flops_per_s": {"a0": 6e13}, "measured_micro_batch": {"a0": 2}},
    ),
    "nothing known": ({"product": "x"}, {"product": "y"}, {}),
}


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_only_the_product_that_is_made_faster_changes(source: str, tensor: int) -> None:
    first, second, figures = SOURCES[source]
    machines = (Machine("a0", "a", "", 4, **first), Machine("b0", "b", "", 4, **second))
    topology = Topology(machines, region_links={(p, q): Link(1e-3, 1e9) for p in "ab" for q in "ab"})
    layers = tuple(Layer(f"layers.{n}", 10**7, 1e12, 2e12, 1, 10**8) for n in range(2))
    workload = replace(job(), model=Model(layers), **figures)
    plan = Plan(
        "team/job",
        1,
        tuple(WorkerSlot(name, name[0], tensor) for name in ("a0", "b0")),
        (8,),
        2,
        1,
        NOT_PREDICTED,
        Layout(1, 2, tensor),
        stages=(0, 1),
    )
    before = predict(plan, workload, topology).rank_compute_s
    for factor in (1.0, 2.0):
        product = first["product"]
        after = predict(plan, with_speed(workload, topology, product, factor, 2), topology).rank_compute_s
        assert after == pytest.approx((*(s / factor for s in before[:tensor]), *before[tensor:]), rel=1e-9)


def test_a_profiled_product_is_made_faster_by_its_profile() -> None:
    times = LayerTimes((TimesRow("x", 1, 1, (1.0,), (2.0,)),))
    workload = replace(job(), model=Model((Layer("all", 1, 0.0, 0.0, 1, 1),), times=times))
    topology = Topology((Machine("a0", "a", product="x"),))
    plan = predicted("a0", topology, workload)
    assert plan.prediction.step_s == 24
    assert gains(advise(plan, workload, topology))["x twice as fast"] == pytest.approx(0.5)


def meeting(workload: Workload) -> tuple[Plan, Topology]:
    """Two pipelines whose transfers of 5 MB share 20 MB/s each way with each other."""
    topology = world(rtt_s=0.02, rate=2e7)
    made = predicted("a0 b0 a1 b1", topology, workload, pipeline=2)
    return replace(made, prediction=foresee(made, workload, topology)), topology


def test_a_promise_with_transfers_that_meet_is_compared_with_changes_priced_alike() -> None:
    """Both speeds of the evaluator price transfers that meet: what changes nothing saves nothing."""
    layers = tuple(Layer(f"layers.{n}", 1000, 1e11, 2e11, 5_000_000, 1) for n in range(2))
    workload = replace(job(), model=Model(layers))
    plan, topology = meeting(workload)
    assert plan.prediction.step_s == pytest.approx(predict(plan, workload, topology).step_s)
    found = advise(plan, workload, topology)
    assert "twice the bandwidth between a and b" in gains(found)
    assert not any("inside" in words or "memory" in words or "bucket" in words for words in gains(found))
    for row in found.rows:
        batch = 16 if "batch of 16" in row.words else 8
        assert row.share == pytest.approx(1 - row.step_s / batch / (plan.prediction.step_s / 8))


def test_a_plan_with_an_order_of_its_own_is_advised_as_the_schedule_that_it_is() -> None:
    topology = world(rtt_s=80.0)
    named = predicted("a0 b0", topology, job(num_layers=2, global_batch=3), pipeline=2)
    blocks = (
        (("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)),
        (("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)),
    )
    workload = job(num_layers=2, global_batch=3)
    own = predicted("a0 b0", topology, workload, pipeline=2, schedule="explicit", blocks=blocks)
    expected, found = (gains(advise(plan, workload, topology)) for plan in (named, own))
    assert found["half the latency between a and b"] == pytest.approx(expected["half the latency between a and b"])
    assert found["the accelerators twice as fast"] == pytest.approx(expected["the accelerators twice as fast"])
    assert not any("micro-batches" in words or "schedule" in words for words in found)


def test_a_plan_of_too_many_passes_is_compared_by_the_closed_form_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers = tuple(Layer(f"layers.{n}", 1000, 1e11, 2e11, 5_000_000, 1) for n in range(2))
    workload = replace(job(), model=Model(layers))
    plan, topology = meeting(workload)
    monkeypatch.setattr(rank, "MOST_BLOCKS", 40)
    found = gains(advise(plan, workload, topology))
    faster = with_links(topology, frozenset({("a", "b"), ("b", "a")}), bandwidth=2.0)
    expected = 1 - predict(plan, workload, faster).step_s / predict(plan, workload, topology).step_s
    assert found["twice the bandwidth between a and b"] == pytest.approx(expected)
    assert not any("inside" in words for words in found)


def test_machines_own_links_are_tried_where_nothing_else_is_known_between_their_regions() -> None:
    unknown = Link(2.0, 125_000.0, kind=LinkKind.UNKNOWN)
    own = {("a0", "b0"): Link(0.02, 1e6), ("b0", "a0"): Link(0.02, 1e6)}
    links = {("a", "b"): unknown, ("b", "a"): unknown}
    topology = replace(world(), node_links=own, region_links=links)
    workload = job(allow_unknown_links=True)
    tried = {change.words for change in changes(predicted("a0 b0", topology, workload), workload, topology)}
    assert "twice the bandwidth between a and b" in tried


def test_a_region_without_prices_is_not_forbidden_where_prices_decide() -> None:
    topology = world()
    priced = tuple(replace(m, price_per_hour=1.0 if m.region == "a" else 0.0) for m in topology.machines)
    for limit, expected in ((None, ["region b allowed"]), (99.0, [])):
        tried = changes(
            predicted("a0", topology, job()), job(max_price_per_hour=limit), replace(topology, machines=priced)
        )
        assert [change.words for change in tried if change.words.endswith("allowed")] == expected
