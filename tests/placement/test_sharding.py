"""Shards: what they hold and send, which degree is chosen where, and how a plan with them is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import resources
from itertools import product

import jsonschema
import pytest
from hulk_placement import wire
from hulk_placement.cost.memory import cell_memory, cells_memory
from hulk_placement.cost.predict import predict, stage_groups
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.traffic import traffic
from hulk_placement.files.plan import PlanFile
from hulk_placement.files.plan_reading import to_plan
from hulk_placement.files.plan_writing import plan_document
from hulk_placement.fit import misfits
from hulk_placement.model import Model, Transformer
from hulk_placement.model.layer import PRECISIONS, Layer
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import solve
from hulk_placement.sync import Rounds, Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
OPEN = Rounds(fragments=None, delay_steps=None)
LINKS = {
    ("eu", "us"): Link(0.09, 125e6),
    ("us", "eu"): Link(0.09, 125e6),
    ("eu", "eu"): Link(0.0002, 12.5e9),
    ("us", "us"): Link(0.0002, 12.5e9),
}
SEVEN = Model.of(Transformer(layers=32, hidden=4096, heads=32, sequence_length=2048, vocabulary=32000), "bf16")
SMALL = Model.of(Transformer(layers=4, hidden=256, heads=4, sequence_length=128, vocabulary=1000), "fp32")


def cluster(num: int, each: int, memory_bytes: int = 80 * GIB) -> Topology:
    """So many machines in each of two regions."""
    places = [(region, number) for region in ("eu", "us") for number in range(num)]
    machines = tuple(
        Machine(f"{region}-{number}", region, num_accelerators=each, product="A100", memory_bytes=memory_bytes)
        for region, number in places
    )
    return Topology(machines, {}, LINKS)


def job(topology: Topology, model: Model = SEVEN, **changes: object) -> Workload:
    each = int(changes.get("accelerators_per_worker", 1))  # type: ignore[call-overload]
    candidates = {machine.name: machine.num_accelerators // each for machine in topology.machines}
    asked = Workload("team/a", model, 64, candidates, max_workers=sum(candidates.values()), precision="bf16")
    return replace(asked, **changes)  # type: ignore[arg-type]


def placed(workload: Workload, topology: Topology) -> Plan | Unplaced:
    found = solve([workload], [], topology, Budget(seconds=5.0, iterations=20_000))
    return found.plans.get(workload.key) or found.unplaced[workload.key]


def drawn(
    machines: tuple[str, ...],
    each: int,
    layout: Layout,
    batch: int,
    micro_batch: int = 1,
    stages: tuple[int, ...] = (0,),
) -> Plan:
    """A plan over machines of as many accelerators, by hand."""
    workers = tuple(WorkerSlot(name, name.split("-")[0], each) for name in machines)
    shares = (batch // layout.data,) * layout.data
    return Plan("team/a", 1, workers, shares, micro_batch, 1, NOT_PREDICTED, layout, stages=stages)


@given(
    st.integers(1, 12),
    st.sampled_from([64, 128, 256]),
    st.sampled_from(PRECISIONS),
    st.sampled_from(["adamw", "sgd"]),
    st.integers(1, 3),
)
def test_more_shards_never_hold_more_and_never_less_than_activations(
    num_layers: int, hidden: int, precision: str, optimizer: str, micro_batch: int
) -> None:
    shape = Transformer(layers=num_layers, hidden=hidden, heads=4, sequence_length=64, vocabulary=500)
    topology = cluster(1, 16)
    workload = job(topology, Model.of(shape, precision), precision=precision, optimizer=optimizer)
    held = []
    for shard in (1, 2, 4, 8, 16):
        plan = drawn(("eu-0",), shard, Layout(1, shard=shard), 64, micro_batch)
        held.append(cell_memory(plan, replace(workload, shard=shard), 0, 0))
    totals = [memory.total for memory in held]
    assert totals == sorted(totals, reverse=True)
    assert {memory.activations for memory in held} == {held[0].activations}
    assert totals[-1] > held[0].activations
    for shard, memory in zip((2, 4, 8, 16), held[1:], strict=True):
        states = memory.gradients + memory.optimizer + memory.parameters
        first = held[1].gradients + held[1].optimizer + held[1].parameters
        assert states * shard == pytest.approx(2 * first)


@given(st.floats(0.001, 1e3), st.floats(1.0, 10.0), st.sampled_from([2, 4, 8]))
def test_a_quicker_link_never_makes_shards_slower_and_a_free_one_hides_them(
    gbytes_per_s: float, factor: float, shard: int
) -> None:
    def compute_s(rate: float) -> float:
        machine = Machine("eu-0", "eu", num_accelerators=shard, product="A100", inside=Link(0.0, rate))
        topology = Topology((machine,))
        plan = drawn(("eu-0",), shard, Layout(1, shard=shard), 64)
        return predict(plan, job(topology, SMALL, shard=shard), topology).compute_s

    whole = cluster(1, 1)
    alone_s = predict(drawn(("eu-0",), 1, Layout(1), 64), job(whole, SMALL), whole).compute_s / shard
    assert compute_s(gbytes_per_s * 1e9) >= compute_s(factor * gbytes_per_s * 1e9) >= alone_s * (1 - 1e-9)
    assert compute_s(1e30) == pytest.approx(alone_s)


def test_replicas_sum_their_shards_in_as_many_groups_at_once() -> None:
    """Four groups of a quarter each take as long over the link between two regions as one of all, but for latency."""
    machines = tuple(replace(machine, keeps_windows=True) for machine in cluster(1, 4).machines)
    topology = Topology(machines, {}, LINKS | dict.fromkeys([("eu", "us"), ("us", "eu")], Link(0.001, 1e6)))
    by_shard = {}
    for shard in (1, 4):
        layout = Layout(2, shard=shard)
        plan = drawn(("eu-0", "us-0"), shard, layout, 64)
        workload = job(topology, SMALL, shard=shard)
        groups = stage_groups(plan, workload)
        assert [group.machines for group in groups] == [("eu-0", "us-0")] * shard
        assert sum(group.num_bytes for group in groups) == pytest.approx(SMALL.gradient_bytes, abs=shard)
        by_shard[shard] = predict(plan, workload, topology)
        assert by_shard[shard].step_s == pytest.approx(simulate(plan, workload, topology).step_s, rel=0.02)
    assert by_shard[4].communication_s == pytest.approx(by_shard[1].communication_s, rel=0.02)
    assert len(by_shard[4].rank_compute_s) == 8


def test_a_group_over_machines_sends_between_them_and_waits_for_the_slower_link() -> None:
    topology = cluster(2, 2)
    workload = job(topology, SMALL, shard=4)
    spread = drawn(("eu-0", "eu-1"), 2, Layout(1, shard=4), 64)
    inside = drawn(("eu-0",), 4, Layout(1, shard=4), 64)
    larger = cluster(2, 4)
    assert predict(spread, workload, topology).compute_s > predict(inside, workload, larger).compute_s
    sent = traffic(spread, workload, topology, stage_groups(spread, workload)).sync
    # 16 micro-batches; each rank sends 3/4 of the parameters twice in bf16 and of the gradients once in fp32, and two
    # of the ring's four edges are between the machines
    assert sent == {("eu", "eu"): pytest.approx(2 * 16 * 0.75 * SMALL.num_parameters * (2 * 2 + 4))}
    assert not traffic(inside, workload, larger, stage_groups(inside, workload)).sync


FOUR = Model(tuple(Layer(str(n), 1000, 1e9, 2e9, 500, 100) for n in range(4)))
TIED = Model((*FOUR.layers[:3], replace(FOUR.layers[3], tied_to=0, tied_parameters=1000)))


@pytest.mark.parametrize(
    ("model", "bytes_per_s", "expected_s"),
    [
        # Of 1,000 parameters in bf16 a gather sends half on, 1,000 bytes, of gradients in fp32 a scatter 2,000. A layer
        # computes 1 and 2 s. Of each stage forward g0 | max(c0, g1) | c1, backward g1 | max(c1, g0) | max(c0, r1) | r0.
        (FOUR, 1e3, [(1 + 1 + 1) + (1 + 2 + 2 + 2)] * 2),
        (FOUR, 250.0, [(4 + 4 + 1) + (4 + 4 + 8 + 8)] * 2),
        (FOUR, 1e30, [(1 + 1) + (2 + 2)] * 2),
        (TIED, 1e3, [(1 + 1 + 1) + (1 + 2 + 2 + 2), (1 + 2 + 1) + (2 + 2 + 4 + 2)]),
    ],
)
def test_each_stage_gathers_its_own_layers(model: Model, bytes_per_s: float, expected_s: list[float]) -> None:
    """One micro-batch on two stages of two layers and two shards; a tied layer has a copy to gather."""
    inside = Link(0.0, bytes_per_s)
    machines = tuple(replace(machine, inside=inside) for machine in cluster(1, 2).machines)
    topology = Topology(machines, {}, LINKS)
    workload = job(topology, model, shard=2, pipeline=2, global_batch=2, flops_per_s={m.name: 1e9 for m in machines})
    plan = drawn(("eu-0", "us-0"), 2, Layout(1, 2, shard=2), 2, stages=(0, 2))
    found = predict(plan, workload, topology)
    assert found.rank_compute_s == pytest.approx([expected_s[stage] for stage in (0, 0, 1, 1)])
    assert found.step_s == pytest.approx(simulate(plan, workload, topology).step_s, rel=0.02)
    assert found.step_s >= sum(expected_s)


def test_stages_of_shards_send_each_sequence_once_and_gather_what_is_theirs() -> None:
    topology = cluster(2, 2)
    layout = Layout(1, 2, shard=4)
    plan = drawn(("eu-0", "eu-1", "us-0", "us-1"), 2, layout, 64, stages=(0, 3))
    workload = job(topology, SMALL, shard=4, pipeline=2)
    found = traffic(plan, workload, topology, stage_groups(plan, workload))
    boundary = 64 * SMALL.layers[2].output_bytes
    assert found.stages == {("eu", "us"): boundary, ("us", "eu"): boundary}
    head, layers = SMALL.layers[-1], SMALL.layers
    copied = {"eu": 0, "us": head.tied_parameters}
    for region, own in (("eu", layers[:3]), ("us", layers[3:])):
        # as a replica of one stage does, but for the table that both ends have
        num = sum(layer.num_parameters for layer in own) + copied[region]
        assert found.sync[region, region] == pytest.approx(2 * 16 * 0.75 * num * (2 * 2 + 4))
    held = [cell_memory(plan, workload, 0, stage) for stage in range(2)]
    alone = drawn(("eu-0", "us-0"), 1, Layout(1, 2), 64, stages=(0, 3))
    whole = [cell_memory(alone, replace(workload, shard=1), 0, stage) for stage in range(2)]
    for one, all_of_it in zip(held, whole, strict=True):
        assert (one.gradients, one.optimizer) == pytest.approx((all_of_it.gradients / 4, all_of_it.optimizer / 4))
        assert one.activations == all_of_it.activations


@pytest.mark.parametrize(
    ("name", "num", "each", "changes", "expected"),
    [
        ("no room for a whole model, in machines", 1, 8, {"shards_if_needed": True}, Layout(2, shard=8)),
        ("stated", 1, 8, {"shard": 4}, Layout(4, shard=4)),
        ("stated with replicas", 2, 8, {"shard": 8, "data": 2}, Layout(2, shard=8)),
        ("stated with tensor ranks", 1, 8, {"shard": 4, "tensor": 2, "min_workers": 2}, Layout(2, tensor=2, shard=4)),
        ("over machines of a region", 4, 1, {"shard": 4, "data": 2}, Layout(2, shard=4)),
        ("over machines, with tensor ranks", 2, 4, {"shard": 4, "tensor": 2, "data": 2}, Layout(2, tensor=2, shard=4)),
        (
            "over machines, workers of two",
            4,
            2,
            {"shard": 4, "data": 2, "accelerators_per_worker": 2},
            Layout(2, shard=4),
        ),
        (
            "stages of shards",
            2,
            8,
            {"shard": 4, "pipeline": 2, "data": 2, "accelerators_per_worker": 4},
            Layout(2, 2, shard=4),
        ),
        (
            "stages of shards over machines, with tensor ranks",
            4,
            2,
            {"shard": 2, "tensor": 2, "pipeline": 2, "data": 2, "accelerators_per_worker": 2},
            Layout(2, 2, 2, 2),
        ),
    ],
)
def test_degrees_are_honoured_and_the_rest_is_chosen(
    name: str, num: int, each: int, changes: dict[str, object], expected: Layout
) -> None:
    topology = cluster(num, each)
    per_worker = changes.setdefault("accelerators_per_worker", each)
    workload = job(topology, **changes)
    plan = placed(workload, topology)
    assert isinstance(plan, Plan), plan
    asked = replace(workload, shard=plan.layout.shard)
    assert plan.layout == expected
    assert not list(misfits(plan, asked, topology))
    assert {worker.num_accelerators for worker in plan.workers} == {per_worker}
    assert plan.prediction == predict(plan, asked, topology)
    held = max(memory.total for _, _, memory in cells_memory(plan, asked, topology))
    assert plan.prediction.memory_bytes == pytest.approx(held)
    assert 0 < held <= 80 * GIB
    for replica, stage in product(range(plan.layout.data), range(plan.layout.pipeline)):
        assert len({machine.split("-")[0] for machine in plan.cell(replica, stage)}) == 1
    (said,) = (sentence for sentence in plan.why if "divided among" in sentence)
    assert "a step computes 0.000 s longer" not in said
    assert ("of each stage of a replica" in said) == (plan.layout.pipeline > 1)


def test_shards_are_left_alone_where_a_whole_model_has_room() -> None:
    topology = cluster(1, 8)
    plain, allowed = (placed(job(topology, SMALL, shards_if_needed=may), topology) for may in (False, True))
    assert isinstance(allowed, Plan)
    assert allowed == plain
    assert allowed.layout.shard == 1


@pytest.mark.parametrize(
    ("name", "changes", "reason", "words"),
    [
        (
            "too little memory",
            {"shards_if_needed": True},
            "NoMemory",
            "needs .* of an accelerator of .* with 16.00 GiB",
        ),
        ("too little as stated", {"shard": 2}, "NoMemory", "take 98.10 GiB; all .* together have 256.00 GiB"),
        ("no such group", {"shard": 64}, "NotEnoughAccelerators", "A shard group of 64 x 1 accelerators has no room"),
        (
            "more ranks than sequences",
            {"shard": 4, "global_batch": 3},
            "BatchTooSmall",
            "4 ranks need a micro-batch each",
        ),
        ("machines given", {"shard": 2, "pins": ("eu-0",)}, "PinsNotPossible", "shards exclude each other"),
    ],
)
def test_what_has_no_place_is_refused_with_the_numbers(
    name: str, changes: dict[str, object], reason: str, words: str
) -> None:
    topology = cluster(1, 8, memory_bytes=16 * GIB)
    found = placed(job(topology, accelerators_per_worker=8, **changes), topology)
    assert isinstance(found, Unplaced)
    assert found.reason == reason
    assert re.search(words, found.message), found.message


def test_memory_that_all_replicas_shard_excludes_shards() -> None:
    topology = cluster(1, 8)
    with pytest.raises(ValueError, match="sharded parameters among all replicas and degree shard 2 exclude"):
        job(topology, shard=2, memory=replace(job(topology).memory, sharded="parameters"))


def test_shards_in_two_regions_do_not_fit() -> None:
    topology = cluster(1, 2)
    plan = drawn(("eu-0", "us-0"), 2, Layout(1, shard=4), 64)
    said = list(misfits(plan, job(topology, SMALL, shard=4), topology))
    assert said == ["stage 0 of replica 0 is sharded over eu and us: not one region"]


def test_shards_that_train_apart_are_summed_as_the_job_asks() -> None:
    """By Hulk's own all-reduce, which alone compresses and encrypts what crosses regions."""
    topology, sync = cluster(1, 4, memory_bytes=0), Sync("local", 20, "int8", rounds=OPEN)
    workload = job(topology, SMALL, shard=4, sync=sync, accelerators_per_worker=4, min_workers=2)
    plan = placed(workload, topology)
    assert isinstance(plan, Plan), plan
    assert (plan.algorithm, plan.inner_steps, plan.num_buckets) == ("wan", 20, 1)
    assert plan.collective is not None
    assert (plan.collective.compression, plan.collective.encryption) == ("int8", "wan")
    read, _ = wire.decode(wire.encode(plan, wire.Meta.of(workload, operator_version="1", steps=1)))
    assert read.layout == plan.layout == Layout(2, shard=4)
    assert (read.inner_steps, read.fragments, read.delay_steps) == (20, plan.fragments, plan.delay_steps)
    assert read.collective is not None
    assert read.collective.compression == "int8"


@pytest.mark.parametrize(("mode", "num_stages"), [("ring", 1), ("wan", 1), ("ring", 2)])
def test_a_plan_with_shards_is_written_and_read(mode: str, num_stages: int) -> None:
    """Its version says that a reader must know meshes; other plans stay as they were."""
    topology = cluster(1, 4, memory_bytes=0)
    regions = {"eu": 4, "us": 4}
    degrees = {"shard": 2, "tensor": 2, "pipeline": num_stages}
    workload = job(topology, SMALL, sync=Sync(mode), accelerators_per_worker=4, min_workers=2, **degrees)
    plan = placed(workload, topology)
    assert isinstance(plan, Plan), plan
    assert plan.algorithm == "wan" or mode == "ring"
    assert {worker.region: worker.num_accelerators for worker in plan.workers} == regions
    meta = wire.Meta.of(workload, operator_version="1", steps=1)
    body = wire.document(plan, meta)
    schema = json.loads(resources.files("hulk_placement").joinpath("plan-v1.schema.json").read_text())
    jsonschema.validate(body, schema)
    assert body["version"] == 3
    assert body["mesh"] == [["dp_replicate", 2 // num_stages], ["pp", num_stages], ["dp_shard", 2], ["tp", 2]]
    read, _ = wire.decode(wire.encode(plan, meta))
    assert read.layout == plan.layout == Layout(2 // num_stages, num_stages, tensor=2, shard=2)
    assert read.workers == plan.workers
    document = PlanFile.model_validate(plan_document(plan))
    assert to_plan(document, replace(workload, micro_batch=plan.micro_batch), topology).plan.layout == plan.layout
