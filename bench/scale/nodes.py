"""The nodes that the operator finds: eight accelerators each, in eight regions; about 11 KB each, as real ones.

That is labels of a device plugin and of feature discovery, images, conditions, managedFields. Every name, address and
uid follows from a number, so that a cluster of one size is always the same one.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Iterator
from typing import Any, Final

from bench.scale.stub.managed_fields import updated

Object = dict[str, Any]
TIME: Final = "2026-11-01T00:00:00Z"
PRODUCT: Final = "NVIDIA-H100-80GB-HBM3"
NUM_REGIONS: Final = 8
ACCELERATORS: Final = 8
BUSY_EVERY: Final = 5
"""Every fifth node runs somebody else's training on all of its accelerators."""
POOL: Final = "pool"
NODE_NET: Final = ipaddress.IPv4Address("10.0.0.0")
POD_NET: Final = ipaddress.IPv4Address("127.64.0.0")
"""Pods that kwok simulates have addresses of this machine, where workers can answer."""
_FEATURES: Final = tuple(f"feature.node.kubernetes.io/cpu-cpuid.AVX512-{number}" for number in range(28))
_IMAGES: Final = (
    "pytorch/train",
    "infra/log-collector",
    "infra/cni",
    "serving/gateway",
    "serving/llm",
    "infra/csi-driver",
)


def node_name(index: int) -> str:
    """The name of a node."""
    return f"gpu-{index:05d}"


def region(index: int) -> str:
    """Where a node is."""
    return f"region-{index % NUM_REGIONS}"


def nodes(num_nodes: int, num_pool: int) -> Iterator[Object]:
    """All nodes. The last `num_pool` that nobody else trains on are labelled as the pool of the waiting jobs."""
    free = [index for index in range(num_nodes) if not is_busy(index)]
    pool = set(free[-num_pool:]) if num_pool else set()
    return (node(index, is_pool=index in pool) for index in range(num_nodes))


def is_busy(index: int) -> bool:
    """Whether somebody else trains on all of a node."""
    return index % BUSY_EVERY == BUSY_EVERY - 1


def node(index: int, *, is_pool: bool = False) -> Object:
    """A node with eight accelerators."""
    name = node_name(index)
    amounts = {
        "cpu": "192",
        "memory": "2113363484Ki",
        "pods": "110",
        "ephemeral-storage": "3567789Mi",
        "hugepages-2Mi": "0",
    }
    amounts["nvidia.com/gpu"] = str(ACCELERATORS)
    images = [
        {
            "names": [
                f"registry.example.com/{image}@sha256:{number:064x}",
                f"registry.example.com/{image}:v{number}.{index % 7}.0",
            ],
            "sizeBytes": 10**8 + 17 * number,
        }
        for number, image in enumerate(_IMAGES * 3)
    ]
    item: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": uid("node", index),
            "creationTimestamp": TIME,
            "labels": {**_node_labels(index, name), **({POOL: "batch"} if is_pool else {})},
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"csi.example.com":"{name}"}}',
                "node.alpha.kubernetes.io/ttl": "0",
                "nvidia.com/gpu-driver-upgrade-enabled": "true",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": f"{POD_NET + 256 * index}/24", "providerID": f"example:///{name}"},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": str(NODE_NET + 1 + index)},
                {"type": "Hostname", "address": name},
            ],
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": node_conditions(TIME),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": images,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": uid("boot", index),
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.8.0-1031-generic",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.0",
                "machineID": uid("machine", index).replace("-", ""),
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": uid("system", index),
            },
        },
    }
    item["metadata"]["managedFields"] = updated(None, item, "kubelet", "status", TIME)
    return item


def node_conditions(now: str) -> list[Object]:
    """What a healthy kubelet reports; `now`: of its heartbeat."""
    rows = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    )
    keys = ("type", "status", "reason", "message")
    return [{**dict(zip(keys, row, strict=True)), "lastHeartbeatTime": now, "lastTransitionTime": TIME} for row in rows]


def _node_labels(index: int, name: str) -> dict[str, str]:
    gpu = {
        "compute.major": "9", "compute.minor": "0", "count": str(ACCELERATORS), "family": "hopper", "machine": "HGX",
        "memory": "81559", "mode": "compute", "product": PRODUCT, "replicas": "1", "sharing-strategy": "none",
    }  # fmt: skip
    return {
        **dict.fromkeys(_FEATURES, "true"),
        **{f"nvidia.com/gpu.{key}": value for key, value in gpu.items()},
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "hgx-h100-8",
        "topology.kubernetes.io/region": region(index),
        "topology.kubernetes.io/zone": f"{region(index)}-{'abc'[index // NUM_REGIONS % 3]}",
    }


def uid(kind: str, number: int) -> str:
    """Always the same for one number."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}"))


def creatable(item: Object, annotations: dict[str, str]) -> Object:
    """A node as its kubelet registers it; it reports its conditions later."""
    metadata = {"name": item["metadata"]["name"], "labels": item["metadata"]["labels"]}
    metadata["annotations"] = {**item["metadata"]["annotations"], **annotations}
    status = {key: value for key, value in item["status"].items() if key not in ("conditions", "daemonEndpoints")}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": item["spec"], "status": status}
