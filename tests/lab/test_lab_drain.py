"""A drained node: the job saves its state in its volume claim, waits for the node, and goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hulk_lab import up
from lab_jobs import ENDLESS, GRACE_S, LAUNCH, Jobs, cordoned, job, nodes, saved_at_its_end, system_pods

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

NAME, CLAIM = "rooted", "state"
HOSTNAME = "kubernetes.io/hostname"


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
