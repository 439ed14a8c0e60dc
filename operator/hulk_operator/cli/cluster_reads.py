"""Reads from the cluster what the commands need. Read-only: nothing here writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.cluster import (
    HULK_JOBS,
    HULK_SWEEPS,
    PODS,
    Cluster,
    Forbidden,
    NotFound,
    namespace_of,
)

if TYPE_CHECKING:
    from hulk_operator.cluster import ApiCluster


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster the user means; absent = as kubectl finds it."""

    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def namespace(self) -> str:
        """The namespace that the user is in."""
        return namespace_of(self._path, self.context)

    async def connect(self) -> ApiCluster:
        """Open it; the client is loaded here, as a plan from files needs none."""
        from hulk_operator.cluster import connect

        return await connect(self._path, context=self.context)

    @property
    def _path(self) -> str | None:
        return None if self.kubeconfig is None else str(self.kubeconfig)


@asynccontextmanager
async def cluster_of(target: Target) -> AsyncIterator[ApiCluster]:
    """The cluster that the user means, closed afterwards."""
    connected = await target.connect()
    try:
        yield connected
    finally:
        await connected.close()


async def job(cluster: Cluster, namespace: str, name: str) -> HulkJob:
    """One job; NotFound when there is none, with the namespace: the demo's, for example, is not the context's."""
    try:
        return HulkJob.model_validate(await cluster.get(HULK_JOBS, name, namespace))
    except NotFound as error:
        message = f"{error.message} in namespace {namespace} (-n takes another; `hulk status -A` lists all jobs)"
        raise NotFound(error.status, error.reason, message) from error


async def sweep(cluster: Cluster, namespace: str, name: str) -> HulkSweep | None:
    """One sweep; None when there is none, or who asks may not see sweeps."""
    try:
        return HulkSweep.model_validate(await cluster.get(HULK_SWEEPS, name, namespace))
    except (NotFound, Forbidden):
        return None


async def jobs(cluster: Cluster, namespace: str | None) -> tuple[HulkJob, ...]:
    """All jobs of a namespace, or of all namespaces."""
    found = await cluster.list(HULK_JOBS, namespace)
    return tuple(HulkJob.model_validate(item) for item in found.items)


async def sweeps(cluster: Cluster, namespace: str | None) -> tuple[HulkSweep, ...]:
    """All sweeps of a namespace, or of all; none where who asks may not see them, or the cluster knows none."""
    try:
        found = await cluster.list(HULK_SWEEPS, namespace)
    except (NotFound, Forbidden):
        return ()
    return tuple(HulkSweep.model_validate(item) for item in found.items)


async def pod_name(cluster: Cluster, found: HulkJob, worker: int) -> str:
    """The pod of one worker of the job's last attempt; NotFound when there is none."""
    labels = names.worker_labels(found.metadata.name, found.status.attempt, worker)
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = (await cluster.list(PODS, found.metadata.namespace, labels=selector)).items
    if not pods:
        raise NotFound(404, "NotFound", f"{found.key} has no pod of worker {worker}")
    name: str = pods[0]["metadata"]["name"]
    return name
