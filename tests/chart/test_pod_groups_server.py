"""PodGroups of a real scheduler, an alpha of Kubernetes 1.36, by the operator with the very rights of the chart."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hulk_lab import kwok, up
from hulk_lab.processes import wait_until
from hulk_lab.spec import KwokSpec, LabSpec
from hulk_operator.reconcile.steps.start_failures import _WAITS_FOR_GROUP as WAITS
from lab_names import lab_name
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

pytestmark = [pytest.mark.controlplane, pytest.mark.whole]  # a control plane of its own

TENANT, JOB, FENCE = "research", "gang", {"app": "bank"}
NODES = KwokSpec(nodes=2, regions=1, accelerators=1)
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": FENCE}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


@pytest.fixture(scope="module")
def lab() -> Iterator[up.Lab]:
    """A control plane whose API server has PodGroups and whose scheduler keeps to them."""
    spec = LabSpec(name=lab_name("pg"), kwok=NODES, pod_groups=True)
    try:
        yield up.up(spec)
    finally:
        up.down(spec.name)


@pytest.fixture(scope="module")
def admin(lab: up.Lab) -> Run:
    """The administrator of a cluster with the chart, whose jobs have PodGroups."""
    run = administrator(lab.control.kubeconfig)
    release = ("install", "hulk", str(CHART), "-n", INSTALLED_IN, "--create-namespace")
    run("helm", *release, "--set", "podGroups.enabled=true")
    run("kubectl", "wait", "--for=condition=Established", "crd/hulkjobs.hulk.dev", "--timeout=30s")
    run("kubectl", "create", "namespace", TENANT)
    return run


def job() -> Manifest:
    """Two workers, each on a node where no pod of the bank is: a rule that the planner does not know."""
    found: Manifest = yaml.safe_load((CHART.parents[1] / "examples/hulkjob.yaml").read_text())
    found["metadata"] = {"name": JOB, "namespace": TENANT}
    found["spec"]["workers"] = {"min": 2, "max": 2}
    found["spec"]["placement"] = {"allowUnknownLinks": True}
    found["spec"]["template"]["spec"]["affinity"] = APART
    del found["spec"]["checkpoint"]
    return found


def stranger(node: str) -> Manifest:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "bank"}], "tolerations": [{"operator": "Exists"}]}
    metadata = {"name": "bank", "namespace": TENANT, "labels": FENCE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_gang_is_bound_as_a_whole_or_not_at_all(admin: Run, lab: up.Lab, tmp_path: Path) -> None:
    def of(kind: str, *flags: str) -> list[Manifest]:
        listing = json.loads(admin("kubectl", "get", kind, "-n", TENANT, "-o", "json", *flags).stdout)
        return list(listing["items"])

    def groups() -> dict[str, int]:
        specs = {one["metadata"]["name"]: one["spec"] for one in of("podgroups")}
        return {name: spec["schedulingPolicy"]["gang"]["minCount"] for name, spec in specs.items()}

    def nodes() -> list[str]:
        return sorted(pod["spec"].get("nodeName", "") for pod in of("pods", "-l", f"hulk.dev/job={JOB}"))

    def words() -> list[str]:
        """Why each pod is not bound."""
        conditions = [pod.get("status", {}).get("conditions", []) for pod in of("pods", "-l", f"hulk.dev/job={JOB}")]
        return [str(one.get("message")) for found in conditions for one in found if one["type"] == "PodScheduled"]

    def condition(objects: str, kind: str) -> str:
        """Of all objects, each one's status of a condition; `-` where it has none."""
        conditions = [
            {one["type"]: one for one in found.get("status", {}).get("conditions", [])} for found in of(objects)
        ]
        return " ".join(str(found[kind]["status"]) if kind in found else "-" for found in conditions)

    def patch(spec: Manifest) -> None:
        admin("kubectl", "patch", "hulkjob", JOB, "-n", TENANT, "--type=merge", "-p", json.dumps({"spec": spec}))

    def until(true: Callable[[], object], what: str) -> None:
        wait_until(true, what, timeout_s=PATIENCE_S, log=log)

    log, own = tmp_path / "log", operators_kubeconfig(admin, lab.control.kubeconfig, tmp_path)
    free, taken = kwok.add_nodes(lab.control, NODES)
    with operator_process(own, log, HULK_POD_GROUPS="true"):
        admin("kubectl", "create", "-f", "-", stdin=json.dumps(stranger(taken)))
        admin("kubectl", "create", "-f", "-", stdin=json.dumps(job()))
        until(lambda: condition("podgroups", "PodGroupScheduled") == "False", "the scheduler's word")
        assert groups() == {f"{JOB}-1": 2}
        assert nodes() == ["", ""], "the pod that fits waits for the other"
        until(lambda: [WAITS in why for why in words()].count(True) == 1, "what is said of the pod that fits")
        admin("kubectl", "delete", "pod", "bank", "-n", TENANT, "--force")
        until(lambda: condition("hulkjobs", "Deployed") == "True", "the gang")
        assert nodes() == sorted([free, taken])
        assert condition("podgroups", "PodGroupScheduled") == "True"

        patch({"workers": {"min": 1, "max": 1}})
        until(lambda: len(nodes()) == 1, "the smaller gang")
        (old,) = of("podgroups")
        assert "deletionTimestamp" in old["metadata"], "it goes with the pod that stays"
        patch({"suspend": True})
        until(lambda: groups() == {}, "the end of the group")
        patch({"suspend": False})
        until(lambda: groups() == {f"{JOB}-3": 1}, "the next attempt's")
        until(lambda: condition("hulkjobs", "Deployed") == "True", "the next attempt")
        admin("kubectl", "delete", "hulkjob", JOB, "-n", TENANT)
        until(lambda: groups() == {}, "the end of the job's")
        assert [line for line in log.read_text().splitlines() if "forbidden" in line.lower()] == []


def test_no_group_of_others_is_made_with_the_operators_token(admin: Run, lab: up.Lab, tmp_path: Path) -> None:
    thief = administrator(operators_kubeconfig(admin, lab.control.kubeconfig, tmp_path))
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "bank", "namespace": TENANT},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    done = thief("kubectl", "create", "--validate=false", "-f", "-", stdin=json.dumps(body), check=False)
    assert "only what is labelled as Hulk's and owned by a HulkJob" in done.stderr
