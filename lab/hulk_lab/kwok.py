"""Simulated nodes: kwok answers for nodes and pods that do not exist, so that hundreds fit on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hulk_lab import rbac
from hulk_lab.api import Api
from hulk_lab.builds.golang import program, share
from hulk_lab.control_plane import ControlPlane
from hulk_lab.processes import wait_until
from hulk_lab.spec import KwokSpec

PROCESS_NAME = "control-kwok"
ANNOTATION = "kwok.x-k8s.io/node"
PRODUCT = "lab-kwok"
LEASE_S = 40

_STAGES = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease")
_POD_STAGES = ("pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete")
_WRITERS = 8
_NAME = "hulk-lab:kwok"
_RIGHTS = (
    rbac.role(
        _NAME,
        rbac.rule("", "nodes", "get", "list", "watch", "patch", "update"),
        rbac.rule("", "nodes/status", "patch", "update"),
        rbac.rule("", "pods", "get", "list", "watch", "patch", "update", "delete"),
        rbac.rule("", "pods/status", "patch", "update"),
        rbac.rule("coordination.k8s.io", "leases", "get", "list", "watch", "create", "patch", "update"),
        rbac.rule("", "events", "create", "patch", "update"),
    ),
    rbac.bind(_NAME, "kwok", _NAME),
)


def start(control: ControlPlane, lease_s: int = LEASE_S) -> None:
    """Start kwok unless it runs; it answers for every node that carries its annotation.

    It renews each node's lease four times in `lease_s`.
    """
    api = control.api()
    for manifest in _RIGHTS:
        api.ensure(manifest)
    stages = [f"--config={share('kwok') / f'{stage}.yaml'}" for stage in (*_STAGES, *_POD_STAGES)]
    control.table.ensure(
        PROCESS_NAME,
        [
            program("kwok"),
            f"--kubeconfig={control.client_kubeconfig('kwok')}",
            f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
            f"--cidr={control.net.kwok_pod_cidr}",
            f"--node-lease-duration-seconds={lease_s}",
            *stages,
        ],
        env={"HOME": str(control.state)},  # it reads ~/.kwok/kwok.yaml otherwise
    )


def add_nodes(control: ControlPlane, spec: KwokSpec) -> list[str]:
    """Create the simulated nodes that are missing and wait until all are Ready; their names."""
    start(control)
    api = control.api()
    nodes = [node(i, spec) for i in range(spec.nodes)]
    present = ready_nodes(api) | {item["metadata"]["name"] for item in api.get("/api/v1/nodes")["items"]}
    missing = [manifest for manifest in nodes if manifest["metadata"]["name"] not in present]
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(lambda manifest: api.create("/api/v1/nodes", manifest), missing))
    names = [manifest["metadata"]["name"] for manifest in nodes]
    wait_ready(api, names, timeout_s=30 + spec.nodes / 20, log=control.table.log(PROCESS_NAME))
    return names


def remove_nodes(control: ControlPlane) -> None:
    """Delete every simulated node."""
    api = control.api()
    names = [item["metadata"]["name"] for item in api.get("/api/v1/nodes", labelSelector="type=kwok")["items"]]
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(lambda name: api.delete(f"/api/v1/nodes/{name}"), names))


def node(index: int, spec: KwokSpec) -> dict[str, Any]:
    """The manifest of simulated node `index`."""
    region = f"kwok-{index % spec.regions}"
    resources = {
        "cpu": str(spec.cpu),
        "memory": f"{spec.memory_gib}Gi",
        "pods": "110",
        "nvidia.com/gpu": str(spec.accelerators),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"kwok-{index}",
            "annotations": {ANNOTATION: "fake"},
            "labels": {
                "type": "kwok",
                "kubernetes.io/hostname": f"kwok-{index}",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": region,
                "topology.kubernetes.io/zone": f"{region}-a",
                "nvidia.com/gpu.product": PRODUCT,
            },
        },
        "status": {"capacity": resources, "allocatable": resources},
    }


def ready_nodes(api: Api) -> set[str]:
    """Names of the nodes whose Ready condition is True."""
    return {
        item["metadata"]["name"]
        for item in api.get("/api/v1/nodes", resourceVersion="0")["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", ()))
    }


def wait_ready(api: Api, names: Sequence[str], *, timeout_s: float, log: Path | None = None) -> None:
    """Wait until all these nodes are Ready."""
    wanted = set(names)
    wait_until(lambda: wanted <= ready_nodes(api), f"{len(wanted)} nodes Ready", timeout_s=timeout_s, log=log)
