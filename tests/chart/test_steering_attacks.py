"""Who goes first, and where: a tenant and a node that try to decide it, against the operator on a real API server.

The tenant is an editor of one namespace. The node has the rights of a kubelet: the API server lets it change its own
region label. Nodes and pods are simulated.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from hulk_lab.processes import wait_until
from rendering import CHART, PATIENCE_S, Manifest, Run, operator_process, operators_kubeconfig

pytestmark = pytest.mark.controlplane

TEAM, EVIL, TENANT = "hulk-chart-team", "hulk-chart-evil", "tenant"
REGION = "topology.kubernetes.io/region"
Of = Callable[..., Manifest]


@pytest.fixture
def admin(installed: Run) -> Iterator[Run]:
    """The administrator: two namespaces, an editor of one of them, and two PriorityClasses."""
    for namespace in (TEAM, EVIL):
        installed("kubectl", "create", "namespace", namespace)
    installed("kubectl", "create", "rolebinding", TENANT, "-n", EVIL, "--clusterrole=edit", f"--user={TENANT}")
    for name, value in (("usual", 500), ("urgent", 1000)):
        installed("kubectl", "create", "priorityclass", name, f"--value={value}")
    yield installed
    installed("kubectl", "delete", "namespace", TEAM, EVIL)
    installed("kubectl", "delete", "priorityclass", "usual", "urgent")
    installed("kubectl", "delete", "hulktopology", "cluster", "--ignore-not-found")


@pytest.fixture
def operator(installed: Run, control_plane: Path, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """operator(VARIABLE="value") runs it with its service account's token; the path of its log."""
    with ExitStack() as running:

        def start(**settings: str) -> Path:
            kubeconfig = operators_kubeconfig(installed, control_plane, tmp_path)
            running.enter_context(operator_process(kubeconfig, tmp_path / "log", **settings))
            return tmp_path / "log"

        yield start


@pytest.fixture
def of(admin: Run) -> Of:
    """of(name, namespace): a HulkJob."""

    def get(name: str, namespace: str) -> Manifest:
        found: Manifest = json.loads(admin("kubectl", "get", "hulkjob", name, "-n", namespace, "-o", "json").stdout)
        return found.get("status", {})

    return get


def num_accelerators(admin: Run) -> int:
    nodes = json.loads(admin("kubectl", "get", "nodes", "-o", "json").stdout)["items"]
    return sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in nodes)


def job(name: str, namespace: str, of_class: str, num_workers: int) -> str:
    """One that needs so many workers, of one accelerator each."""
    found: Manifest = yaml.safe_load((CHART.parents[1] / "examples/hulkjob.yaml").read_text())
    found["metadata"] = {"name": name, "namespace": namespace}
    found["spec"]["workers"] = {"min": num_workers, "max": num_workers}
    found["spec"]["training"] = {"globalBatch": num_workers, "steps": 1_000_000}
    found["spec"]["placement"] = {"allowUnknownLinks": True}
    found["spec"]["priorityClassName"] = of_class
    return json.dumps(found)


def quota(namespace: str) -> str:
    """Grants the class `urgent`."""
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]}
    spec = {"hard": {"pods": "100"}, "scopeSelector": selector}
    meta = {"name": "urgent", "namespace": namespace}
    return json.dumps({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})


def condition(status: Manifest, kind: str) -> tuple[str, str]:
    found = next((one for one in status.get("conditions", ()) if one["type"] == kind), {})
    return found.get("status", ""), found.get("reason", "")


def test_a_tenant_that_names_a_class_which_its_quota_does_not_grant_stops_nobody(
    admin: Run, of: Of, kwok_nodes: Callable[..., list[str]], operator: Callable[..., Path]
) -> None:
    kwok_nodes(2)
    num = num_accelerators(admin)
    admin("kubectl", "create", "-f", "-", stdin=quota(TEAM))
    log = operator(HULK_QUEUE_SETTLE_SECONDS="0")
    admin("kubectl", "create", "-f", "-", stdin=job("victim", TEAM, "usual", num))
    wait_until(
        lambda: condition(of("victim", TEAM), "Deployed")[0] == "True", "the victim", timeout_s=PATIENCE_S, log=log
    )

    as_tenant = ("--as", TENANT)
    refused = admin("kubectl", "create", "-f", "-", *as_tenant, stdin=quota(EVIL), check=False)
    assert "forbidden" in refused.stderr, "a tenant grants itself the class"
    admin("kubectl", "create", "-f", "-", *as_tenant, stdin=job("pushy", EVIL, "urgent", num))
    why = f"PriorityClass urgent counts for nothing here: no ResourceQuota of namespace {EVIL} grants it"
    wait_until(
        lambda: why in of("pushy", EVIL).get("queue", {}).get("message", ""),
        "a decision about the tenant's job",
        timeout_s=PATIENCE_S,
        log=log,
    )
    seen = of("victim", TEAM)
    assert (seen["attempt"], condition(seen, "Deployed")[0]) == (1, "True")

    admin("kubectl", "create", "-f", "-", stdin=quota(EVIL))
    wait_until(
        lambda: condition(of("pushy", EVIL), "Deployed")[0] == "True", "what is granted", timeout_s=PATIENCE_S, log=log
    )
    assert condition(of("victim", TEAM), "Planned") == ("False", "PreemptedByPriority")


def test_a_node_that_says_it_is_in_another_region_gets_no_pods(
    admin: Run, of: Of, kwok_nodes: Callable[..., list[str]], operator: Callable[..., Path]
) -> None:
    honest, liar = kwok_nodes(2, regions=2)
    num = num_accelerators(admin)  # of which the honest one has some
    here, there = ({"node": node, "region": node} for node in (honest, liar))  # kwok names regions as their first node
    residency = [{"namespace": TEAM, "regions": [honest]}]
    topology = {"apiVersion": "hulk.dev/v1alpha1", "kind": "HulkTopology", "metadata": {"name": "cluster"}}
    pinned = {**topology, "spec": {"residency": residency, "pinnedRegions": [here, there]}}
    admin("kubectl", "apply", "-f", "-", stdin=json.dumps(pinned))
    log = operator()
    as_node = ("--as", f"system:node:{liar}", "--as-group", "system:nodes")
    admin("kubectl", "label", "node", liar, f"{REGION}={honest}", "--overwrite", *as_node)

    admin("kubectl", "create", "-f", "-", stdin=job("resident", TEAM, "usual", num))
    told = ("get", "events", "-n", "default", f"--field-selector=involvedObject.name={liar},reason=RegionContradicted")
    wait_until(lambda: liar in admin("kubectl", *told).stdout, "the event", timeout_s=PATIENCE_S, log=log)
    wait_until(
        lambda: condition(of("resident", TEAM), "Planned") == ("False", "NotEnoughAccelerators"),
        "the refusal",
        timeout_s=PATIENCE_S,
        log=log,
    )
    assert of("resident", TEAM).get("attempt", 0) == 0

    believed = {**topology, "spec": {"residency": residency}}
    admin("kubectl", "replace", "-f", "-", stdin=json.dumps(believed))
    wait_until(
        lambda: condition(of("resident", TEAM), "Deployed")[0] == "True",
        "a plan that goes by labels alone",
        timeout_s=PATIENCE_S,
        log=log,
    )
