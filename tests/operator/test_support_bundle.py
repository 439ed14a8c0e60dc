"""A support bundle: what is in it, what is not and why, its bounds, and that it holds no credential."""

import json
import os
import stat
import tarfile
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.cluster import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    HULK_JOBS,
    NODES,
    PODS,
    SECRETS,
    ApiResource,
    ClusterError,
    Forbidden,
    Listing,
    NotFound,
    Object,
    Unavailable,
)
from hulk_operator.support import archive, collect, reading
from hulk_operator.support.archive import Bundle
from hulk_operator.support.collect import Wanted
from hulk_operator.support.redaction import redact_text
from views import job

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SYSTEM = "hulk-system"
SECRET = "hunter2-the-value"
WANTED = Wanted(SYSTEM, "lab")


class Server(FakeCluster):
    """Serves texts by path; some kinds may not be listed, in all namespaces or at all."""

    def __init__(self, *objects: tuple[ApiResource, Object]) -> None:
        super().__init__(*objects)
        self.texts: dict[str, str | ClusterError] = {"/version": '{"gitVersion": "v1.36.3"}'}
        self.forbidden: set[tuple[str, str | None]] = set()
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.read: set[str] = set()

    async def pages(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Listing]:
        self.read.add(resource.plural)
        if (resource.plural, namespace) in self.forbidden:
            raise Forbidden(403, "Forbidden", f"cannot list {resource.plural}")
        async for page in super().pages(resource, namespace, labels=labels, fields=fields):
            yield page

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        self.read.add(resource.plural)
        return await super().get(resource, name, namespace)

    async def tail(self, path: str, query: Mapping[str, str], max_bytes: int) -> str:
        self.asked.append((path, query))
        found = self.texts.get(path, NotFound(404, "NotFound", f"{path} not found"))
        if isinstance(found, ClusterError):
            raise found
        return found[-max_bytes:]


def pod(name: str, namespace: str, labels: dict[str, str], *, restarts: int = 0, **spec: Any) -> Object:
    container = {"name": "main", "image": "i", "env": [{"name": "PASSWORD", "value": SECRET}]}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container], **spec},
        "status": {"containerStatuses": [{"name": "main", "ready": True, "restartCount": restarts}]},
    }


def own(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "hulk", "app.kubernetes.io/component": component}


@pytest.fixture
def server() -> Server:
    return Server(
        (HULK_JOBS, job().wire()),
        (PODS, pod("operator-a", SYSTEM, own("operator"), restarts=1)),
        (PODS, pod("agent-a", SYSTEM, own("agent"))),
        (PODS, pod("other", SYSTEM, {})),
        (PODS, pod("demo-2-0", "lab", names.worker_labels("demo", 2, 0))),
        (PODS, pod("demo-1-0", "lab", names.worker_labels("demo", 1, 0))),
    )


async def bundle_of(server: Server, path: Path, wanted: Wanted = WANTED) -> dict[str, Any]:
    """The files of a bundle by name, the index parsed."""
    with Bundle(path, NOW) as bundle:
        await collect.collect(server, bundle, wanted)
    return files_of(path)


def files_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            folder, _, name = member.name.partition("/")
            assert folder == path.name.removesuffix(".tar.gz")
            content = tar.extractfile(member)
            assert content is not None
            text = content.read().decode()
            found[name] = json.loads(text) if name.endswith(".json") else text
    return found


def lacking(files: dict[str, Any]) -> dict[str, str]:
    return {one["what"]: one["reason"] for one in files["index.json"]["missing"]}


async def test_what_is_read_is_in_it_and_what_is_not_is_named(server: Server, tmp_path: Path) -> None:
    log = PODS.path(SYSTEM, "operator-a", "log")
    server.texts |= {log: "holds the lease\n", PODS.path(SYSTEM, "agent-a:9402", "proxy/metrics"): "up 1\n"}
    server.texts[PODS.path(SYSTEM, "agent-a", "log")] = Unavailable(0, "NoConnection", "no route to host")
    files = await bundle_of(server, tmp_path / "b.tar.gz")
    assert files["versions/kubernetes.json"] == {"gitVersion": "v1.36.3"}
    assert files["versions/hulk.json"]["api"] == names.API_VERSION
    assert [one["metadata"]["name"] for one in files["objects/hulkjobs.json"]] == ["demo"]
    assert [one["metadata"]["name"] for one in files["objects/hulk-pods.json"]] == ["operator-a", "agent-a"]
    assert {one["metadata"]["name"] for one in files["objects/job-pods.json"]} == {"demo-1-0", "demo-2-0"}
    assert files[f"logs/{SYSTEM}/operator-a/main.log"] == "holds the lease\n"
    assert files[f"logs/{SYSTEM}/operator-a/main.previous.log"]  # it was started again
    assert files[f"metrics/{SYSTEM}/agent-a.txt"] == "up 1\n"
    missing = lacking(files)
    assert missing[f"logs/{SYSTEM}/agent-a/main.log"] == "no route to host"
    assert missing["the Lease"] == f"leases {names.LEASE} not found"
    assert missing["definition of hulkjobs"]
    listed = {one["name"]: one["bytes"] for one in files["index.json"]["files"]}
    assert set(listed) == set(files) - {"index.json"}
    assert listed[f"metrics/{SYSTEM}/agent-a.txt"] == 5
    assert [dict(query) for path, query in server.asked if path == log] == [
        {"container": "main", "tailLines": "2000", "limitBytes": str(16 << 20), "timestamps": "true"} | more
        for more in ({}, {"previous": "true"})
    ]


async def test_workers_logs_are_those_of_the_jobs_that_are_named(server: Server, tmp_path: Path) -> None:
    server.texts[PODS.path("lab", "demo-2-0", "log")] = "step=1\n"
    server.texts[PODS.path("lab", "demo-2-0:9400", "proxy/metrics")] = "steps 1\n"
    files = await bundle_of(server, tmp_path / "a.tar.gz")
    assert not [name for name in files if name.startswith(("logs/lab", "metrics/lab"))]
    files = await bundle_of(server, tmp_path / "b.tar.gz", Wanted(SYSTEM, "lab", ("demo", "gone"), 7))
    assert files["logs/lab/demo-2-0/main.log"] == "step=1\n"  # of the newest attempt
    assert files["metrics/lab/demo-2-0.txt"] == "steps 1\n"
    assert not [name for name in files if "demo-1-0" in name]
    assert {query["tailLines"] for path, query in server.asked[-8:] if path.endswith("/log")} == {"7"}
    assert lacking(files)["logs of job lab/gone"] == "it has no pods"


async def test_no_credential_is_in_it_and_no_secret_is_read(server: Server, tmp_path: Path) -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"value":"{SECRET}"}}'}
    container = {
        "name": "worker",
        "image": "i",
        "args": ["--token", SECRET, f"--password={SECRET}", f"s3://me:{SECRET}@host/x", "--steps=10"],
        "env": [
            {"name": "WANDB_API_KEY", "value": SECRET},
            {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}},
            {"name": "RANK", "value": "3"},
        ],
        "envFrom": [{"secretRef": {"name": "login"}}],
    }
    one = job(template={"spec": {"containers": [container]}}).wire()
    one["metadata"] |= {"annotations": applied, "managedFields": [{"manager": SECRET}]}
    server._store(HULK_JOBS, one)
    server._store(
        DEPLOYMENTS,
        {"metadata": {"name": "hulk-operator", "namespace": SYSTEM, "labels": own("operator")}}
        | {"spec": {"env": [{"name": "HULK_QUEUE_POLICY", "value": "drf"}, {"name": "HTTPS_PROXY", "value": SECRET}]}},
    )
    server._store(SECRETS, {"metadata": {"name": "login", "namespace": "lab"}, "data": {"password": SECRET}})
    plan = {"metadata": {"name": "demo-plan-1", "namespace": "lab", "labels": names.attempt_labels("demo", 1)}}
    server._store(CONFIG_MAPS, {**plan, "data": {"why": SECRET}, "binaryData": {"plan.json.gz": "abcd"}})
    server._store(
        EVENTS,
        {"metadata": {"name": "e", "namespace": "lab"}, "message": f"token={SECRET}"}
        | {"involvedObject": {"kind": "HulkJob", "name": "demo", "namespace": "lab"}},
    )
    server.texts[PODS.path("lab", "demo-2-0", "log")] = f"Authorization: Bearer {SECRET}\nstep=1\n"
    files = await bundle_of(server, tmp_path / "b.tar.gz", Wanted(SYSTEM, "lab", ("demo",)))
    assert SECRET not in json.dumps(files)
    assert SECRETS.plural not in server.read
    assert files["logs/lab/demo-2-0/main.log"].endswith("[redacted]\nstep=1\n")
    (found,) = files["objects/hulkjobs.json"]
    worker = found["spec"]["template"]["spec"]["containers"][0]
    assert worker["args"] == ["--token", "[redacted]", "--password=[redacted]", "s3://[redacted]@host/x", "--steps=10"]
    assert worker["env"] == [
        {"name": "WANDB_API_KEY", "value": "[redacted]"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}},
        {"name": "RANK", "value": "3"},
    ]
    (deployment,) = files["objects/hulk-deployments.json"]
    assert [entry["value"] for entry in deployment["spec"]["env"]] == ["drf", "[redacted]"]
    (sizes,) = files["objects/plan-configmaps.json"]
    assert sizes["bytes"] == {"why": len(SECRET), "plan.json.gz": 4}
    (event,) = files["objects/events.json"]
    assert event["message"] == "token=[redacted]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tokens=1024 tokens/s: 12.5", None),
        ("num_tokens = 2e+06, step=3", None),
        ("a HulkJob's secretName: registry-login", None),
        ("https://example.org:8080/path", None),
        ("digest sha256:0123456789abcdef", None),
        ('{"api_key": "abcdef"}', '{"api_key": "[redacted]"}'),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("key AKIAABCDEFGHIJKLMNOP used", "key [redacted] used"),
        ("login hf_abcdefghijklmnopqrstuv ok", "login [redacted] ok"),
        ("t eyJhbGciOiJSUzI1.eyJpc3MiOiJr.c2ln x", "t [redacted] x"),
        ("https://b/o?X-Amz-Signature=ab12&x=1", "https://b/o?X-Amz-Signature=[redacted]&x=1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nnext", "[redacted]\nnext"),
    ],
)
def test_what_looks_like_a_credential_goes(text: str, expected: str | None) -> None:
    assert redact_text(text) == (text if expected is None else expected)


async def test_who_may_see_one_namespace_only_gets_that(server: Server, tmp_path: Path) -> None:
    server.forbidden = {(plural, None) for plural in ("hulkjobs", "pods", "nodes", "events")}
    server.forbidden.add(("pods", SYSTEM))
    files = await bundle_of(server, tmp_path / "b.tar.gz")
    assert [one["metadata"]["name"] for one in files["objects/hulkjobs.json"]] == ["demo"]
    missing = lacking(files)
    assert missing["hulkjobs of other namespaces than lab"] == "cannot list hulkjobs"
    assert missing["nodes"] == "cannot list nodes"
    assert missing["the operators' pods"] == "cannot list pods"
    assert missing["events of HulkJob"] == "cannot list events"


async def test_a_node_tells_of_its_resources_not_of_its_addresses(server: Server, tmp_path: Path) -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}]
    status = {"capacity": {"cpu": "4"}, "images": [{"names": ["big"]}], "addresses": [{"address": "10.0.0.7"}]}
    status["conditions"] = conditions
    server._store(NODES, {"metadata": {"name": "n", "annotations": {"a": "b"}}, "spec": {}, "status": status})
    (node,) = (await bundle_of(server, tmp_path / "b.tar.gz"))["objects/nodes.json"]
    assert node["status"] == {"capacity": {"cpu": "4"}, "conditions": conditions[:1]}
    assert "annotations" not in node["metadata"]


async def test_a_bundle_is_bounded(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_AGENTS", 2)
    monkeypatch.setattr(reading, "MAX_OBJECT_BYTES", 4_000)
    for number in range(30):
        server._store(NODES, {"metadata": {"name": f"node-{number}", "labels": {"a": "b" * 200}}})
    for number in range(4):
        server._store(PODS, pod(f"agent-{number}", SYSTEM, own("agent"), restarts=number == 3))
    files = await bundle_of(server, tmp_path / "b.tar.gz")
    assert 0 < len(files["objects/nodes.json"]) < 30
    (cut,) = [what for what in lacking(files) if what.startswith("nodes after the first")]
    assert cut == f"nodes after the first {len(files['objects/nodes.json'])}"
    asked = {path.split("/")[6].partition(":")[0] for path, _ in server.asked if "/agent-" in path}
    assert len(asked) == 2
    assert "agent-3" in asked  # it was started again, so it comes first
    assert lacking(files)["logs of 3 other agents"] == "at most 2 are read"


def test_a_file_that_is_too_long_is_cut_and_one_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 10)
    with Bundle(tmp_path / "b.tar.gz", NOW, max_bytes=15) as bundle:
        bundle.add("long", "0123456789abcdef")
        bundle.add("more", "0123456789")
        bundle.add("short", "0123")
    files = files_of(tmp_path / "b.tar.gz")
    assert (files["long"], files["short"]) == ("6789abcdef", "0123")
    assert files["index.json"]["files"][0]["truncated"] == "the last 10 of 16 bytes"
    assert lacking(files) == {"more": "the bundle is full: 15 bytes"}
    assert stat.S_IMODE((tmp_path / "b.tar.gz").stat().st_mode) == 0o600


async def test_nothing_is_left_of_a_bundle_that_failed(server: Server, tmp_path: Path) -> None:
    server.texts["/version"] = Unavailable(0, "NoConnection", "no route to host")
    with pytest.raises(Unavailable):
        await bundle_of(server, tmp_path / "b.tar.gz")
    assert os.listdir(tmp_path) == []
