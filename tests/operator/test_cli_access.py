"""Which cluster and namespace the command line means, and what it says where the user may not see everything."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.cli import main
from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cluster import HULK_JOBS, NODES, ApiResource, Forbidden, Listing, Object

ROOT = Path(__file__).parents[2]
JOB, TOPOLOGY = ROOT / "examples" / "hulkjob.yaml", ROOT / "examples" / "topology.yaml"
Hulk = Callable[..., tuple[Any, str, str]]

KUBECONFIG = {
    "current-context": "one",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "research"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ],
    "users": [{"name": "u", "user": {}}],
}


@pytest.fixture
def hulk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Hulk:
    """hulk(arguments...) -> (exit code or message, standard output, standard error)."""
    (tmp_path / "config").write_text(yaml.safe_dump(KUBECONFIG))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    def call(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["hulk", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, *capsys.readouterr()

    return call


class Restricted(FakeCluster):
    """A cluster whose user may not list some kinds."""

    forbidden: tuple[str, ...] = ()

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Listing:
        if resource.plural in self.forbidden:
            raise Forbidden(403, "Forbidden", f"{resource.plural} is forbidden")
        return await super().list(resource, namespace, labels=labels, fields=fields)

    async def close(self) -> None:
        """Nothing is open."""


def node(name: str, region: str) -> Object:
    allocatable = {names.DEFAULT_RESOURCE: "1", "cpu": "4", "memory": "8Gi", "pods": "20"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": {names.NODE_REGION: region}}, "spec": {}, "status": status}


def stored_job(**status: Any) -> Object:
    job: Object = yaml.safe_load(JOB.read_text())
    job["metadata"]["namespace"] = "research"
    job["spec"] |= {"workers": {"min": 2, "max": 2}, "placement": {"allowUnknownLinks": True}}
    return job | {"status": status}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Restricted:
    """Two nodes and a job without a plan, to which every command connects."""
    found = Restricted((NODES, node("a", "eu")), (NODES, node("b", "us")), (HULK_JOBS, stored_job()))

    async def connect(_: Target) -> Restricted:
        return found

    monkeypatch.setattr(Target, "connect", connect)
    return found


@pytest.mark.parametrize("arguments", [(), ("plan",), ("logs",)])
def test_help_has_a_short_name(hulk: Hulk, arguments: tuple[str, ...]) -> None:
    code, printed, _ = hulk(*arguments, "-h")
    assert code == 0
    assert "Usage" in printed


@pytest.mark.parametrize(
    ("arguments", "namespace"),
    [((), "research"), (("--context", "two"), "default"), (("-n", "mine", "--context", "one"), "mine")],
)
def test_the_namespace_is_the_contexts(hulk: Hulk, arguments: tuple[str, ...], namespace: str) -> None:
    code, printed, _ = hulk("plan", "-f", JOB, "--topology", TOPOLOGY, *arguments, "--details")
    assert code == 0
    assert printed.startswith(f"{namespace}/demo: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "there is no kubeconfig"),
        ("a: [", "cannot be used"),
        ("[]", "cannot be used"),
        (yaml.safe_dump(KUBECONFIG | {"current-context": "three"}), "three"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_sentence_with_its_name(
    hulk: Hulk, tmp_path: Path, text: str | None, expected: str
) -> None:
    path = tmp_path / "mine"
    if text is not None:
        path.write_text(text)
    code, _, _ = hulk("status", "--kubeconfig", path)
    assert expected in code
    assert str(path) in code


def test_an_unknown_context_is_named(hulk: Hulk) -> None:
    code, _, _ = hulk("status", "--context", "nope")
    assert "nope" in code


def test_a_job_of_all_namespaces_is_refused(hulk: Hulk, cluster: Restricted) -> None:
    code, printed, _ = hulk("status", "demo", "-A")
    assert "-A shows the jobs and sweeps of every namespace" in code
    assert printed == ""


def test_links_are_shown_to_who_may_not_see_pods(hulk: Hulk, cluster: Restricted) -> None:
    cluster.forbidden = ("pods", "hulkjobs")
    code, printed, said = hulk("topology")
    assert code == 0
    assert "eu" in printed
    assert "what pods hold is not known, every accelerator counts as free: pods is forbidden" in said


def test_a_plan_says_what_it_could_not_see(hulk: Hulk, cluster: Restricted, tmp_path: Path) -> None:
    cluster.forbidden = ("pods", "hulkjobs")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(stored_job()))
    code, printed, said = hulk("plan", "-f", path, "--details")
    assert code == 0
    assert "2 workers" in printed
    assert "what pods hold is not known" in said
    assert "plans whose pods are not there yet are not known: hulkjobs is forbidden" in said


def test_a_job_is_explained_to_who_sees_nothing_else(hulk: Hulk, cluster: Restricted) -> None:
    cluster.forbidden = ("pods", "nodes", "nodeprofiles")
    code, printed, said = hulk("explain", "demo", "--details")
    assert code == 0
    assert "research/demo" in printed
    assert "links are not shown: " in said


def test_the_log_of_a_pod_that_is_not_there_is_an_error(hulk: Hulk, cluster: Restricted) -> None:
    code, printed, _ = hulk("logs", "demo")
    assert code == "hulk: research/demo has no pods yet (phase Pending)"
    assert printed == ""


def test_a_worker_that_the_plan_does_not_have_is_refused(hulk: Hulk, cluster: Restricted) -> None:
    plan = {
        "name": "demo-plan-1",
        "digest": "d",
        "attempt": 1,
        "algorithm": "ring",
        "numWorkers": 3,
        "numAccelerators": 3,
        "layout": {"data": 3},
        "optimalityGap": "0.0",
    }
    cluster.objects["hulkjobs", "research", "demo"] = stored_job(phase="Running", attempt=1, plan=plan)
    code, _, _ = hulk("logs", "demo", "-w", "99")
    assert code == "hulk: research/demo has 3 workers, counted from 0: there is no 99"
    code, _, _ = hulk("logs", "demo", "-w", "2")
    assert "the pod of worker 2 is gone (phase Running)" in code


def test_the_last_words_of_a_failure_are_its_log_when_the_pod_is_gone(hulk: Hulk, cluster: Restricted) -> None:
    last = {
        "attempt": 2,
        "pod": "demo-2-1",
        "node": "n",
        "exitCode": 3,
        "reason": "Error",
        "message": "no such file",
        "time": "2026-01-01T00:00:00Z",
    }
    cluster.objects["hulkjobs", "research", "demo"] = stored_job(phase="Failed", attempt=2, lastFailure=last)
    code, printed, said = hulk("logs", "demo")
    assert (code, printed) == (0, "no such file\n")
    assert "the pod of worker 0 is gone (phase Failed); the last words of pod demo-2-1 in attempt 2" in said
