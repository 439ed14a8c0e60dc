"""A release beside jobs that run: an upgrade and a changed definition change nothing of them, an uninstall neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hulk_lab import up
from hulk_lab.processes import wait_until
from lab_jobs import ENDLESS, PATIENCE_S, SLEEP, SYSTEM_NAMESPACE, Jobs, install, job, system_pods, uids

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

DEFINITIONS = ("hulkjobs.hulk.dev", "hulksweeps.hulk.dev", "nodeprofiles.hulk.dev", "hulktopologies.hulk.dev")
STEADY, WAITER = "steady", "waiter"


def last_step(jobs: Jobs) -> int:
    """The newest step that rank 0 has printed, 0 before the first."""
    steps = [line for line in jobs.log(f"{STEADY}-1-0").splitlines() if line.startswith("step=")]
    return int(steps[-1].split()[0].removeprefix("step=")) if steps else 0


def goes_on(jobs: Jobs) -> None:
    """Wait until rank 0 has made two steps more than it has now."""
    before = last_step(jobs)
    wait_until(lambda: last_step(jobs) >= before + 2, f"steps of {STEADY}", timeout_s=PATIENCE_S, interval_s=0.5)


def test_helm_tests_the_release(installed: up.Lab) -> None:
    said = installed.kube.run("helm", "test", "hulk", "-n", SYSTEM_NAMESPACE, "--logs", "--timeout", "180s")
    assert "an operator is ready" in said
    assert f"a HulkJob in namespace {SYSTEM_NAMESPACE} is admitted" in said
    left = installed.kube.get("serviceaccounts,roles,rolebindings", "-n", SYSTEM_NAMESPACE)["items"]
    assert "hulk-test" not in [item["metadata"]["name"] for item in left]


@pytest.mark.whole  # in short: tests/chart/test_release.py, without kubelets
def test_a_release_comes_changes_and_goes_beside_running_jobs(installed: up.Lab, jobs: Jobs, repository: Path) -> None:
    kube = installed.kube
    jobs.submit(job(STEADY, (4, 4), steps=ENDLESS))
    jobs.wait_phase(STEADY, "Running")
    jobs.submit(job(WAITER, (3, 3), command=SLEEP))
    jobs.wait(WAITER, "a reason to wait", lambda now: now.get("conditions"))
    told = jobs.condition(WAITER, "Planned")
    assert (told["status"], told["reason"]) == ("False", "NotEnoughAccelerators"), told
    assert "3" in told["message"], told
    goes_on(jobs)
    gang, spec = uids(jobs.pods(STEADY)), jobs.get(STEADY)["spec"]
    operator = uids(system_pods(installed, "operator"))

    upgrade = ("helm", "upgrade", "hulk", str(repository / "charts/hulk"), "-n", SYSTEM_NAMESPACE, "--reuse-values")
    kube.run(*upgrade, "--set-string", "operator.podAnnotations.restarted=yes", "--wait", "--timeout", "180s")
    schema = "/spec/versions/0/schema/openAPIV3Schema/description"
    change = json.dumps([{"op": "add", "path": schema, "value": "Changed beside a running job."}])
    kube.kubectl("patch", "crd", DEFINITIONS[0], "--type=json", "-p", change)
    assert not set(uids(system_pods(installed, "operator"))) & set(operator)
    seen = jobs.status(STEADY).get("observed", {}).get("step", 0)
    jobs.wait(STEADY, "an observation by the new operator", lambda now: now.get("observed", {}).get("step", 0) > seen)
    assert uids(jobs.pods(STEADY)) == gang
    assert jobs.get(STEADY)["spec"] == spec
    status = jobs.status(STEADY)
    assert (status["phase"], status["attempt"]) == ("Running", 1)
    assert (status["failures"], status["disruptions"], status["restarts"]) == (0, 0, 0)
    assert jobs.pods(WAITER) == []

    kube.run("helm", "uninstall", "hulk", "-n", SYSTEM_NAMESPACE, "--wait")
    assert system_pods(installed, "operator") == []
    assert len(kube.get("crd", *DEFINITIONS)["items"]) == len(DEFINITIONS)
    goes_on(jobs)
    assert uids(jobs.pods(STEADY)) == gang

    install(installed, repository)
    goes_on(jobs)
    assert uids(jobs.pods(STEADY)) == gang
    assert jobs.pods(WAITER) == []
    jobs.delete(STEADY)
    jobs.wait_phase(WAITER, "Running")
