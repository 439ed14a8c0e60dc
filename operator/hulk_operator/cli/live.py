"""Reads from the cluster what the commands need. Read-only: nothing here writes."""

import base64
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from hulk_placement import wire
from hulk_placement.plan import Plan
from hulk_placement.workload import Workload

from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob, HulkSweep, HulkTopologySpec
from hulk_operator.cli.output import note
from hulk_operator.cli.planning import plan_together, refused
from hulk_operator.cli.reports import PlanReport
from hulk_operator.cluster import (
    CONFIG_MAPS,
    HULK_JOBS,
    HULK_SWEEPS,
    PODS,
    ApiCluster,
    Cluster,
    Forbidden,
    NotFound,
    connect,
    namespace_of,
)
from hulk_operator.inputs.places import UnusableJobError
from hulk_operator.planning.inventory import Inventory, Reader, Texts
from hulk_operator.planning.reservations import Held
from hulk_operator.status import finished, holds


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
        """Open it."""
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


async def inventory(cluster: Cluster) -> Inventory:
    """What the cluster's nodes offer and what is known of their links, with what its pods take."""
    return await Reader(cluster, unseen=_pods_unseen).inventory((), datetime.now(UTC))


def _pods_unseen(error: Forbidden) -> None:
    """Who may see the topology need not see everyone's pods: what is free is then not known, the links are."""
    note(f"what pods hold is not known, every accelerator counts as free: {error.message}")


async def job(cluster: Cluster, namespace: str, name: str) -> HulkJob:
    """One job; NotFound when there is none."""
    return HulkJob.model_validate(await cluster.get(HULK_JOBS, name, namespace))


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


async def full_plan(cluster: Cluster, found: HulkJob) -> tuple[Plan, tuple[str, ...]] | None:
    """The plan of the job's last attempt and its reasons; None without one, or when it is gone already."""
    if found.status.plan is None:
        return None
    try:
        stored = await cluster.get(CONFIG_MAPS, found.status.plan.name, found.metadata.namespace)
    except NotFound:
        return None
    plan, _ = wire.decode(base64.b64decode(stored["binaryData"][names.PLAN_KEY]))
    return plan, tuple((stored.get("data") or {}).get(names.PLAN_WHY_KEY, "").splitlines())


async def plan_from_cluster(
    cluster: Cluster, wanted: Sequence[HulkJob], texts: Texts, declared: HulkTopologySpec | None
) -> tuple[PlanReport, ...]:
    """Plans of the jobs on what the cluster has free now, beside everything else that runs. Creates nothing.

    A job that runs already is planned anew, as if it held nothing. `declared` stands for the cluster's own HulkTopology
    where it is given; `texts` before the cluster's ConfigMaps.
    """
    reader = Reader(cluster, texts=texts, unseen=_pods_unseen)
    keys = {one.key for one in wanted}
    seen = await reader.inventory(await _in_force(cluster, keys), datetime.now(UTC), without=keys)
    seen = replace(seen, declared=declared or seen.declared)
    workloads: dict[str, list[Workload]] = defaultdict(list)
    reports: dict[str, PlanReport] = {}
    for one in wanted:
        try:
            workloads[one.spec.workers.resource_name].append(await reader.workload(one, seen))
        except UnusableJobError as error:
            reports[one.key] = refused(one.key, error.reason, error.message)
    for resource, group in sorted(workloads.items()):
        reports |= plan_together(group, seen.topology(resource))
    return tuple(reports[one.key] for one in wanted)


async def _in_force(cluster: Cluster, without: Collection[str]) -> list[Held]:
    """Plans that hold accelerators, also those whose pods are not there yet; a note says which may not be seen."""
    held = []
    try:
        found = await jobs(cluster, None)
    except Forbidden as error:
        note(f"plans whose pods are not there yet are not known: {error.message}")
        return []
    for one in found:
        if one.key in without or not holds(one.status, ConditionType.PLANNED) or finished(one.status):
            continue
        try:
            stored = await full_plan(cluster, one)
        except Forbidden as error:
            note(f"the plan of {one.key} is not known: {error.message}")
            continue
        if stored is not None:
            held.append(Held(one, stored[0]))
    return held
