"""Parsing objects into models and writing them back: defaults, kept fields, times, size of the largest status."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator import names
from hulk_operator.api import HulkJob, HulkJobStatus, HulkTopology, NodeProfile, Observed
from hulk_operator.api.kinds import KINDS
from hulk_operator.api.schema import structural
from hulk_operator.api.strict import parse
from pydantic import ValidationError

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
MODELS = {kind.name: kind.model for kind in KINDS}


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "HulkJob",
        "metadata": {"name": "demo", "namespace": "research"},
        "spec": {
            "workers": {"max": 4},
            "model": {"transformer": {"layers": 2, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": 256}},
            "training": {"globalBatch": 8, "steps": 10},
            "template": {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0"}]}},
            **spec,
        },
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_to_the_last_key(path: Path) -> None:
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document["kind"] in MODELS]
    assert documents
    for document in documents:
        assert isinstance(parse(document), MODELS[document["kind"]])


def test_what_a_job_does_not_say_gets_its_default() -> None:
    spec = HulkJob.model_validate(job()).spec
    assert (spec.workers.min, spec.workers.accelerators_per_worker, spec.workers.resource_name) == (
        1,
        1,
        "nvidia.com/gpu",
    )
    assert (spec.training.precision, spec.training.optimizer) == ("fp32", "adamw")
    assert (spec.run_policy.backoff_limit, spec.run_policy.start_timeout_seconds) == (3, 300)
    assert (spec.sync.mode, spec.placement.objective, spec.suspend, spec.checkpoint) == ("auto", "time", False, None)


@pytest.mark.parametrize(
    ("managed_by", "ours"), [(None, True), ("hulk.dev/operator", True), ("kueue.x-k8s.io/multikueue", False)]
)
def test_a_foreign_manager_makes_the_job_not_ours(managed_by: str | None, ours: bool) -> None:
    document = job() if managed_by is None else job(managedBy=managed_by)
    assert HulkJob.model_validate(document).spec.ours is ours


def test_a_template_is_kept_as_written() -> None:
    spec = {
        "containers": [{"name": "w", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    template = {"metadata": {"labels": {"team": "a"}}, "spec": spec}
    assert HulkJob.model_validate(job(template=template)).spec.template.pod_spec() == spec


def test_a_field_of_a_newer_version_is_ignored_in_the_cluster_and_refused_in_files() -> None:
    document = job(fromTheFuture=1)
    assert HulkJob.model_validate(document).spec.workers.max == 4
    with pytest.raises(ValueError, match="fromTheFuture: unknown field"):
        parse(document)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (job(workerz={"max": 3}), "spec.workerz: unknown field; did you mean workers?"),
        (job(workers={"max": 0}), "spec.workers.max: Input should be greater than or equal to 1"),
        (
            job(checkpoint={"storage": {"urls": "s3://a"}}),
            "spec.checkpoint.storage.urls: unknown field; did you mean url",
        ),
        ({**job(), "apiVersion": "hulk.dev/v1"}, "apiVersion 'hulk.dev/v1': expected hulk.dev/v1alpha1"),
        ({"kind": "Job"}, "kind 'Job': expected one of HulkJob, HulkSweep, NodeProfile, HulkTopology"),
        ([], "kind 'list'"),
    ],
    ids=["misspelt", "out of range", "nested", "version", "kind", "list"],
)
def test_a_mistake_in_a_file_is_named_with_its_field(document: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse(document)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("s3://bucket", True),
        ("s3://bucket/a/b", True),
        ("gs://bucket/a", True),
        ("file:///tmp/a", False),
        ("local:///tmp/a", False),
        ("memory://a", False),
        ("simplecache::file:///tmp/a", False),
        ("s3://", False),
        ("s3:///a", False),
        ("/tmp/a", False),
    ],
)
def test_checkpoints_go_where_every_node_can_read_them(url: str, good: bool) -> None:
    document = job(checkpoint={"storage": {"url": url}})
    if good:
        parse(document)
    else:
        with pytest.raises(ValueError, match=r"spec\.checkpoint\.storage\.url: "):
            parse(document)


def test_times_are_utc_and_need_a_zone() -> None:
    observed = Observed(step=3, updated_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), loss="2.5")
    assert observed.wire() == {"step": 3, "loss": "2.5", "updatedAt": "2026-01-02T03:04:05Z"}
    with pytest.raises(ValidationError, match="no time zone"):
        Observed(step=3, updated_at=datetime(2026, 1, 2, 3, 4, 5))


@pytest.mark.parametrize("model", [HulkJob, NodeProfile, HulkTopology])
def test_models_are_frozen(model: Any) -> None:
    found = model.model_validate(job() if model is HulkJob else {"metadata": {"name": "cluster"}})
    with pytest.raises(ValidationError, match="frozen"):
        found.kind = "Other"


def test_links_keep_the_names_that_agents_write() -> None:
    link = {
        "target": "b",
        "underLoad": True,
        "rttP50Microseconds": 5,
        "rttP95Microseconds": 9,
        "time": "2026-01-02T03:04:05Z",
        "samples": 3,
    }
    profile = NodeProfile.model_validate({"metadata": {"name": "a"}, "status": {"links": [link]}})
    assert profile.status.links[0].wire() == link


def test_the_largest_status_that_the_schema_admits_is_below_64_kib() -> None:
    """1,000 workers in 49 regions are less than this: every list is full and every text at its longest."""
    status = largest(structural(HulkJobStatus))
    parsed = HulkJobStatus.model_validate(status)
    assert parsed.plan is not None
    assert len(parsed.plan.regions) >= 49
    assert len(json.dumps(parsed.wire(), separators=(",", ":")).encode()) < 64 * 1024


def largest(schema: dict[str, Any], number: int = 0) -> Any:
    """A value with every field set, every list full and every text at its longest; `number` tells entries apart."""
    if "enum" in schema:
        return max(schema["enum"], key=len)
    match schema["type"]:
        case "object":
            return {name: largest(child, number) for name, child in schema["properties"].items()}
        case "array":
            return [largest(schema["items"], entry) for entry in range(schema["maxItems"])]
        case "integer":
            return schema["maximum"]
        case "boolean":
            return False
    if schema.get("format") == "date-time":
        return "2026-01-02T03:04:05.123456Z"
    pattern = schema.get("pattern", "")
    start = "A" if pattern.startswith("^[A-Z]") else "1" if pattern.startswith(("^[0-9]+", "^(-?")) else "a"
    return (start + str(number)).ljust(schema["maxLength"], "1")
