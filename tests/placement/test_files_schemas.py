"""The committed JSON schemas, on the examples and on whatever is written; the examples themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from file_worlds import plans, topologies, workloads
from hulk_placement.cost.predict import predict
from hulk_placement.files import text
from hulk_placement.files.__main__ import DOCUMENTS, generated
from hulk_placement.files.plan_reading import read_plan
from hulk_placement.files.plan_writing import plan_document
from hulk_placement.files.topology_reading import read_topology
from hulk_placement.files.topology_writing import topology_document
from hulk_placement.files.workload_reading import read_workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from workload_writing import workload_document

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "planner"
SCHEMAS = ROOT / "placement" / "hulk_placement" / "files"
VALIDATORS: Mapping[str, Draft202012Validator] = {
    name: Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text())) for name in DOCUMENTS
}
FILES = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.name != "schedule.yaml"]


def test_what_is_generated_is_committed() -> None:
    assert {path: (ROOT / path).read_text() for path in generated()} == generated()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_valid_by_its_schema(path: Path) -> None:
    document = text.read_values(path)
    assert list(VALIDATORS[document["kind"].lower()].iter_errors(document)) == []


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_written_is_valid_by_its_schema(data: st.DataObject) -> None:
    topology = data.draw(topologies())
    plan, _, _ = data.draw(plans())
    for name, document in (
        ("topology", topology_document(topology)),
        ("workload", workload_document(data.draw(workloads(topology)))),
        ("plan", plan_document(plan)),
    ):
        VALIDATORS[name].validate(json.loads(json.dumps(document)))


BASES: dict[str, dict[str, Any]] = {
    "topology": {"machines": [{"name": "a", "region": "eu"}]},
    "workload": {"name": "job", "model": {"preset": "gpt2"}, "training": {"globalBatch": 64}},
    "plan": {"layout": {"data": 2}, "machines": ["a", "b"]},
    "placement": {"devices": 1, "blocks": [{"name": "F0", "devices": [0], "span": 1}]},
    "links": {"links": [{"source": 0, "target": 1}]},
}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("topology", {"machines": []}),
        ("topology", {"machines": [{"name": "a", "region": "eu", "memoryBytes": 0}]}),
        ("topology", {"machines": [{"name": "a ", "region": "eu"}]}),
        ("topology", {"machines": [{"name": "a", "region": "eu", "memoryBytes": 1, "memoryGigabytes": 1}]}),
        ("topology", {"machines": [{"name": "a", "region": "eu", "memory": 1}]}),
        ("topology", {"links": [{"source": "a", "target": "b", "ageSeconds": None}]}),
        ("topology", {"latencyMatrix": {"names": ["a"], "unit": "ms", "rows": [[0]]}}),
        ("workload", {"model": {}}),
        ("workload", {"model": {"preset": "gpt2", "configFile": "a"}}),
        ("workload", {"model": {"preset": "gpt5"}}),
        ("workload", {"training": {"globalBatch": "64"}}),
        ("workload", {"constraints": {"pins": [{"layers": "a", "regions": ["eu"]}]}}),
        ("plan", {"sync": "mpi"}),
        ("plan", {"replicas": [["a"], ["b"]]}),
        ("plan", {"shares": [1, 1], "microBatches": [1, 1]}),
        ("plan", {"kind": "Topology"}),
        ("placement", {"devices": 0}),
        ("placement", {"blocks": []}),
        ("placement", {"blocks": [{"name": "F0", "devices": [0]}]}),
        ("placement", {"blocks": [{"name": "F0", "devices": [0], "span": -1}]}),
        ("placement", {"blocks": [{"name": "F0", "devices": [0], "span": 1, "spanSeconds": 1}]}),
        ("placement", {"blocks": [{"name": "F0", "devices": [0], "span": 1, "kind": "sideways"}]}),
        ("links", {"links": [{"source": 0, "target": 1, "latencySeconds": -1}]}),
        ("links", {"links": [{"source": 0}]}),
    ],
)
def test_schemas_refuse_what_the_models_refuse(name: str, change: dict[str, Any]) -> None:
    good = {"apiVersion": "hulk.dev/files/v1", "kind": name.capitalize(), **BASES[name]}
    assert VALIDATORS[name].is_valid(good)
    text.parse(DOCUMENTS[name], good, name)
    assert not VALIDATORS[name].is_valid({**good, **change})
    with pytest.raises(ValueError, match=name):
        text.parse(DOCUMENTS[name], {**good, **change}, name)


@pytest.mark.parametrize(
    ("topology", "workload", "plan", "regions"),
    [
        ("topology", "workload", "plan", {"frankfurt", "virginia"}),
        ("measured-topology", "measured-workload", "measured-plan", {"site-a", "site-b"}),
    ],
)
def test_an_example_is_predicted(topology: str, workload: str, plan: str, regions: set[str]) -> None:
    cluster = read_topology(EXAMPLES / f"{topology}.yaml").topology
    job = read_workload(EXAMPLES / f"{workload}.yaml", cluster).workload
    read = read_plan(EXAMPLES / f"{plan}.yaml", job, cluster)
    assert read.warnings == ()
    assert {worker.region for worker in read.plan.workers} == regions
    found = predict(read.plan, job, cluster)
    assert found.step_s == pytest.approx(found.compute_s + found.bubble_s + found.communication_s)
    assert min(found.compute_s, found.communication_s) > 0


def test_the_seconds_of_a_measured_example_are_those_that_were_measured() -> None:
    cluster = read_topology(EXAMPLES / "measured-topology.yaml").topology
    job = read_workload(EXAMPLES / "measured-workload.yaml", cluster).workload
    plan = read_plan(EXAMPLES / "measured-plan.yaml", job, cluster).plan
    first_stage = 0.0012 + 4 * 0.0131 + 0.0029 + 4 * 0.0268
    assert predict(plan, job, cluster).rank_compute_s[0] == pytest.approx(4 * first_stage)


def test_a_schedule_in_a_file_is_kept() -> None:
    cluster = read_topology(EXAMPLES / "measured-topology.yaml").topology
    job = read_workload(EXAMPLES / "measured-workload.yaml", cluster).workload
    plan = read_plan(EXAMPLES / "measured-schedule-plan.yaml", job, cluster).plan
    assert plan.blocks[0][2:4] == (("F", 2), ("B", 0))
    assert plan.rings == ((0, 2, 1), (0, 2, 1))
