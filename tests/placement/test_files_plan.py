"""plan.yaml: every way to say a plan, what comes back, and plans that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from file_worlds import plans
from hulk_placement.cost.predict import predict
from hulk_placement.files import text
from hulk_placement.files.plan import PlanFile
from hulk_placement.files.plan_reading import ReadPlan, read_plan, to_plan
from hulk_placement.files.plan_writing import plan_document
from hulk_placement.files.schedule import parse_blocks, write_blocks
from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow, Transformer
from hulk_placement.plan import Plan
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given
from worlds import profile, workload

HEAD = "apiVersion: hulk.dev/files/v1\nkind: Plan\n"
NEAR = {(a, b): Link(0.001 if a == b else 0.08, 1e9) for a in ("eu", "us") for b in ("eu", "us")}
TOPOLOGY = Topology(
    tuple(
        Machine(name, region, num_accelerators=num)
        for name, region, num in (("a-0", "eu", 4), ("a-1", "eu", 4), ("b", "us", 8))
    ),
    region_links=NEAR,
)
JOB = Workload(
    key="job",
    model=Model.of(Transformer(layers=4, hidden=16, heads=2, sequence_length=8, vocabulary=32)),
    global_batch=16,
    candidates={"a-0": 4, "a-1": 4, "b": 8},
    max_workers=16,
    micro_batch=2,
    pipeline=None,
    tensor=None,
)


PRICED = Topology(
    (
        *(replace(machine, price_per_hour=0.1) for machine in TOPOLOGY.machines),
        Machine("c", "asia", "", 8, price_per_hour=0.2),
    ),
    region_links=NEAR,
)
PINS = (LayerPin((0,), ("eu",)), LayerPin((5,), ("us",)))


def document(said: str) -> PlanFile:
    return text.parse(PlanFile, text.load(HEAD + said), "plan.yaml")


def read(said: str, job: Workload = JOB, topology: Topology = TOPOLOGY) -> ReadPlan:
    return to_plan(document(said), job, topology, "plan.yaml")


def test_a_plan_of_two_pipelines_says_who_runs_what() -> None:
    plan = read(
        """
workload: job
layout: {data: 2, pipeline: 2, tensor: 2}
layersPerStage: [2, 4]
replicas: [[a-0, b], [a-1, b]]
microBatches: [3, 5]
schedule: gpipe
rings: [[1, 0]]
sync: hierarchical
buckets: 4
overlap: false
recompute: true
"""
    ).plan
    assert plan.rank_machines == ("a-0", "a-0", "b", "b", "a-1", "a-1", "b", "b")
    assert (plan.stages, plan.shares, plan.micro_batch, plan.schedule) == ((0, 2), (6, 10), 2, "gpipe")
    assert (plan.rings, plan.algorithm, plan.num_buckets) == (((1, 0), (1, 0)), "hierarchical", 4)
    assert (plan.overlap, plan.recompute, plan.prediction.step_s) == (False, True, 0)
    assert [worker.region for worker in plan.workers] == ["eu", "us", "eu", "us"]


@pytest.mark.parametrize(
    ("said", "machines"),
    [
        ("machines: [a-0, b, a-1, b]", ["a-0", "b", "a-1", "b"]),
        ("machines: ['a-[0-1]', b x 2]", ["a-0", "a-1", "b", "b"]),
        ("machines: ['a-[0-1] x 2']", ["a-0", "a-0", "a-1", "a-1"]),
        ("replicas: [[b x 2], ['a-[0-1]']]", ["b", "b", "a-0", "a-1"]),
        ("workers: [{machine: b, accelerators: 3}, {machine: a-0}]", ["b", "b", "b", "a-0"]),
    ],
)
def test_machines_have_shorthands(said: str, machines: list[str]) -> None:
    assert list(read(f"layout: {{data: 2, pipeline: 2}}\n{said}").plan.rank_machines) == machines


def test_a_machine_whose_name_looks_like_a_shorthand_is_meant_itself() -> None:
    odd = Topology((Machine("x-[0-1]", "eu"), Machine("y x 2", "eu")), region_links=NEAR)
    job = replace(JOB, candidates={"x-[0-1]": 1, "y x 2": 1})
    plan = read("layout: {data: 2}\nmachines: ['x-[0-1]', y x 2]", job, odd).plan
    assert plan.rank_machines == ("x-[0-1]", "y x 2")


@pytest.mark.parametrize(
    ("said", "stages"),
    [
        ("", (0, 2, 4)),
        ("layersPerStage: [1, 1, 4]", (0, 1, 2)),
        ("blocksPerStage: [1, 1, 2]", (0, 2, 3)),
        ("firstLayers: [0, 1, 5]", (0, 1, 5)),
    ],
)
def test_stages_are_layers_or_blocks_or_as_many_each(said: str, stages: tuple[int, ...]) -> None:
    assert read(f"layout: {{pipeline: 3}}\nmachines: [b x 3]\n{said}").plan.stages == stages


def test_shares_and_micro_batches_may_come_from_the_workload() -> None:
    plan = read("layout: {data: 4}\nmachines: [b x 4]").plan
    assert (plan.shares, plan.micro_batch, plan.schedule, plan.algorithm) == ((4, 4, 4, 4), 2, "1f1b", "ring")


SCHEDULE = ["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]


@pytest.mark.parametrize("is_file", [False, True])
def test_an_order_of_ones_own_is_kept_as_blocks(tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "schedule.yaml").write_text(yaml.safe_dump({"stages": SCHEDULE}))
    said: dict[str, Any] = {"scheduleFile": "schedule.yaml"} if is_file else {"blocks": SCHEDULE}
    path = tmp_path / "plan.yaml"
    path.write_text(f"{HEAD}layout: {{data: 2, pipeline: 2}}\nmachines: [b x 4]\n{yaml.safe_dump(said)}")
    plan = read_plan(path, JOB, TOPOLOGY).plan
    assert plan.schedule == "explicit"
    assert plan.blocks[1][:3] == (("F", 0), ("B", 0), ("F", 1))
    assert write_blocks(plan.blocks) == SCHEDULE


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["F0 B0 X1"], "stage 0: 'X1' is no block"),
        (["F0 B0", "F0"], "stage 1: F and B of each micro-batch, 0 to 0, must be there once: wrong are B0"),
        (["F0 F0 B0"], "wrong are F0"),
        (["F0 B0 F2 B2"], "micro-batch, 0 to 2, must be there once: wrong are B1, F1"),
        ([""], "stage 0: F and B of each"),
        (["F999999999999 B999999999999"], "a stage has 2 blocks at most, and one is of micro-batch 999999999999"),
        (["B0 F0"], "stage 0: B0 waits for ever"),
        (["F0 B0 F1 B1", "F0 F1 B0 B1"], "stage 0: B0 waits for ever"),
    ],
)
def test_a_schedule_that_cannot_run_is_told(lines: list[str], expected: str) -> None:
    with pytest.raises(ValueError, match="stage") as caught:
        parse_blocks(lines)
    assert expected in str(caught.value)


@given(plans())
def test_a_plan_comes_back_from_its_document(drawn: tuple[Plan, Workload, Topology]) -> None:
    plan, job, topology = drawn
    written = text.dump(plan_document(plan))
    assert to_plan(text.parse(PlanFile, text.load(written), "plan.yaml"), job, topology).plan == plan


def test_a_plan_of_hulks_own_all_reduce_comes_back_with_its_flows() -> None:
    topology = profile("A")
    job = replace(workload(topology), sync=replace(workload(topology).sync, mode="wan"))
    solved = solve([job], (), topology).plans[job.key]
    assert solved.collective is not None
    back = to_plan(document(text.dump(plan_document(solved)).split("kind: Plan\n")[1]), job, topology).plan
    again = predict(back, job, topology)
    assert again.step_s == pytest.approx(solved.prediction.step_s, rel=1e-3)
    assert again.bottleneck == solved.prediction.bottleneck


def test_flows_that_are_not_said_are_planned() -> None:
    plan = read("layout: {data: 4}\nmachines: [a-0 x 2, b x 2]\nsync: wan").plan
    assert plan.collective is not None
    assert plan.collective.network.regions == ("eu", "us")


@pytest.mark.parametrize(("sync", "links"), [("ring", "a-0 -> b, b -> a-0"), ("wan", "eu -> us, us -> eu")])
def test_unknown_links_are_warned_of_unless_the_workload_allows_them(sync: str, links: str) -> None:
    dark = replace(TOPOLOGY, region_links={})
    said = f"layout: {{data: 2}}\nmachines: [a-0, b]\nsync: {sync}"
    assert read(said, topology=dark).warnings == (
        f"the plan uses links of which nothing is known, and the workload does not allow it: {links}",
    )
    assert read(said, replace(JOB, allow_unknown_links=True), dark).warnings == ()
    assert read(said).warnings == ()


MISTAKES = yaml.safe_load((Path(__file__).parent / "golden" / "misfit-plans.yaml").read_text())


@pytest.mark.parametrize(
    ("said", "expected"), [(entry["said"], entry["expected"]) for entry in MISTAKES], ids=[e["name"] for e in MISTAKES]
)
def test_a_plan_that_does_not_fit_is_told_with_its_figures(tmp_path: Path, said: str, expected: str) -> None:
    base: dict[str, Any] = {"layout": {"data": 2, "pipeline": 2}, "machines": ["a-0", "b", "a-1", "b"]}
    changes = yaml.safe_load(said)
    places = {"machines", "replicas", "workers"}
    kept = {key: value for key, value in base.items() if not (key in places and places & changes.keys())}
    path = tmp_path / "plan.yaml"
    path.write_text(HEAD + yaml.safe_dump({**kept, **changes}))
    job = replace(JOB, layer_pins=PINS, max_price_per_hour=1.0, max_workers=8)
    with pytest.raises(ValueError, match=r"plan\.yaml") as caught:
        read_plan(path, job, PRICED)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "said", "expected"),
    [
        ({"schedule": "gpipe"}, "schedule: 1f1b", "the schedule is 1f1b, the workload has gpipe"),
        ({"shares": "equal"}, "shares: [12, 4]", "shares are 4 to 12 sequences, the workload has equal ones"),
        ({"sync": Sync("ring")}, "innerSteps: 5", r"5 steps to a sum of what replicas have \(innerSteps\), .* has 1"),
        ({"sync": Sync("local", 50)}, "sync: ring", r"1 steps to a sum .*, the workload has 50"),
        ({"pins": ("b", "b")}, "sync: ring", "workers are 1 on a-0, 2 on b, 1 on a-1, the workload has 2 on b"),
    ],
)
def test_a_plan_that_trains_in_another_way_than_is_asked_for_is_told(
    asked: dict[str, Any], said: str, expected: str
) -> None:
    layout = "layout: {data: 2, pipeline: 2}\nmachines: [a-0, b, a-1, b]\n"
    with pytest.raises(ValueError, match=expected):
        read(layout + said, replace(JOB, **asked))
    assert read(layout + said, JOB).plan.layout.num_ranks == 4


def test_without_a_micro_batch_anywhere_nothing_is_guessed() -> None:
    with pytest.raises(ValueError, match="microBatch: neither the plan nor the workload says"):
        read("layout: {data: 2}\nmachines: [b x 2]", replace(JOB, micro_batch=None))


def test_a_worker_that_would_be_in_parts_is_told() -> None:
    job = replace(JOB, accelerators_per_worker=2, candidates={"a-0": 2, "a-1": 2, "b": 4})
    assert read("layout: {data: 2, pipeline: 2}\nmachines: [b, b, a-0, a-0]", job).plan.layout.data == 2
    with pytest.raises(ValueError, match="1 accelerator of a-0, and workers have 2 each") as caught:
        read("layout: {data: 2, pipeline: 2}\nmachines: [b, b x 2, a-0]", job)
    assert "3 accelerators of b, and workers have 2 each" in str(caught.value)


def test_a_price_that_is_just_at_its_limit_is_within_it() -> None:
    """0.1 an hour three times is 0.30000000000000004 in floating point."""
    job = replace(JOB, max_price_per_hour=0.3)
    assert read("layout: {data: 3}\nmachines: [b x 3]\nshares: [6, 6, 4]", job, PRICED).plan.layout.data == 3


def test_a_tensor_degree_that_was_not_measured_is_warned_of() -> None:
    """A profile with seconds of degree 1 alone, without and with what tensor-parallel ranks all-reduce."""
    said = "layout: {tensor: 2}\nmachines: [b]"
    for tensor_bytes, end in (
        (0, "all-reduces inside of it are not counted"),
        (8, "those that it has are taken in proportion"),
    ):
        layers = (Layer("x", 1000, 0.0, 0.0, 8, 8, tensor_bytes=tensor_bytes, num_tensor_allreduces=tensor_bytes),)
        model = Model(layers, times=LayerTimes((TimesRow("unknown", 2, 1, (1.0,), (2.0,)),)))
        (warning,) = read(said, replace(JOB, model=model)).warnings
        assert warning.startswith("the profile has no seconds of unknown with tensor degree 2")
        assert warning.endswith(end)
        assert read(said.replace("2", "1"), replace(JOB, model=model)).warnings == ()
