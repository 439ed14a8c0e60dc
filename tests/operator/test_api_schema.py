"""The generated schemas are structural, bounded and complete, without asking an API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api.base import Change
from hulk_operator.api.crds import crds, root_schema
from hulk_operator.api.kinds import KINDS, Kind
from hulk_operator.api.pod_schema import KUBERNETES_KEY
from hulk_operator.api.schema import fields

IDS = [kind.name for kind in KINDS]
SCALARS = ("boolean", "integer", "string")


CRDS = dict(zip(IDS, crds(), strict=True))


def openapi(kind: Kind) -> dict[str, Any]:
    (version,) = CRDS[kind.name]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if schema.get(KUBERNETES_KEY):
        return
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{path}[]")


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_every_node_has_a_type_and_none_of_what_structural_schemas_forbid(kind: Kind) -> None:
    for path, node in nodes(openapi(kind)):
        assert node.get("type") in ("object", "array", *SCALARS) or node["x-kubernetes-int-or-string"], path
        assert not {"$ref", "anyOf", "allOf", "oneOf", "title", "const", "definitions"} & node.keys(), path
        assert not ("properties" in node and "additionalProperties" in node), path


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_every_list_map_and_text_of_our_own_is_bounded(kind: Kind) -> None:
    for path, node in nodes(root_schema(kind)):
        if node["type"] == "array":
            assert node["maxItems"] > 0, path
        if node["type"] == "object" and "additionalProperties" in node:
            assert node["maxProperties"] > 0, path
        if node["type"] == "string" and path not in (".apiVersion", ".kind"):
            assert "maxLength" in node or "enum" in node or node.get("format") == "date-time", path


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_every_field_is_described_and_no_number_is_a_float(kind: Kind) -> None:
    for field in fields(openapi(kind)):
        if field.path != ("metadata",):
            assert field.schema.get("description"), field.path
        assert field.schema.get("type") != "number", field.path


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_keys_of_list_maps_are_required_or_defaulted(kind: Kind) -> None:
    lists = [node for _, node in nodes(openapi(kind)) if node.get("x-kubernetes-list-type") == "map"]
    for node in lists:
        for key in node["x-kubernetes-list-map-keys"]:
            entry = node["items"]
            assert key in entry.get("required", ()) or "default" in entry["properties"][key]


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_every_rule_has_a_sentence_and_a_field_that_exists(kind: Kind) -> None:
    for path, node in nodes(openapi(kind)):
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"], path
            reached = node
            for name in rule.get("fieldPath", "").split(".")[1:]:
                reached = reached["properties"][name]


def test_every_field_of_a_jobs_spec_says_when_it_may_change() -> None:
    (job,) = [kind for kind in KINDS if kind.name == names.JOB_KIND]
    found = {field.path: field.changes for field in fields(root_schema(job)["properties"]["spec"])}
    leaves = [path for path in found if not any(other[: len(path)] == path and other != path for other in found)]
    assert [path for path in leaves if found[path] is None] == []
    assert found[("template", "spec", "containers")] is Change.SUSPENDED
    assert found[("training", "steps")] is Change.GROWS


@pytest.mark.parametrize("document", crds(), ids=IDS)
def test_a_client_side_apply_can_keep_the_whole_crd_in_its_annotation(document: dict[str, Any]) -> None:
    assert len(json.dumps(document, separators=(",", ":"))) < 256 * 1024 - 8 * 1024


def test_the_template_has_every_field_of_a_pod_and_is_closed() -> None:
    (job,) = [kind for kind in KINDS if kind.name == names.JOB_KIND]
    template = openapi(job)["properties"]["spec"]["properties"]["template"]
    spec = template["properties"]["spec"]["properties"]
    assert {"hostNetwork", "initContainers", "volumes", "tolerations", "schedulingGates"} <= spec.keys()
    container = spec["containers"]["items"]["properties"]
    assert {"command", "args", "image", "env", "resources", "securityContext"} <= container.keys()
    assert container["resources"]["properties"]["limits"]["additionalProperties"] == {
        "x-kubernetes-int-or-string": True
    }
    assert container["env"]["items"]["properties"]["valueFrom"]["properties"].keys() >= {"secretKeyRef", "fieldRef"}
    assert "x-kubernetes-preserve-unknown-fields" not in str(template)


def test_change_marks_do_not_reach_the_api_server() -> None:
    assert "x-hulk" not in str(crds())


def test_columns_of_a_job_show_phase_attempt_workers_and_both_step_times() -> None:
    (job,) = [kind for kind in KINDS if kind.name == names.JOB_KIND]
    (version,) = CRDS[job.name]["spec"]["versions"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if "priority" not in column]
    assert shown == ["Phase", "Attempt", "Workers", "Step", "Predicted", "Observed", "Age"]
    for column in version["additionalPrinterColumns"]:
        reached = openapi(job)
        for name in column["jsonPath"].split("[")[0].split(".")[1:]:
            if name == "metadata":
                break
            reached = reached["properties"][name]


def test_derived_names_fit_for_every_valid_job() -> None:
    job = "j" * names.MAX_JOB_NAME_LENGTH
    pod = names.pod(job, names.MAX_ATTEMPT, names.MAX_WORKERS - 1)
    assert len(pod) == names.DNS_LABEL_LENGTH
    assert len(names.service(job, names.MAX_ATTEMPT)) <= names.DNS_LABEL_LENGTH
    assert len(names.master_address("n" * 63, job, names.MAX_ATTEMPT)) <= 253
    labels = names.worker_labels(job, names.MAX_ATTEMPT, names.MAX_WORKERS - 1)
    assert max(len(value) for value in labels.values()) <= 63
