"""The operator at work with the very rights that the chart gives it: nothing it asks for is refused.

It runs as a process of this machine, with a token of its service account; nodes and pods are simulated.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from hulk_lab.processes import wait_until
from rendering import (
    CHART,
    INSTALLED_IN,
    PATIENCE_S,
    Manifest,
    Run,
    administrator,
    operator_process,
    operators_kubeconfig,
)

pytestmark = pytest.mark.controlplane

RESEARCH = "hulk-chart-research"
JOB, SWEEP = "rights", "rates"
POD_CONTAINER = {"name": "c", "image": "none"}
DEBUGGER = {"from": [{"podSelector": {"matchLabels": {"team": "a"}}}], "ports": [{"protocol": "TCP", "port": 5678}]}


@pytest.fixture
def namespace(installed: Run) -> Iterator[str]:
    """A user's namespace."""
    installed("kubectl", "create", "namespace", RESEARCH)
    yield RESEARCH
    installed("kubectl", "delete", "namespace", RESEARCH)


@pytest.fixture
def operator(installed: Run, control_plane: Path, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """operator(namespace or "") runs it with its service account's token; the path of its log."""
    with ExitStack() as running:

        def start(scope: str) -> Path:
            kubeconfig = operators_kubeconfig(installed, control_plane, tmp_path)
            running.enter_context(operator_process(kubeconfig, tmp_path / "log", HULK_NAMESPACE=scope))
            return tmp_path / "log"

        yield start


def job() -> Manifest:
    """The example with what simulated nodes have: no measured links, no store for checkpoints."""
    found: Manifest = yaml.safe_load((CHART.parents[1] / "examples/hulkjob.yaml").read_text())
    found["metadata"] = {"name": JOB, "namespace": RESEARCH}
    found["spec"]["workers"] = {"min": 2, "max": 2}
    found["spec"]["placement"] = {"allowUnknownLinks": True}
    found["spec"]["networkPolicy"] = {"ingress": [DEBUGGER]}
    del found["spec"]["checkpoint"]
    return found


def stranger() -> Manifest:
    """A tenant's pod with a job's labels, which no job owns."""
    labels = {"app.kubernetes.io/managed-by": "hulk", "hulk.dev/job": JOB}
    metadata = {"name": "a-stranger", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [POD_CONTAINER]}}


def sweep() -> Manifest:
    """Two trials, of which each is over after a moment."""
    template = job()["spec"]["template"]
    template["spec"]["containers"][0]["env"] = [{"name": "RATE", "value": "$(sweep.rate)"}]
    spec = {"workers": {"max": 1}, "runPolicy": {"activeDeadlineSeconds": 1}, "template": template}
    return {
        "apiVersion": "hulk.dev/v1alpha1",
        "kind": "HulkSweep",
        "metadata": {"name": SWEEP, "namespace": RESEARCH},
        "spec": {
            "parallelism": 1,
            "parameters": {"grid": [{"name": "rate", "values": ["1", "2"]}]},
            "objective": {"metric": "hulk_worker_loss"},
            "template": {"spec": spec},
        },
    }


def names_of(listing: str) -> set[str]:
    return {item["metadata"]["name"] for item in json.loads(listing)["items"]}


def sweep_phase(of: Callable[..., str]) -> str:
    return str(json.loads(of("hulksweep", SWEEP)).get("status", {}).get("phase", ""))


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param("", id="all-namespaces", marks=pytest.mark.whole),  # in short: the narrower role
        pytest.param(RESEARCH, id="one-namespace"),
    ],
)
def test_nothing_the_operator_asks_for_is_refused(
    installed: Run,
    kwok_nodes: Callable[..., list[str]],
    namespace: str,
    operator: Callable[[str], Path],
    scope: str,
) -> None:
    def condition(kind: str, of_job: str = JOB) -> str:
        conditions = json.loads(of("hulkjob", of_job)).get("status", {}).get("conditions", [])
        return next((str(item["status"]) for item in conditions if item["type"] == kind), "Unknown")

    def attempt() -> int:
        return int(json.loads(of("hulkjob", JOB))["status"]["attempt"])

    def of(*what: str) -> str:
        return installed("kubectl", "get", *what, "-n", namespace, "-o", "json").stdout

    def secrets() -> list[Manifest]:
        return list(json.loads(of("secrets", f"-lhulk.dev/job={JOB}"))["items"])

    def children() -> set[str]:
        found = json.loads(of("pods,services,configmaps,networkpolicies", f"-lhulk.dev/job={JOB}"))
        return {item["kind"] for item in found["items"]}

    installed("helm", "upgrade", "hulk", str(CHART), "-n", INSTALLED_IN, "--set", f"scope.namespace={scope}")
    nodes = kwok_nodes(2)
    log = operator(scope)
    installed("kubectl", "create", "-f", "-", stdin=json.dumps(job()))
    wait_until(lambda: condition("Deployed") == "True", "the gang", timeout_s=PATIENCE_S, log=log)
    assert children() == {"ConfigMap", "NetworkPolicy", "Pod", "Service"}
    (policy,) = json.loads(of("networkpolicies"))["items"]
    gang, metrics, mine = policy["spec"]["ingress"]
    assert (gang["from"], mine) == ([{"podSelector": policy["spec"]["podSelector"]}], DEBUGGER)
    release = {"matchLabels": {"kubernetes.io/metadata.name": INSTALLED_IN}}
    assert [peer["namespaceSelector"] for peer in metrics["from"]] == [release]
    (secret,) = secrets()
    assert (secret["immutable"], len(b64decode(secret["data"]["secret"]))) == (True, 32)
    assert json.loads(of("events", f"--field-selector=involvedObject.name={JOB}"))["items"]
    wait_until(lambda: set(nodes) <= profiles(installed), "NodeProfiles", timeout_s=PATIENCE_S, log=log)

    lie = json.dumps({"status": {"links": [{"target": nodes[0], "time": "2026-01-01T00:00:00Z"}]}})
    installed("kubectl", "patch", "nodeprofile", nodes[0], "--subresource=status", "--type=merge", "-p", lie)
    wait_until(lambda: "LinkToItself" in log.read_text(), "the refusal of a link", timeout_s=PATIENCE_S, log=log)
    told = ("get", "events", "-n", "default", f"--field-selector=involvedObject.name={nodes[0]},reason=LinkToItself")
    if not scope:  # events about cluster-scoped objects lie in a namespace that is not that operator's
        wait_until(lambda: nodes[0] in installed("kubectl", *told).stdout, "the event", timeout_s=PATIENCE_S, log=log)

    asks = job()
    asks["metadata"]["name"] = "asks"
    asks["spec"]["placement"]["allowScaleUp"] = "placeholders"
    asks["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "not-there-yet"}
    installed("kubectl", "create", "-f", "-", stdin=json.dumps(asks))
    wait_until(lambda: condition("ScalingUp", "asks") == "True", "placeholders", timeout_s=PATIENCE_S, log=log)
    installed(
        "kubectl", "patch", "hulkjob", "asks", "-n", namespace, "--type=merge", "-p", '{"spec": {"suspend": true}}'
    )
    left = ("pods", "-lhulk.dev/placeholder")
    wait_until(lambda: not names_of(of(*left)), "the end of placeholders", timeout_s=PATIENCE_S, log=log)
    installed("kubectl", "delete", "hulkjob", "asks", "-n", namespace)

    installed("kubectl", "create", "-n", namespace, "-f", "-", stdin=json.dumps(stranger()))
    fewer = json.dumps({"spec": {"workers": {"min": 1, "max": 1}}})
    installed("kubectl", "patch", "hulkjob", JOB, "-n", namespace, "--type=merge", "-p", fewer)
    wait_until(
        lambda: attempt() == 2 and condition("Deployed") == "True", "the smaller gang", timeout_s=PATIENCE_S, log=log
    )

    suspend = json.dumps({"spec": {"suspend": True}})
    installed("kubectl", "patch", "hulkjob", JOB, "-n", namespace, "--type=merge", "-p", suspend)
    wait_until(
        lambda: condition("Suspended") == "True" and not children(), "the end of pods", timeout_s=PATIENCE_S, log=log
    )
    assert secrets() == [secret]  # over all attempts, until the job is deleted
    installed("kubectl", "delete", "hulkjob", JOB, "-n", namespace)
    wait_until(lambda: not secrets(), "the end of the secret", timeout_s=PATIENCE_S, log=log)

    brief = job()
    brief["spec"]["runPolicy"] = {"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 1}
    for body in (brief, sweep()):
        installed("kubectl", "create", "-f", "-", stdin=json.dumps(body))
    over = ("Succeeded", "Failed")
    wait_until(lambda: sweep_phase(of) in over, "the end of all trials", timeout_s=PATIENCE_S, log=log)
    wait_until(lambda: "rights" not in names_of(of("hulkjobs")), "its time to live", timeout_s=PATIENCE_S, log=log)
    assert names_of(of("hulkjobs")) == {f"{SWEEP}-t0", f"{SWEEP}-t1"}
    assert [line for line in log.read_text().splitlines() if "forbidden" in line.lower()] == []


def profiles(installed: Run) -> set[str]:
    found = json.loads(installed("kubectl", "get", "nodeprofiles", "-o", "json").stdout)["items"]
    return {item["metadata"]["name"] for item in found}


@pytest.mark.whole  # building Kueue takes 5 minutes of CPU
@pytest.mark.usefixtures("kueue_lab")
def test_nothing_is_refused_beside_kueue(
    installed: Run,
    kwok_nodes: Callable[..., list[str]],
    namespace: str,
    operator: Callable[[str], Path],
    control_plane: Path,
    tmp_path: Path,
) -> None:
    """First without the rights, which is said; then admitted, evicted, queued again under another priority, deleted."""

    def why() -> str:
        status = json.loads(installed("kubectl", "get", "hulkjob", JOB, "-n", namespace, "-o", "json").stdout)
        found = status.get("status", {}).get("conditions", [])
        return next(
            (f"{one['status']} {one['reason']} {one['message']}" for one in found if one["type"] == "Planned"), ""
        )

    def says(words: str) -> None:
        wait_until(lambda: words in why(), f"{words!r} in Planned", timeout_s=PATIENCE_S, log=log)

    def patch(kind: str, name: str, change: object, *flags: str) -> None:
        installed("kubectl", "patch", kind, name, "--type=merge", "-p", json.dumps(change), *flags)

    release = ("helm", "upgrade", "hulk", str(CHART), "-n", INSTALLED_IN, "--set")
    installed(*release, "scope.namespace=")
    kwok_nodes(2)
    installed("kubectl", "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": QUEUES}))
    body = job()
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "idle"}
    body["spec"]["workers"]["resourceName"] = "nvidia.com/gpu"
    log = operator("")
    try:
        installed("kubectl", "create", "-f", "-", stdin=json.dumps(body))
        says("--set kueue.enabled=true")
        refused = log.read_text()
        installed(*release, "kueue.enabled=true")
        stolen = administrator(operators_kubeconfig(installed, control_plane, tmp_path))
        pod = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}}
        pod_set = {"name": "main", "count": 1, "template": pod}
        of_others = json.dumps(_of_kueue("Workload", "theirs", spec={"queueName": "team", "podSets": [pod_set]}))
        flags = ("-n", namespace, "--dry-run=server", "--validate=false", "-f", "-")
        refusal = stolen("kubectl", "create", *flags, stdin=of_others, check=False).stderr
        assert "only what is labelled as Hulk's" in refusal
        says("True Planned")
        patch("clusterqueue", "rights", {"spec": {"stopPolicy": "HoldAndDrain"}})
        says("ClusterQueueStopped")
        patch("hulkjob", JOB, {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "urgent"}}}, "-n", namespace)
        patch("hulkjob", JOB, {"spec": {"workers": {"min": 1}}}, "-n", namespace)
        patch("clusterqueue", "rights", {"spec": {"stopPolicy": "None"}})
        says("True Planned attempt 2")
        patch("hulkjob", JOB, {"spec": {"suspend": True}}, "-n", namespace)
        says("Suspended")
        workloads = ("kubectl", "get", "workloads", "-n", namespace, "-o", "name")
        wait_until(lambda: not installed(*workloads).stdout, "the end of the Workload", timeout_s=PATIENCE_S, log=log)
        later = log.read_text().removeprefix(refused)
        assert [line for line in later.splitlines() if "forbidden" in line.lower()] == []
    finally:
        for manifest in QUEUES:
            name = manifest["metadata"]["name"]
            installed("kubectl", "delete", manifest["kind"].lower(), name, "-n", namespace, "--wait=false", check=False)


def _of_kueue(kind: str, name: str, **body: object) -> Manifest:
    place = {"namespace": RESEARCH} if kind == "LocalQueue" else {}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **place}, **body}


RESOURCES = ["cpu", "memory", "nvidia.com/gpu"]
QUOTAS = [{"name": name, "nominalQuota": "1000Gi" if name == "memory" else 100} for name in RESOURCES]
GROUP = {"coveredResources": RESOURCES, "flavors": [{"name": "rights", "resources": QUOTAS}]}
QUEUES = (
    _of_kueue("ResourceFlavor", "rights"),
    _of_kueue("ClusterQueue", "rights", spec={"namespaceSelector": {}, "resourceGroups": [GROUP]}),
    _of_kueue("LocalQueue", "team", spec={"clusterQueue": "rights"}),
    _of_kueue("WorkloadPriorityClass", "idle", value=1),
    _of_kueue("WorkloadPriorityClass", "urgent", value=2),
)
