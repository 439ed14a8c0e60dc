"""The command line against a real API server: it reads what is there, plans on it, and writes nothing."""

import asyncio
import base64
import io
import json
import sys
import tarfile
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_lab.builds.golang import KUBERNETES_VERSION
from hulk_operator import names
from hulk_operator.api.crds import crds
from hulk_operator.cli import main
from hulk_operator.cluster import (
    CONFIG_MAPS,
    HULK_JOBS,
    NODE_PROFILES,
    NODES,
    PODS,
    SECRETS,
    ApiCluster,
    ApiResource,
    NotFound,
    connect,
)
from hulk_placement import wire
from hulk_placement.plan import Layout, Plan, Prediction, WorkerSlot

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)
NAMESPACE = "cli"
RESOURCE = "example.com/cli-accelerator"  # no other test's nodes offer it
REGIONS = {"cli-a1": "cli-a", "cli-a2": "cli-a", "cli-b1": "cli-b"}
DEADLINE_S = 30
Hulk = Any


def job(name: str = "demo", **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "hulkjob.yaml").read_text())
    document["metadata"] = {"name": name, "namespace": NAMESPACE}
    document["spec"] |= {"workers": {"min": 2, "max": 3, "resourceName": RESOURCE}, **changes}
    return document


async def prepare(cluster: ApiCluster) -> None:
    """CRDs, a namespace, three ready nodes in two regions, and the links between the first of each region."""
    for crd in crds():
        await cluster.apply(CRDS, crd["metadata"]["name"], None, crd, field_manager="test")
    await cluster.apply(NAMESPACES, NAMESPACE, None, {"metadata": {"name": NAMESPACE}}, field_manager="test")
    async with asyncio.timeout(DEADLINE_S):
        while not await served(cluster):
            await asyncio.sleep(0.1)
    await clean(cluster)
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "20", RESOURCE: "1"}
    conditions = [{"type": "Ready", "status": "True", "reason": "Test", "lastTransitionTime": now()}]
    for name, region in REGIONS.items():
        labels = {names.NODE_REGION: region, f"{RESOURCE}.product": "cpu"}
        await cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        status = {"status": {"allocatable": allocatable, "capacity": allocatable, "conditions": conditions}}
        await cluster.patch(NODES, name, None, status, subresource="status")
        await cluster.patch(NODES, name, None, {"spec": {"taints": []}})
    await measured(cluster, "cli-a1", "cli-b1", 70_000, 50_000_000)
    await measured(cluster, "cli-b1", "cli-a1", 71_000, 40_000_000)


async def served(cluster: ApiCluster) -> bool:
    try:
        await asyncio.gather(cluster.list(HULK_JOBS, NAMESPACE), cluster.list(NODE_PROFILES))
    except NotFound:
        return False
    return True


async def measured(cluster: ApiCluster, source: str, target: str, rtt: int, rate: int) -> None:
    body = {"metadata": {"name": source}}
    await cluster.apply(NODE_PROFILES, source, None, body, field_manager="test")
    link = {"target": target, "underLoad": False, "time": now(), "rttP50Microseconds": rtt, "streams": 4}
    status = {**body, "status": {"links": [link | {"bandwidthBytesPerSecond": rate}]}}
    await cluster.apply(NODE_PROFILES, source, None, status, field_manager="test", subresource="status")


async def clean(cluster: ApiCluster) -> None:
    for resource in (HULK_JOBS, CONFIG_MAPS):
        await cluster.delete_all(resource, NAMESPACE, labels="")
    for name in REGIONS:
        for resource in (NODE_PROFILES, NODES):
            try:
                await cluster.delete(resource, name)
            except NotFound:
                continue


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def kubeconfig(control_plane: Path) -> Iterator[Path]:
    """A prepared API server."""
    within(control_plane, prepare)
    yield control_plane
    within(control_plane, clean)


def within(kubeconfig: Path, work: Any) -> Any:
    async def connected() -> Any:
        cluster = await connect(str(kubeconfig))
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    run: Coroutine[Any, Any, Any] = connected()
    return asyncio.run(run)


@pytest.fixture
def hulk(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hulk:
    """hulk(arguments...) -> (exit code or message, standard output)."""

    def call(*arguments: object) -> tuple[Any, str]:
        monkeypatch.setattr(sys, "argv", ["hulk", *map(str, arguments), "--kubeconfig", str(kubeconfig)])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, capsys.readouterr().out

    return call


def test_the_matrix_is_what_the_agents_measured(hulk: Hulk) -> None:
    code, printed = hulk("topology", "--resource", RESOURCE, "-o", "json")
    assert code == 0
    report = json.loads(printed)
    links = {(link["source"], link["target"]): link for link in report["regionLinks"]}
    assert links["cli-a", "cli-b"]["rttMicroseconds"] == 70_000
    assert links["cli-b", "cli-a"]["bandwidthBytesPerSecond"] == 40_000_000
    assert links["cli-a", "cli-a"]["kind"] == "unknown"
    assert [region["freeAccelerators"] for region in report["regions"]] == [2, 1]
    _, printed = hulk("topology", "--resource", RESOURCE)
    assert "70.0 ms, 50.0 MB/s" in printed


def test_a_plan_for_the_cluster_uses_what_is_free_and_creates_nothing(
    hulk: Hulk, kubeconfig: Path, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job()))
    code, printed = hulk("plan", "-f", path, "-o", "json")
    assert code == 0
    (plan,) = json.loads(printed)["jobs"]
    assert {worker["region"] for worker in plan["workers"]} == {"cli-a", "cli-b"}

    async def left(cluster: ApiCluster) -> int:
        kinds = (HULK_JOBS, CONFIG_MAPS, PODS)
        return sum([len((await cluster.list(kind, NAMESPACE, labels=names.LABEL_JOB)).items) for kind in kinds])

    assert within(kubeconfig, left) == 0


def test_an_accelerator_that_a_pod_holds_is_not_planned_again(hulk: Hulk, kubeconfig: Path, tmp_path: Path) -> None:
    resources = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}
    container = {"name": "c", "image": "other", "resources": resources}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign", "namespace": NAMESPACE},
        "spec": {"nodeName": "cli-b1", "containers": [container], "automountServiceAccountToken": False},
    }

    async def occupy(cluster: ApiCluster) -> None:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        accounts = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
        await cluster.apply(accounts, "default", NAMESPACE, account, field_manager="test")
        await cluster.create(PODS, pod)

    async def release(cluster: ApiCluster) -> None:
        await cluster.delete(PODS, "foreign", NAMESPACE, grace_seconds=0)

    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job()))
    within(kubeconfig, occupy)
    try:
        code, printed = hulk("plan", "-f", path, "--details")
    finally:
        within(kubeconfig, release)
    assert code == 1
    assert "no plan" in printed


STATUS: dict[str, Any] = {
    "phase": "Running",
    "attempt": 1,
    "plan": {
        "name": names.plan_config_map("demo", 1),
        "digest": "d",
        "attempt": 1,
        "algorithm": "ring",
        "numWorkers": 2,
        "numAccelerators": 2,
        "layout": {"data": 2},
        "optimalityGap": "0.0100",
    },
    "prediction": {
        "attempt": 1,
        "stepMicroseconds": 2_000_000,
        "computeMicroseconds": 1_500_000,
        "communicationMicroseconds": 500_000,
        "calibrated": True,
        "source": "preflight",
        "writtenAt": "2026-01-02T03:04:05Z",
    },
    "observed": {"step": 7, "stepMicroseconds": 2_100_000, "loss": "3.25", "updatedAt": "2026-01-02T03:04:05Z"},
    "conditions": [
        {"type": "Planned", "status": "True", "reason": "Planned", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    ],
}


async def started(cluster: ApiCluster) -> None:
    """A job whose plan, on two of the three nodes, is in force; none of its pods is there yet."""
    prediction = Prediction(2.0, 1.5, 0.5, ("cli-a1", "cli-b1"), (), 0, True)
    slots = (WorkerSlot("cli-a1", "cli-a", 1), WorkerSlot("cli-b1", "cli-b", 1))
    plan = Plan(f"{NAMESPACE}/demo", 1, slots, (6, 6), 6, 1, prediction, Layout(2))
    blob = wire.encode(plan, wire.Meta("0.1.0", 12, "fp32", "adamw", 30, None))
    await cluster.create(HULK_JOBS, job())
    await cluster.patch(HULK_JOBS, "demo", NAMESPACE, {"status": STATUS}, subresource="status")
    stored = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.plan_config_map("demo", 1),
            "namespace": NAMESPACE,
            "labels": names.attempt_labels("demo", 1),
        },
        "binaryData": {names.PLAN_KEY: base64.b64encode(blob).decode()},
        "data": {names.PLAN_WHY_KEY: "because it is short"},
    }
    await cluster.create(CONFIG_MAPS, stored)


def test_a_job_is_explained_worker_by_worker(hulk: Hulk, kubeconfig: Path) -> None:
    within(kubeconfig, started)
    code, printed = hulk("explain", "demo", "-n", NAMESPACE, "--details")
    assert code == 0
    for words in ("because it is short", "cli-a1", "70.0 ms, 50.0 MB/s", "at most 1.0 %", "7/30", "3.25", "2.10 s"):
        assert words in printed
    _, printed = hulk("status", "-n", NAMESPACE, "-o", "json")
    assert json.loads(printed)["jobs"][0]["status"]["observed"]["step"] == 7
    code, _ = hulk("logs", "demo", "-n", NAMESPACE)
    assert "the pod of worker 0 is gone (phase Running)" in code


def test_what_a_plan_in_force_holds_is_not_planned_again(hulk: Hulk, kubeconfig: Path, tmp_path: Path) -> None:
    within(kubeconfig, started)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job("second", workers={"min": 1, "max": 3, "resourceName": RESOURCE})))
    _, printed = hulk("plan", "-f", path, "-o", "json")
    assert [worker["node"] for worker in json.loads(printed)["jobs"][0]["workers"]] == ["cli-a2"]


def test_a_job_that_runs_is_planned_as_if_it_held_nothing(hulk: Hulk, kubeconfig: Path, tmp_path: Path) -> None:
    within(kubeconfig, started)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job("demo", workers={"min": 2, "max": 2, "resourceName": RESOURCE})))
    code, printed = hulk("plan", "-f", path, "-o", "json")
    assert code == 0
    assert {worker["region"] for worker in json.loads(printed)["jobs"][0]["workers"]} == {"cli-a", "cli-b"}


def test_a_job_that_is_not_there_is_one_sentence(hulk: Hulk) -> None:
    code, _ = hulk("status", "nope", "-n", NAMESPACE)
    other = "(-n takes another; `hulk status -A` lists all jobs)"
    assert code == f'hulk: hulkjobs.hulk.dev "nope" not found in namespace {NAMESPACE} {other}'


def test_a_support_bundle_tells_of_the_cluster_and_of_no_secret(hulk: Hulk, kubeconfig: Path, tmp_path: Path) -> None:
    value = "hunter2-the-value"
    container = {"name": "worker", "image": "i", "env": [{"name": "PASSWORD", "value": value}]}

    async def prepare(cluster: ApiCluster) -> None:
        await started(cluster)
        with_value = job("private", template={"spec": {"containers": [container]}})
        await cluster.create(HULK_JOBS, with_value)
        login = {"metadata": {"name": "login", "namespace": NAMESPACE}, "stringData": {"password": value}}
        await cluster.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **login})

    async def remove(cluster: ApiCluster) -> None:
        await cluster.delete(SECRETS, "login", NAMESPACE)

    within(kubeconfig, prepare)
    path = tmp_path / "bundle.tar.gz"
    try:
        code, printed = hulk("support-bundle", "demo", "-n", NAMESPACE, "--file", path)
    finally:
        within(kubeconfig, remove)
    assert (code, printed.splitlines()[0].partition(":")[0]) == (0, str(path))
    with tarfile.open(path) as tar:
        texts = {one.name.partition("/")[2]: (tar.extractfile(one) or io.BytesIO()).read().decode() for one in tar}
    assert value not in json.dumps(texts)
    read = {name: json.loads(text) for name, text in texts.items() if name.endswith(".json")}
    assert read["versions/kubernetes.json"]["gitVersion"] == KUBERNETES_VERSION
    stored = {one["metadata"]["name"]: one["storedVersions"] for one in read["versions/definitions.json"]}
    assert stored["hulkjobs.hulk.dev"] == [names.VERSION]
    assert {"demo", "private"} <= {one["metadata"]["name"] for one in read["objects/hulkjobs.json"]}
    assert set(REGIONS) <= {one["metadata"]["name"] for one in read["objects/nodes.json"]}
    assert set(REGIONS) & {one["metadata"]["name"] for one in read["objects/nodeprofiles.json"]}
    (plan,) = (one for one in read["objects/plan-configmaps.json"] if one["metadata"]["namespace"] == NAMESPACE)
    assert plan["bytes"][names.PLAN_WHY_KEY] == len("because it is short")
    missing = {one["what"]: one["reason"] for one in read["index.json"]["missing"]}
    assert missing[f"logs of job {NAMESPACE}/demo"] == "it has no pods"
    assert f"logs of job {NAMESPACE}/demo: it has no pods" in printed
    code, _ = hulk("support-bundle", "--file", path)
    assert code == f"hulk: {path} exists"
