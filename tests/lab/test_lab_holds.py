"""What keeps pods from starting or going, on real kubelets: gates, finalizers, a Secret or an image that is missing.

All jobs are submitted at once, each where it has room, and each test waits for its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hulk_lab import up
from hulk_lab.processes import wait_until
from lab_jobs import PATIENCE_S, PYTHON, SLEEP, Jobs, Object, job

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

GATE, FINALIZER = "example.com/quota", "example.com/export"
START_TIMEOUT_S = 2
REGISTRY_PORT = 80  # the only one at which containerd asks without TLS
CLOSED_PORT = 5999
ENDS = (PYTHON, "-c", "print('done')")


def placed(name: str, command: tuple[str, ...], num_workers: int, *regions: str, **policy: int) -> Object:
    """A job of some regions, of which nothing must be measured."""
    placement = {"regions": list(regions), "allowUnknownLinks": True}
    manifest = job(name, (num_workers, num_workers), command=command, sync={"mode": "ring"}, placement=placement)
    manifest["spec"]["runPolicy"] = policy
    return manifest


def with_image(manifest: Object, image: str) -> Object:
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return manifest


def gated() -> Object:
    manifest = placed("gated", ENDS, 1, "us", startTimeoutSeconds=START_TIMEOUT_S, backoffLimit=0)
    manifest["spec"]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    return manifest


def without_secret() -> Object:
    manifest = placed("keyless", ENDS, 1, "ap", backoffLimit=1)
    manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "absent"}}]
    return manifest


@pytest.fixture(scope="module")
def registry(installed: up.Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that the node in `ap` reaches and that has nothing."""
    [place] = installed.net.nodes_of("ap")
    server = serve(place.netns_path, REGISTRY_PORT, tmp_path_factory.mktemp("registry"))
    try:
        assert server.stdout is not None
        assert "Serving HTTP" in server.stdout.readline()
        yield f"localhost:{REGISTRY_PORT}"
    finally:
        server.kill()
        server.communicate()


def serve(netns: Path, port: int, folder: Path) -> subprocess.Popen[str]:
    """Serve an empty folder in a network namespace; the kernel kills it with this process, whatever ends that."""
    command = [sys.executable, "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={netns}", *command]
    return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.fixture(scope="module", autouse=True)
def submitted(jobs: Jobs, registry: str) -> Iterator[None]:
    closed = f"{jobs.lab.net.control_address}:{CLOSED_PORT}"
    unreached = with_image(placed("unreached", ENDS, 2, "us", "ap", backoffLimit=0), f"{closed}/none:1")
    unreached["spec"]["placement"]["workerNodes"] = ["us-0", "ap-0"]
    for manifest in (
        placed("kept", SLEEP, 2, "eu"),
        gated(),
        without_secret(),
        with_image(placed("imageless", ENDS, 1, "ap", backoffLimit=0), f"{registry}/none:1"),
        unreached,
    ):
        jobs.submit(manifest)
    yield
    for pod in jobs.pods("kept"):  # its namespace would never go
        change(jobs, pod, {"metadata": {"finalizers": None}})


def change(jobs: Jobs, pod: Object, patch: Object) -> None:
    """As another controller changes a pod."""
    jobs.lab.control.api().patch(f"/api/v1/namespaces/{jobs.namespace}/pods/{pod['metadata']['name']}", patch)


def wait_condition(jobs: Jobs, name: str, kind: str, status: str) -> str:
    """The message of a condition once it has a status."""
    wait_until(
        lambda: jobs.condition(name, kind).get("status") == status,
        f"{name}: {kind} to be {status}",
        timeout_s=PATIENCE_S,
        interval_s=0.25,
    )
    return str(jobs.condition(name, kind)["message"])


def test_a_finalizer_holds_a_pod_and_its_accelerator_and_nothing_else(jobs: Jobs) -> None:
    jobs.wait_phase("kept", "Running")
    held, free = jobs.pods("kept")
    name = held["metadata"]["name"]
    change(jobs, held, {"metadata": {"finalizers": [FINALIZER]}})
    jobs.patch("kept", {"suspend": True})
    assert wait_condition(jobs, "kept", "Suspended", "True") == "all pods have ended, finalizers hold 1 of them"
    message = f"pod {name} waits for finalizer {FINALIZER}: its accelerators stay reserved until then"
    assert wait_condition(jobs, "kept", "Held", "True") == message
    assert [pod["metadata"]["name"] for pod in jobs.pods("kept")] == [name], free["metadata"]["name"]

    jobs.submit(placed("next", ENDS, 2, "eu", backoffLimit=0))
    assert "Needs at least 2 " in wait_condition(jobs, "next", "Planned", "False")
    assert not jobs.pods("next")
    change(jobs, held, {"metadata": {"finalizers": None}})
    wait_condition(jobs, "kept", "Held", "False")
    jobs.wait_phase("next", "Succeeded")

    jobs.patch("kept", {"suspend": False})
    status = jobs.wait("kept", "another attempt", lambda now: now.get("attempt") == 2 and now["phase"] == "Running")
    assert status.get("failures", 0) == 0
    jobs.delete("kept")


def test_a_missing_secret_fails_the_job_within_its_bound_and_blames_no_node(jobs: Jobs) -> None:
    status = jobs.wait_phase("keyless", "Failed")
    said = jobs.condition("keyless", "Failed")
    assert said["reason"] == "BackoffLimitExceeded"
    assert said["message"].startswith("2 failures are more than backoffLimit = 1; the last: CreateContainerConfigError")
    assert 'secret "absent" not found' in said["message"]
    assert (status["failures"], status["attempt"]) == (2, 2)
    assert not status.get("avoidedNodes")


def test_an_image_that_its_registry_has_not_fails_the_job_and_blames_no_node(jobs: Jobs, registry: str) -> None:
    status = jobs.wait_phase("imageless", "Failed")
    said = jobs.condition("imageless", "Failed")
    assert said["reason"] == "BackoffLimitExceeded"
    assert said["message"].startswith("1 failures are more than backoffLimit = 0; the last: ImagePullBackOff")
    assert f"{registry}/none:1: not found" in said["message"]
    assert (status["failures"], status["attempt"]) == (1, 1)
    assert not status.get("avoidedNodes")


def test_a_registry_that_does_not_answer_is_neither_the_jobs_failure_nor_a_nodes(jobs: Jobs) -> None:
    status = jobs.wait("unreached", "a failed start", lambda now: "lastFailure" in now)
    assert status["lastFailure"]["reason"] == "ImagePullBackOff"
    assert "connection refused" in status["lastFailure"]["message"]
    assert status.get("failures", 0) == 0
    assert not status.get("avoidedNodes")
    jobs.delete("unreached")


def test_time_behind_a_gate_is_no_start_timeout(jobs: Jobs) -> None:
    wait_condition(jobs, "gated", "Gated", "True")
    planned = datetime.fromisoformat(jobs.condition("gated", "Planned")["lastTransitionTime"])
    wait_until(
        lambda: (datetime.now(UTC) - planned).total_seconds() > 2 * START_TIMEOUT_S,
        "more time than the start may take",
        timeout_s=PATIENCE_S,
    )
    [pod] = jobs.pods("gated")
    name = pod["metadata"]["name"]
    said = jobs.condition("gated", "Gated")["message"]
    assert said == f"1 of 1 pods wait behind scheduling gates: {name} for gate {GATE}"
    assert "lastFailure" not in jobs.status("gated")
    jobs.patch("gated", {"runPolicy": {"startTimeoutSeconds": PATIENCE_S}})
    change(jobs, pod, {"spec": {"schedulingGates": None}})
    status = jobs.wait_phase("gated", "Succeeded")
    assert jobs.condition("gated", "Gated")["status"] == "False"
    assert (status["attempt"], status.get("failures", 0)) == (1, 0)
    assert not status.get("avoidedNodes")
