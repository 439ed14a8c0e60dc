"""A drained node: a job saves its state in its volume claim, waits for the node, and goes on; so does the operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hulk_lab import up
from hulk_lab.processes import wait_until
from lab_jobs import (
    ENDLESS,
    GRACE_S,
    LAUNCH,
    PATIENCE_S,
    SYSTEM_NAMESPACE,
    Jobs,
    cordoned,
    job,
    nodes,
    saved_at_its_end,
    system_pods,
    uids,
)

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME, CLAIM = "rooted", "state"
STEADY = "steady"
HOSTNAME = "kubernetes.io/hostname"
TAKEN_OVER_S = 15
OPERATOR = "deployment/hulk-operator"


@pytest.fixture
def there(installed: up.Lab) -> str:
    """A node without the operator, which is to outlive the drain."""
    kept = nodes(system_pods(installed, "operator"))
    return next(node.name for node in installed.nodes if node.name not in kept)


@pytest.fixture
def claim(jobs: Jobs, there: str, tmp_path: Path) -> Iterator[str]:
    """A volume claim bound to a folder of that one node."""
    volume, kube = f"{jobs.namespace}-{CLAIM}", jobs.lab.kube
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [there]}]}
    spec = {
        "capacity": size,
        "accessModes": modes,
        "local": {"path": str(tmp_path)},
        "claimRef": {"namespace": jobs.namespace, "name": CLAIM},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    wanted = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": volume}
    metadata = {"name": CLAIM, "namespace": jobs.namespace}
    kube.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    kube.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted})
    yield CLAIM
    jobs.delete(NAME)
    kube.kubectl("delete", "pvc", CLAIM, "-n", jobs.namespace)
    kube.kubectl("delete", "pv", volume)


def test_a_drained_job_saves_its_state_waits_and_goes_on(installed: up.Lab, jobs: Jobs, there: str, claim: str) -> None:
    storage = {"persistentVolumeClaim": claim}
    checkpoint = {"storage": storage, "everySteps": ENDLESS}  # the only one is what the drain makes it write
    manifest = job(NAME, (1, 1), command=LAUNCH, steps=ENDLESS, checkpoint=checkpoint)
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {HOSTNAME: there}
    jobs.submit(manifest)
    jobs.wait(NAME, "its first steps", lambda now: now.get("observed", {}).get("step"))
    last_words = jobs.follow(f"{NAME}-1-0")

    with cordoned(installed, there):  # as drain does; whatever happens, the next tests have the node again
        begun_s = time.monotonic()
        installed.kube.kubectl(
            "drain", there, "--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector=hulk.dev/job={NAME}"
        )
        saved = saved_at_its_end(last_words())
        assert time.monotonic() - begun_s < GRACE_S
        jobs.wait(NAME, "a reason to wait", lambda _: there in jobs.condition(NAME, "Planned").get("message", ""))
        assert jobs.condition(NAME, "Planned")["status"] == "False"
        status = jobs.wait(NAME, "its checkpoint", lambda now: now.get("checkpoint", {}).get("step") == saved)
        assert (status["failures"], status["disruptions"]) == (0, 1)
        assert status["checkpoint"]["where"] == f"pvc/{claim}"

    assert jobs.resumed_at(NAME, attempt=2) == saved
    status = jobs.wait(NAME, "a step more", lambda now: now.get("observed", {}).get("step", 0) > saved)
    assert (status["attempt"], status["failures"], status["disruptions"]) == (2, 0, 1)


@pytest.fixture
def returning(installed: up.Lab) -> Iterator[set[str]]:
    """The nodes of the operator, to which it comes back: other tests may kill the other nodes."""
    kept = set(nodes(system_pods(installed, "operator")))
    yield kept
    with cordoned(installed, *(node.name for node in installed.nodes if node.name not in kept)):
        installed.kube.kubectl("rollout", "restart", OPERATOR, "-n", SYSTEM_NAMESPACE)
        installed.kube.kubectl("rollout", "status", OPERATOR, "-n", SYSTEM_NAMESPACE, "--timeout", f"{PATIENCE_S}s")


def leader(lab: up.Lab) -> str:
    """The operator that acts; empty while none does."""
    found: str = lab.kube.get("lease", "hulk-operator", "-n", SYSTEM_NAMESPACE)["spec"].get("holderIdentity") or ""
    return found


def test_a_job_does_not_notice_that_its_operators_node_is_drained(
    installed: up.Lab, jobs: Jobs, returning: set[str]
) -> None:
    """Both replicas are on one node: the budget lets them go one after the other."""
    jobs.submit(job(STEADY, (2, 2), steps=ENDLESS))
    jobs.wait(STEADY, "its first steps", lambda now: now.get("observed", {}).get("step"))
    gang, before = uids(jobs.pods(STEADY)), leader(installed)
    with cordoned(installed, *returning):
        selector = "--pod-selector=app.kubernetes.io/component=operator"
        for node in returning:
            installed.kube.kubectl("drain", node, "--delete-emptydir-data", selector, f"--timeout={PATIENCE_S}s")
        assert not set(nodes(system_pods(installed, "operator"))) & returning
        wait_until(lambda: leader(installed) not in {"", before}, "another leader", timeout_s=TAKEN_OVER_S)
        seen = jobs.status(STEADY)["observed"]["step"]
        status = jobs.wait(STEADY, "a step more", lambda now: now["observed"]["step"] > seen, TAKEN_OVER_S)
    assert uids(jobs.pods(STEADY)) == gang
    assert [status[name] for name in ("attempt", "failures", "disruptions", "restarts")] == [1, 0, 0, 0]
    jobs.delete(STEADY)
