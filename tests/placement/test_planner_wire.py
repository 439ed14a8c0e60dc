"""The plan's wire form: the golden file that the runtime's tests read too, the schema, size, round trip, refusals."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import worlds
from depth import num_examples
from hulk_placement import wire
from hulk_placement.cost.predict import predict
from hulk_placement.model import Model, Transformer
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden" / "plan-v1.json"
PIPELINE = GOLDEN.with_name("plan-pipeline-v1.json")
SCHEMA = json.loads(resources.files("hulk_placement").joinpath("plan-v1.schema.json").read_text())
BAD_PLANS = json.loads(GOLDEN.with_name("bad-plans.json").read_text())
"""What stands for what in the golden plan: the runtime's tests read the same."""
GPT = Transformer(layers=2, hidden=64, heads=4, sequence_length=128, vocabulary=256)


def golden_plan() -> tuple[Plan, Workload]:
    """Six workers over profile A out and back through the hub, 50 sequences on machines of two speeds."""
    topology = worlds.profile("A")
    faster = tuple(replace(m, flops_per_s=2e12) if m.name == "O1" else m for m in topology.machines)
    topology = replace(topology, machines=faster)
    job = worlds.workload(topology, key="team/gpt", attempt=3, model=Model.of(GPT), global_batch=50)
    return worlds.plan_of(job, topology, ("P0", "P1", "O0", "T0", "T1", "O1"), num_buckets=2), job


def pipeline_plan() -> tuple[Plan, Workload]:
    """Two replicas of three stages over three regions, in an order of blocks of its own, rings against each other."""
    _, job = golden_plan()
    topology = worlds.profile("A")
    job = replace(job, global_batch=16, model=Model.of(replace(GPT, layers=4)), micro_batch=2)
    names = ("P0", "O0", "T0", "P1", "O1", "T1")
    region = {machine.name: machine.region for machine in topology.machines}
    plan = Plan(
        key=job.key,
        attempt=3,
        workers=tuple(WorkerSlot(name, region[name], 1) for name in names),
        shares=(8, 8),
        micro_batch=2,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=Layout(2, 3),
        stages=(0, 2, 4),
        schedule="explicit",
        rings=((0, 1), (1, 0), (0, 1)),
        blocks=tuple(
            tuple((kind, m) for kind, m in zip(kinds, numbers, strict=True))
            for kinds, numbers in (
                ("FFFFBBBB", (0, 1, 2, 3, 0, 1, 2, 3)),
                ("FFBFBFBB", (0, 1, 0, 2, 1, 3, 2, 3)),
                ("FBFBFBFB", (0, 0, 1, 1, 2, 2, 3, 3)),
            )
        ),
    )
    return replace(plan, prediction=predict(plan, job, topology)), job


def meta_of(job: Workload) -> wire.Meta:
    return wire.Meta.of(job, operator_version="0.1.0", steps=200)


def test_golden_file_is_what_is_written() -> None:
    plan, job = golden_plan()
    document = wire.document(plan, meta_of(job))
    golden = json.loads(GOLDEN.read_text())
    assert document["shares"] == [9, 8, 8, 8, 8, 9]  # the faster machine, then the lower rank
    assert document == golden


def test_golden_file_of_a_pipeline_is_what_is_written() -> None:
    plan, job = pipeline_plan()
    assert wire.document(plan, meta_of(job)) == json.loads(PIPELINE.read_text())


@pytest.mark.parametrize("schedule", ["explicit", "1f1b", "gpipe"])
def test_pipelines_come_back_as_they_were(schedule: str) -> None:
    plan, job = pipeline_plan()
    if schedule != "explicit":
        plan = replace(plan, schedule=schedule, blocks=(), recompute=True, overlap=False, rings=())
    meta = replace(meta_of(job), nearest_stores=(("uk", "eu"),))
    back, read = wire.decode(wire.encode(plan, meta))
    assert read.nearest_stores == meta.nearest_stores
    kept = replace(plan.prediction, bottleneck=None, rank_compute_s=(), memory_bytes=0, tied_s=0.0, price=0.0)
    assert back == replace(plan, prediction=kept)


@pytest.mark.parametrize("file", [GOLDEN, PIPELINE], ids=["data", "pipeline"])
def test_golden_files_fit_the_schema(file: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(file.read_text()), SCHEMA)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"no gzip",
        gzip.compress(b"{}")[:-6],
        gzip.compress(b"[]"),
        gzip.compress(b"{"),
        gzip.compress(b"[" * 100_000),
        gzip.compress(b'{"version":1}'),
        gzip.compress(b" " * (wire.MAX_BYTES + 1)),
    ],
    ids=["empty", "no gzip", "cut off", "a list", "no JSON", "nested", "no digest", "a bomb"],
)
def test_other_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the words of several readers
        wire.decode(blob)


def changed(**changes: Any) -> bytes:
    """The golden plan with other top-level values, its digest right."""
    body = {**json.loads(GOLDEN.read_text()), **changes}
    del body["digest"]
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return gzip.compress(json.dumps({**body, "digest": hashlib.sha256(text).hexdigest()}).encode())


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_plan_that_the_runtime_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the words of several checks
        wire.decode(changed(**BAD_PLANS[name]))


def test_unknown_keys_are_ignored() -> None:
    layout = {"data": 6, "pipeline": 1, "tensor": 1, "expert": 1}
    assert wire.decode(changed(layout=layout, later="more"))[0] == wire.decode(changed())[0]


def test_another_plan_than_expected_is_refused() -> None:
    plan, job = golden_plan()
    digest = wire.document(plan, meta_of(job))["digest"]
    blob = wire.encode(plan, meta_of(job))
    assert wire.decode(blob, digest)[0].workers == plan.workers
    with pytest.raises(ValueError, match="expected another"):
        wire.decode(blob, "another")


def test_same_plan_same_bytes() -> None:
    first, job = golden_plan()
    second, _ = golden_plan()
    assert wire.encode(first, meta_of(job)) == wire.encode(second, meta_of(job))


def test_round_trip_keeps_everything_on_the_wire() -> None:
    plan, job = golden_plan()
    decoded, meta = wire.decode(wire.encode(plan, meta_of(job)))
    assert wire.document(decoded, meta) == wire.document(plan, meta_of(job))
    assert decoded.accelerators() == plan.accelerators()


@settings(max_examples=num_examples(50), deadline=None)
@given(st.data())
def test_every_plan_fits_the_schema(data: st.DataObject) -> None:
    topology = data.draw(worlds.worlds(slots=True))
    job = data.draw(worlds.jobs(topology))
    order = data.draw(st.permutations([machine.name for machine in topology.machines]))
    plan = worlds.plan_of(job, topology, tuple(order[: job.max_workers]), num_buckets=1)
    document = wire.document(plan, meta_of(job))
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    assert sum(document["shares"]) == job.global_batch
    assert wire.decode(wire.encode(plan, meta_of(job)))[0].shares == plan.shares


def test_a_thousand_workers_stay_below_the_limit_of_a_config_map() -> None:
    machines = tuple(Machine(f"node-{n:04d}.region.example.internal", f"region-{n % 17}") for n in range(1000))
    inside = {(m.region, other): Link(0.1, 1e7) for m in machines[:17] for other in {x.region for x in machines[:17]}}
    topology = Topology(machines, region_links=inside)
    job = worlds.workload(topology, global_batch=4000, model=Model.of(GPT))
    plan = worlds.plan_of(job, topology, tuple(m.name for m in machines), num_buckets=1)
    assert len(wire.encode(plan, meta_of(job))) < 900 * 1024


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("another version", {"version": 4}, "wire version 4; this reads 1, 2, 3"),
        ("altered", {"shares": [50]}, "the digest .* is not of this content"),
    ],
)
def test_foreign_bytes_are_refused(name: str, change: dict[str, Any], message: str) -> None:
    body = {**json.loads(GOLDEN.read_text()), **change}
    with pytest.raises(ValueError, match=message):
        wire.decode(gzip.compress(json.dumps(body).encode()))
