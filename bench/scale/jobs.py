"""HulkJobs, and what they need beside nodes: declared links, namespaces."""

from __future__ import annotations

from typing import Final

from hulk_operator import names

from bench.scale.nodes import ACCELERATORS, NUM_REGIONS, POOL, Object

SYSTEM: Final = "hulk-system"
"""The operator's lease and the agents' pods are here."""
NAMESPACE: Final = "bench"
NUM_WORKERS: Final = 2
WITHIN: Final = {"rttMicroseconds": 200, "bandwidthBytesPerSecond": 12_500_000_000}
BETWEEN: Final = {"rttMicroseconds": 20_000, "bandwidthBytesPerSecond": 1_000_000_000}


def topology() -> Object:
    """Declared links between all regions: a plan needs no measurement first."""
    regions = [f"region-{number}" for number in range(NUM_REGIONS)]
    links = [{"source": a, "target": b, **(WITHIN if a == b else BETWEEN)} for a in regions for b in regions]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.TOPOLOGY_KIND,
        "metadata": {"name": names.TOPOLOGY_NAME},
        "spec": {"links": links},
    }


def namespace(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def job(name: str, batch: str, *, in_pool: bool = False) -> Object:
    """A HulkJob of two whole nodes, of which all pods carry the label `batch`."""
    resources = {"requests": {"cpu": "32", "memory": "256Gi"}}
    spec: Object = {
        "containers": [{"name": "worker", "image": "registry.example.com/pytorch/train:v1", "resources": resources}]
    }
    if in_pool:
        spec["nodeSelector"] = {POOL: "batch"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "workers": {"min": NUM_WORKERS, "max": NUM_WORKERS, "acceleratorsPerWorker": ACCELERATORS},
            "model": {
                "transformer": {"layers": 24, "hidden": 2048, "heads": 16, "sequenceLength": 2048, "vocabulary": 50_257}
            },
            "training": {"globalBatch": 64, "steps": 1_000_000},
            "template": {"metadata": {"labels": {"bench": batch}}, "spec": spec},
            "runPolicy": {"startTimeoutSeconds": 600},
        },
    }
