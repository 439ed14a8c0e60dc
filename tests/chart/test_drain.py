"""A drain of the operators' nodes on a real API server: it ends, and takes one operator at a time."""

import json
from collections.abc import Callable

import pytest
from hulk_lab.processes import wait_until
from rendering import CHART, INSTALLED_IN, Manifest, Run

pytestmark = pytest.mark.controlplane

OPERATORS = "app.kubernetes.io/component=operator"
PATIENCE_S = 120


def operators(installed: Run) -> list[Manifest]:
    """Those that are not on their way out."""
    found = json.loads(installed("kubectl", "get", "pods", "-n", INSTALLED_IN, f"-l{OPERATORS}", "-o", "json").stdout)
    return [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]


def nodes(installed: Run) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in operators(installed)}


def test_every_node_can_be_drained(installed: Run, kwok_nodes: Callable[..., list[str]]) -> None:
    def ready() -> int:
        found = installed("kubectl", "get", "deployment", "hulk-operator", "-n", INSTALLED_IN, "-o", "json").stdout
        return int(json.loads(found)["status"].get("readyReplicas", 0))

    def allowed() -> int:
        found = installed("kubectl", "get", "pdb", "hulk-operator", "-n", INSTALLED_IN, "-o", "json").stdout
        return int(json.loads(found)["status"].get("disruptionsAllowed", 0))

    names = kwok_nodes(3)
    installed("kubectl", "rollout", "restart", "deployment/hulk-operator", "-n", INSTALLED_IN)
    rollout = ("kubectl", "rollout", "status", "deployment/hulk-operator", "-n", INSTALLED_IN)
    installed(*rollout, f"--timeout={PATIENCE_S}s")
    assert len(nodes(installed)) == 2  # spread, as each node has room for both
    for name in sorted(nodes(installed)):
        before = {pod["metadata"]["uid"] for pod in operators(installed)}
        installed("kubectl", "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={PATIENCE_S}s")
        wait_until(lambda: ready() == 2, "another operator", timeout_s=PATIENCE_S)
        assert name not in nodes(installed)
        assert len(before - {pod["metadata"]["uid"] for pod in operators(installed)}) == 1
    assert len(names) - len(nodes(installed)) == 2  # both are where room was left
    wait_until(lambda: allowed() == 1, "room in the budget", timeout_s=PATIENCE_S)
    installed("kubectl", "uncordon", *names)
    (last,) = nodes(installed)
    installed("kubectl", "drain", last, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={PATIENCE_S}s")
    wait_until(lambda: ready() == 2, "both operators elsewhere", timeout_s=PATIENCE_S)
    assert last not in nodes(installed)


def test_one_operator_alone_does_not_hold_up_a_drain(installed: Run, kwok_nodes: Callable[..., list[str]]) -> None:
    installed("helm", "upgrade", "hulk", str(CHART), "-n", INSTALLED_IN, "--set", "operator.replicas=1")
    names = kwok_nodes(1)
    wait_until(lambda: nodes(installed) == set(names), "the operator's start", timeout_s=PATIENCE_S)
    drain = ("kubectl", "drain", *names, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={PATIENCE_S}s")
    installed(*drain)
    wait_until(lambda: nodes(installed) == {""}, "an operator that waits for a node", timeout_s=PATIENCE_S)
