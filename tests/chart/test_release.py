"""What a release does to jobs that are there: an upgrade changes nothing of them, an uninstall leaves them."""

import json
from collections.abc import Iterator

import pytest
import yaml
from hulk_lab.processes import wait_until
from rendering import CHART, INSTALLED_IN, Manifest, Run

pytestmark = pytest.mark.controlplane

DEFINITIONS = ("hulkjobs.hulk.dev", "hulksweeps.hulk.dev", "nodeprofiles.hulk.dev", "hulktopologies.hulk.dev")
USER = "hulk-chart-user"


@pytest.fixture(scope="module")
def job(installed: Run) -> Iterator[Manifest]:
    """The example as a user's object, with a pod that belongs to it as its workers do."""
    example: Manifest = yaml.safe_load((CHART.parents[1] / "examples/hulkjob.yaml").read_text())
    created = installed("kubectl", "create", "-n", INSTALLED_IN, "-o", "json", "-f", "-", stdin=json.dumps(example))
    found: Manifest = json.loads(created.stdout)
    installed("kubectl", "create", "-n", INSTALLED_IN, "-f", "-", stdin=json.dumps(worker(found)))
    yield found
    installed("kubectl", "delete", "hulkjob", found["metadata"]["name"], "-n", INSTALLED_IN, "--ignore-not-found")


def worker(job: Manifest) -> Manifest:
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True, **named(job)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "worker", "image": "none"}], "schedulerName": "nobody"},
    }


def named(item: Manifest) -> Manifest:
    return {"name": item["metadata"]["name"], "uid": item["metadata"]["uid"]}


def seen(installed: Run, kind: str, name: str) -> Manifest:
    found: Manifest = json.loads(installed("kubectl", "get", kind, name, "-n", INSTALLED_IN, "-o", "json").stdout)
    return found


def test_an_upgrade_and_a_changed_definition_change_no_job(installed: Run, job: Manifest) -> None:
    before = seen(installed, "pod", "worker")
    changed = json.dumps({"metadata": {"labels": {"changed": "yes"}}})
    installed("kubectl", "patch", "crd", DEFINITIONS[0], "--type=merge", "-p", changed)
    upgrade = ("helm", "upgrade", "hulk", str(CHART), "-n", INSTALLED_IN, "--set", "metrics.annotations=true")
    installed(*upgrade)
    assert seen(installed, "hulkjob", job["metadata"]["name"]) == job
    assert seen(installed, "pod", "worker")["metadata"] == before["metadata"]
    pods = seen(installed, "deployment", "hulk-operator")["spec"]["template"]
    assert pods["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_an_uninstall_leaves_jobs_and_definitions_and_can_be_undone(installed: Run, job: Manifest) -> None:
    installed("helm", "uninstall", "hulk", "-n", INSTALLED_IN, "--wait")
    installed("kubectl", "get", "crd", *DEFINITIONS)
    assert seen(installed, "hulkjob", job["metadata"]["name"])["metadata"]["uid"] == job["metadata"]["uid"]
    assert seen(installed, "pod", "worker")["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert installed("kubectl", "get", "deployment", "hulk-operator", "-n", INSTALLED_IN, check=False).returncode
    installed("helm", "install", "hulk", str(CHART), "-n", INSTALLED_IN)
    assert seen(installed, "hulkjob", job["metadata"]["name"])["metadata"]["uid"] == job["metadata"]["uid"]


def test_a_namespaces_editor_may_run_jobs_and_a_viewer_may_look(installed: Run) -> None:
    def may(role: str, verb: str) -> bool:
        answers = [
            installed(
                "kubectl", "auth", "can-i", verb, kind, f"--as={USER}-{role}", "-n", INSTALLED_IN, check=False
            ).stdout.strip()
            for kind in ("hulkjobs.hulk.dev", "hulksweeps.hulk.dev")
        ]
        return answers == ["yes", "yes"]

    for role in ("edit", "view"):
        binding = ("rolebinding", role, f"--clusterrole={role}", f"--user={USER}-{role}")
        installed("kubectl", "create", *binding, "-n", INSTALLED_IN)
    wait_until(lambda: may("view", "list") and may("edit", "list"), "aggregation of the roles", timeout_s=120)
    verbs = ("create", "patch", "delete", "list")
    assert [may("edit", verb) for verb in verbs] == [True, True, True, True]
    assert [may("view", verb) for verb in verbs] == [False, False, False, True]
