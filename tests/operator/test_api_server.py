"""A real API server takes the CRDs, and refuses, defaults and freezes what they say, in sentences."""

import copy
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from api_vectors import (
    BROKEN_NAMES,
    BROKEN_RULES,
    BROKEN_SCHEMAS,
    BROKEN_TOPOLOGIES,
    ENV_A,
    GOOD_SPECS,
    NAMESPACE,
    job,
)
from hulk_lab.builds.golang import program
from hulk_operator import names
from hulk_operator.cluster import HULK_JOBS, HULK_TOPOLOGIES, NODE_PROFILES, ApiCluster, ApiResource, Invalid, connect
from hulk_runtime.names import AGENT_FIELD_MANAGER as AGENT
from served_kinds import serve_kinds

pytestmark = pytest.mark.controlplane

NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)


@pytest_asyncio.fixture
async def cluster(control_plane: Path) -> AsyncIterator[ApiCluster]:
    """The API server with this checkout's CRDs established and an empty namespace."""
    connected = await connect(str(control_plane))
    try:
        await serve_kinds(connected, control_plane)
        space = {"metadata": {"name": NAMESPACE}}
        await connected.apply(NAMESPACES, NAMESPACE, None, space, field_manager="test")
        await connected.delete_all(HULK_JOBS, NAMESPACE, labels="")
        yield connected
        await connected.delete_all(HULK_JOBS, NAMESPACE, labels="")
    finally:
        await connected.close()


async def refusal(cluster: ApiCluster, resource: ApiResource, body: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        await cluster.create(resource, body)
    return caught.value.message


SAYS = BROKEN_RULES | {name: (changes, words) for name, (changes, words, _) in BROKEN_SCHEMAS.items()}


@pytest.mark.parametrize("name", SAYS)
async def test_a_bad_spec_is_refused_with_a_sentence(cluster: ApiCluster, name: str) -> None:
    changes, expected = SAYS[name]
    assert expected in await refusal(cluster, HULK_JOBS, job(changes))


@pytest.mark.parametrize("name", GOOD_SPECS)
async def test_a_good_spec_is_taken(cluster: ApiCluster, name: str) -> None:
    created = await cluster.create(HULK_JOBS, job(GOOD_SPECS[name]))
    assert created["metadata"]["generation"] == 1


@pytest.mark.parametrize(("name", "expected"), BROKEN_NAMES)
async def test_a_name_whose_derived_names_do_not_fit_is_refused(cluster: ApiCluster, name: str, expected: str) -> None:
    assert expected in await refusal(cluster, HULK_JOBS, job(name=name))


async def test_the_longest_name_is_taken(cluster: ApiCluster) -> None:
    created = await cluster.create(HULK_JOBS, job(name="a" * names.MAX_JOB_NAME_LENGTH))
    assert len(created["metadata"]["name"]) == names.MAX_JOB_NAME_LENGTH


async def test_what_is_not_said_is_defaulted_and_the_template_is_kept(cluster: ApiCluster) -> None:
    template = job()["spec"]["template"]
    template["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    spec = (await cluster.create(HULK_JOBS, job({"template": template})))["spec"]
    assert spec["workers"] == {"min": 2, "max": 4, "acceleratorsPerWorker": 1, "resourceName": "nvidia.com/gpu"}
    assert spec["training"] == {"globalBatch": 8, "steps": 10, "precision": "fp32", "optimizer": "adamw"}
    assert spec["checkpoint"] == {
        "storage": {"url": "s3://checkpoints/good"},
        "everySteps": 50,
        "keep": 3,
        "trustStore": False,
    }
    assert spec["runPolicy"] == {"backoffLimit": 3, "startTimeoutSeconds": 300, "scaleUpTimeoutSeconds": 900}
    defaults = {"mode": "auto", "compression": "auto", "onRegionLoss": "restart", "fixedShares": False}
    assert spec["sync"] == {**defaults, "encryption": "wan"}
    assert spec["suspend"] is False
    assert spec["template"]["spec"] == template["spec"]


NEVER = "cannot change; make a new job"
SUSPENDED = "may change only while spec.suspend is true; set it in the same change, or before"
PROGRAM: dict[str, Any] = {"name": "worker", "image": "hulk:0.1.0", "env": ENV_A}
FROZEN: dict[str, tuple[dict[str, Any], str]] = {
    "managedBy": ({"managedBy": "other"}, f"spec.managedBy {NEVER}"),
    "accelerators": ({"workers": {"acceleratorsPerWorker": 2}}, f"spec.workers.acceleratorsPerWorker {NEVER}"),
    "model": ({"model": {"transformer": {"layers": 3}}}, f"spec.model {NEVER}"),
    "batch": ({"training": {"globalBatch": 16}}, f"spec.training.globalBatch {NEVER}"),
    "optimizer": ({"training": {"optimizer": "sgd"}}, f"spec.training.optimizer {NEVER}"),
    "steps": ({"training": {"steps": 9}}, "spec.training.steps may only grow"),
    "storage": ({"checkpoint": {"storage": {"url": "s3://b"}}}, f"spec.checkpoint.storage {NEVER}"),
    "no checkpoint": ({"checkpoint": None}, f"spec.checkpoint.storage {NEVER}"),
    "priority": ({"priorityClassName": "high"}, f"spec.priorityClassName {SUSPENDED}"),
    "sync": ({"sync": {"mode": "ring"}}, f"spec.sync {SUSPENDED}"),
    "encryption": ({"sync": {"encryption": "none"}}, f"spec.sync {SUSPENDED}"),
    "instrumentation": ({"instrumentation": "none"}, f"spec.instrumentation {SUSPENDED}"),
    "placement": ({"placement": {"regions": ["a"]}}, f"spec.placement {SUSPENDED}"),
    "network policy": (
        {"networkPolicy": {"ingress": [{"from": [{"podSelector": {}}]}]}},
        f"spec.networkPolicy {SUSPENDED}",
    ),
    "template, a field no rule knows": (
        {"template": {"spec": {"containers": [{"name": "worker", "image": "other", "env": ENV_A}]}}},
        f"spec.template {SUSPENDED}",
    ),
    "template, a key that was not there": (
        {"template": {"spec": {"hostNetwork": True, "containers": [PROGRAM]}}},
        f"spec.template {SUSPENDED}",
    ),
    "template, a key for another": (
        {"template": {"spec": {"containers": [{"name": "worker", "args": ["hulk:0.1.0"], "env": ENV_A}]}}},
        f"spec.template {SUSPENDED}",
    ),
    "template, finalizers": (
        {"template": {"metadata": {"finalizers": ["a/b"]}}},
        f"spec.template {SUSPENDED}",
    ),
    "template, an environment value": (
        {
            "template": {
                "spec": {
                    "containers": [{"name": "worker", "image": "hulk:0.1.0", "env": [{"name": "A", "value": "2"}]}]
                }
            }
        },
        f"spec.template {SUSPENDED}",
    ),
}


@pytest.mark.parametrize("name", FROZEN)
async def test_a_change_that_is_not_allowed_is_refused(cluster: ApiCluster, name: str) -> None:
    spec, expected = FROZEN[name]
    await cluster.create(HULK_JOBS, job())
    with pytest.raises(Invalid, match=expected.split(";")[0]) as caught:
        await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": copy.deepcopy(spec)})
    assert expected in caught.value.message
    if SUSPENDED in expected:
        await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": {"suspend": True}})
        await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": copy.deepcopy(spec)})


@pytest.mark.parametrize("name", [name for name, (_, expected) in FROZEN.items() if SUSPENDED in expected])
async def test_a_job_is_changed_in_one_update_that_suspends_or_restores_it(cluster: ApiCluster, name: str) -> None:
    await cluster.create(HULK_JOBS, job())
    changed = await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": {**FROZEN[name][0], "suspend": True}})
    original = {"suspend": False, "priorityClassName": None, **job()["spec"], "sync": None, "placement": None}
    original["template"] = {**original["template"], "metadata": {"finalizers": None}}
    original["template"]["spec"]["hostNetwork"] = None
    restored = await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": original})
    assert (changed["metadata"]["generation"], restored["metadata"]["generation"]) == (2, 3)
    assert restored["spec"]["suspend"] is False


# Keys of equal number, each of which one side lacks: what a comparison of the keys that both have does not see.
KEY_FOR_KEY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "of the pod": ({"hostPID": True, "containers": [PROGRAM]}, {"hostNetwork": True, "containers": [PROGRAM]}),
    "of a container": (
        {"containers": [{**PROGRAM, "command": ["python"]}]},
        {"containers": [{**PROGRAM, "args": ["python"]}]},
    ),
    "of an environment": (
        {"containers": [{**PROGRAM, "env": [{"name": "A", "value": "1"}]}]},
        {
            "containers": [
                {**PROGRAM, "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
            ]
        },
    ),
    "deep inside": (
        {"containers": [PROGRAM], "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]},
        {"containers": [PROGRAM], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]},
    ),
}


@pytest.mark.parametrize("name", KEY_FOR_KEY)
async def test_a_template_in_which_a_key_takes_anothers_place_is_a_changed_one(cluster: ApiCluster, name: str) -> None:
    before, after = KEY_FOR_KEY[name]
    created = await cluster.create(HULK_JOBS, job({"template.spec": before}))
    created["spec"]["template"]["spec"] = after
    with pytest.raises(Invalid, match="may change only while"):
        await cluster.apply(HULK_JOBS, "good", NAMESPACE, {"spec": created["spec"]}, field_manager="other")
    same = {**created["spec"], "template": {"spec": before}}
    await cluster.apply(HULK_JOBS, "good", NAMESPACE, {"spec": same}, field_manager="other")
    suspended = {**created["spec"], "suspend": True}
    await cluster.apply(HULK_JOBS, "good", NAMESPACE, {"spec": suspended}, field_manager="other")


def test_kubectl_explains_a_pods_fields(cluster: ApiCluster, control_plane: Path) -> None:
    command = [program("kubectl"), "--kubeconfig", str(control_plane), "explain", "hulkjob.spec.template.spec"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for field in ("hostNetwork\t<boolean>", "containers\t<[]Object> -required-", "tolerations\t<[]Object>"):
        assert field in told


async def test_what_may_change_any_time_changes(cluster: ApiCluster) -> None:
    await cluster.create(HULK_JOBS, job())
    spec = {
        "suspend": True,
        "workers": {"min": 1, "max": 3},
        "training": {"steps": 20, "microBatch": 2},
        "checkpoint": {"everySteps": 5, "keep": 1},
        "runPolicy": {"backoffLimit": 0},
    }
    changed = await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": spec})
    assert changed["metadata"]["generation"] == 2


async def test_a_status_is_written_apart_from_the_spec(cluster: ApiCluster) -> None:
    await cluster.create(HULK_JOBS, job())
    written = {"status": {"phase": "Running", "attempt": 1}, "spec": {"suspend": True}}
    found = await cluster.patch(HULK_JOBS, "good", NAMESPACE, written, subresource="status")
    assert found["spec"]["suspend"] is False
    assert found["status"]["phase"] == "Running"
    assert found["metadata"]["generation"] == 1
    with pytest.raises(Invalid, match="Unsupported value"):
        await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"status": {"phase": "Lost"}}, subresource="status")


@pytest.mark.parametrize("name", BROKEN_TOPOLOGIES)
async def test_a_bad_topology_is_refused(cluster: ApiCluster, name: str) -> None:
    body, expected = BROKEN_TOPOLOGIES[name]
    assert expected in await refusal(cluster, HULK_TOPOLOGIES, body)


async def test_agent_and_operator_write_their_own_links_of_a_profile(cluster: ApiCluster) -> None:
    """Idle and under-load entries of one target are told apart, and each writer keeps only its own."""
    profile = {"apiVersion": names.API_VERSION, "kind": "NodeProfile"}
    link = {"target": "node-b", "time": "2026-01-02T03:04:05Z", "samples": 1}

    async def write(manager: str, under_load: bool, rtt: int) -> list[dict[str, Any]]:
        entry = {**link, "underLoad": under_load, "rttP50Microseconds": rtt}
        body = {**profile, "metadata": {"name": "node-a"}, "status": {"links": [entry]}}
        found = await cluster.apply(NODE_PROFILES, "node-a", None, body, field_manager=manager, subresource="status")
        links: list[dict[str, Any]] = found["status"]["links"]
        return links

    await cluster.apply(NODE_PROFILES, "node-a", None, {"metadata": {"name": "node-a"}}, field_manager="test")
    try:
        await write(AGENT, False, 100)
        await write(names.FIELD_MANAGER, True, 900)
        links = await write(AGENT, False, 110)
        assert {entry["underLoad"]: entry["rttP50Microseconds"] for entry in links} == {False: 110, True: 900}
    finally:
        await cluster.delete(NODE_PROFILES, "node-a")


async def test_a_very_large_job_stays_within_the_cost_of_its_rules(cluster: ApiCluster) -> None:
    """1,000 pins and 16 full containers, 1.2 MB: created, suspended and changed."""
    env = [{"name": f"V{number:04}".ljust(200, "x"), "value": "y" * 20} for number in range(256)]
    changes = {
        "workers": {"min": 1, "max": 1000},
        "placement": {"workerNodes": [f"n{number:04}".ljust(250, "x") for number in range(1000)]},
        "template.spec.containers": [{"name": f"c{number}", "image": "x", "env": env} for number in range(16)],
    }
    await cluster.create(HULK_JOBS, job(changes))
    await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": {"suspend": True}})
    changed = await cluster.patch(HULK_JOBS, "good", NAMESPACE, {"spec": {"training": {"steps": 11}}})
    assert changed["metadata"]["generation"] == 3
