"""Hulk's kinds on a test's API server: applied once for each server, because the API server compiles their schemas."""

import asyncio
from pathlib import Path

from hulk_operator.api.crds import crds
from hulk_operator.cluster import ApiCluster, ApiResource

CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
_DEADLINE_S = 60
_SERVED: set[Path] = set()


async def serve_kinds(cluster: ApiCluster, kubeconfig: Path) -> None:
    """Apply this checkout's CRDs to the server of a kubeconfig and wait until they are established."""
    if kubeconfig in _SERVED:
        return
    for crd in crds():
        await cluster.apply(CRDS, crd["metadata"]["name"], None, crd, field_manager="test")
    async with asyncio.timeout(_DEADLINE_S):
        while not await _established(cluster):
            await asyncio.sleep(0.1)
    _SERVED.add(kubeconfig)


async def _established(cluster: ApiCluster) -> bool:
    for crd in crds():
        status = (await cluster.get(CRDS, crd["metadata"]["name"])).get("status", {})
        conditions = status.get("conditions") or ()
        if not any(found["type"] == "Established" and found["status"] == "True" for found in conditions):
            return False
    return True
