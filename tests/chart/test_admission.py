"""The chart on a real API server: it is accepted whole, and an agent's own token can lie about no other node.

Tokens are the API server's own, bound to a pod on a node as an agent's is.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import INSTALLED_IN, Run

pytestmark = pytest.mark.controlplane

MINE, OTHER = "admission-a", "admission-b"
LINK = {"target": OTHER, "underLoad": False, "time": "2026-01-01T00:00:00Z", "rttP50Microseconds": 900, "samples": 3}
LOADED = {**LINK, "underLoad": True, "rttP50Microseconds": 5000}
SPEED = {
    "product": "lab-cpu",
    "workload": "0" * 16,
    "flopsPerSecond": 1_000_000,
    "time": "2026-01-01T00:00:00Z",
    "samples": 1,
}
CONTENT_TYPES = {"apply": "application/apply-patch+yaml", "merge": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def admin(installed: Run) -> Iterator[Run]:
    """The administrator of a cluster with the chart, two profiles and a pod for each."""
    for name in (MINE, OTHER):
        installed("kubectl", "apply", "-f", "-", stdin=json.dumps(profile(name)))
        installed("kubectl", "apply", "-f", "-", stdin=json.dumps(agent_pod(name)))
    try:
        yield installed
    finally:
        installed("kubectl", "delete", "nodeprofile", MINE, OTHER, "--ignore-not-found")


@pytest.fixture(scope="module")
def agent(admin: Run, control_plane: Path) -> Callable[..., str]:
    """agent(status, ...): patch a profile's status with a pod's token; the refusal's message, "" when accepted.

    name: whose profile; pod: whose token ("" = a token of no pod); kind: "apply" as the agent does, or "merge".
    """
    cluster = yaml.safe_load(control_plane.read_text())["clusters"][0]["cluster"]
    authority = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())

    def patch(
        status: dict[str, Any], name: str = MINE, pod: str = MINE, kind: str = "merge", subresource: str = "/status"
    ) -> str:
        bound = ["--bound-object-kind", "Pod", "--bound-object-name", pod] if pod else []
        token = admin("kubectl", "create", "token", "hulk-agent", "-n", INSTALLED_IN, *bound).stdout.strip()
        url = f"{cluster['server']}/apis/hulk.dev/v1alpha1/nodeprofiles/{name}{subresource}?fieldManager=hulk-agent"
        url += "&force=true" if kind == "apply" else ""
        body = {"apiVersion": "hulk.dev/v1alpha1", "kind": "NodeProfile", "status": status}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": CONTENT_TYPES[kind]}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PATCH")
        try:
            with urllib.request.urlopen(request, context=authority, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            return str(json.load(error)["message"])

    return patch


def profile(name: str) -> dict[str, Any]:
    return {"apiVersion": "hulk.dev/v1alpha1", "kind": "NodeProfile", "metadata": {"name": name}, "spec": {}}


def agent_pod(node: str) -> dict[str, Any]:
    """A pod on a node, for tokens to be bound to; the node itself need not exist."""
    spec = {
        "nodeName": node,
        "serviceAccountName": "hulk-agent",
        "containers": [{"name": "agent", "image": "none"}],
        "tolerations": [{"operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": node, "namespace": INSTALLED_IN}, "spec": spec}


@pytest.fixture
def measured(admin: Run) -> None:
    """The profile as an operator left it: one speed, one link under load."""
    status = json.dumps({"status": {"accelerators": [SPEED], "links": [LOADED]}})
    admin("kubectl", "patch", "nodeprofile", MINE, "--subresource=status", "--type=merge", "-p", status)


@pytest.mark.usefixtures("measured")
def test_an_agent_writes_its_own_measurements(admin: Run, agent: Callable[..., str]) -> None:
    mine = {"lastId": 7, "echo": {"address": "10.0.0.1", "port": 9403}, "agentVersion": "0.1.0"}
    assert agent({**mine, "links": [LINK]}, kind="apply") == ""
    links = json.loads(admin("kubectl", "get", "nodeprofile", MINE, "-o", "json").stdout)["status"]["links"]
    assert sorted(link["rttP50Microseconds"] for link in links) == [900, 5000]
    assert agent({**mine, "links": [LOADED, LINK]}) == ""


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"accelerators": [{**SPEED, "flopsPerSecond": 10**15}]}, "status.accelerators is written by the operator"),
        ({"accelerators": None}, "status.accelerators is written by the operator"),
        ({"links": [{**LOADED, "rttP50Microseconds": 1}]}, "links under load are written by the operator"),
        ({"links": [LINK]}, "links under load are written by the operator"),
    ],
    ids=["a faster accelerator", "no accelerator", "a faster link under load", "no link under load"],
)
def test_an_agent_leaves_the_operators_fields(agent: Callable[..., str], status: Any, expected: str) -> None:
    assert expected in agent(status)


def test_an_agent_leaves_other_nodes_alone(agent: Callable[..., str]) -> None:
    assert f"the agent of node {MINE} may not write the NodeProfile of {OTHER}" in agent({"lastId": 1}, name=OTHER)


def test_a_token_without_a_node_is_denied(agent: Callable[..., str]) -> None:
    assert "this token names no node" in agent({"lastId": 1}, pod="")


def test_an_agent_cannot_order_measurements(agent: Callable[..., str]) -> None:
    assert 'cannot patch resource "nodeprofiles" in API group "hulk.dev"' in agent({}, subresource="")


def test_other_users_are_not_the_policys_business(admin: Run) -> None:
    status = json.dumps({"status": {"lastId": 3}})
    admin("kubectl", "patch", "nodeprofile", OTHER, "--subresource=status", "--type=merge", "-p", status)


def test_the_policy_has_no_type_warning(admin: Run) -> None:
    policy = json.loads(admin("kubectl", "get", "validatingadmissionpolicy", "hulk-agent", "-o", "json").stdout)
    assert policy.get("status", {}).get("typeChecking", {}) == {}
