"""Reads from the cluster what the commands need. Read-only: nothing here writes."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from hulk_placement import wire
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology

from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob, HulkTopology, HulkTopologySpec, NodeProfile
from hulk_operator.cli.planning import Texts, plan_together, refused, workload_of
from hulk_operator.cli.reports import PlanReport, TopologyReport
from hulk_operator.cli.topology import topology_report
from hulk_operator.cluster import (
    CONFIG_MAPS,
    HULK_JOBS,
    HULK_TOPOLOGIES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ApiCluster,
    Cluster,
    NotFound,
    connect,
)
from hulk_operator.inputs.topology import Room, allowed_regions, candidates, products, room, topology
from hulk_operator.inputs.workloads import Situation, UnusableJobError, model_reference, with_measured_speeds
from hulk_operator.planning.inventory import Inventory, Reader
from hulk_operator.planning.reservations import Held
from hulk_operator.probing.links import Accepted, accept, measured
from hulk_operator.status import finished, holds


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the cluster's nodes offer and what is known of their links, at one moment."""

    room: Room
    accepted: Accepted
    declared: HulkTopologySpec
    now: datetime

    def topology(self, resource: str) -> Topology:
        """The planner's topology over the nodes that offer a resource."""
        region_of = {machine.name: machine.region for machine in self._bare(resource).machines}
        links = measured(self.accepted.links, region_of, self.now)
        return topology(self.room, resource, links, self.declared)

    def matrix(self, resource: str) -> TopologyReport:
        """The matrix of the nodes that offer a resource."""
        machines = self._bare(resource).machines
        return topology_report(machines, self.accepted, self.declared.links, self.now)

    def _bare(self, resource: str) -> Topology:
        return topology(self.room, resource, {})


@asynccontextmanager
async def cluster_of(kubeconfig: Path | None) -> AsyncIterator[ApiCluster]:
    """The cluster that the user means, closed afterwards."""
    connected = await connect(None if kubeconfig is None else str(kubeconfig))
    try:
        yield connected
    finally:
        await connected.close()


async def snapshot(cluster: Cluster) -> Snapshot:
    """Read nodes, pods, profiles and declarations."""
    nodes, pods, profiles, declared = await asyncio.gather(
        cluster.list(NODES), cluster.list(PODS), cluster.list(NODE_PROFILES), _declared(cluster)
    )
    now = datetime.now(UTC)
    parsed = [NodeProfile.model_validate(item) for item in profiles.items]
    node_names = {node["metadata"]["name"] for node in nodes.items}
    return Snapshot(
        room=room(nodes.items, pods.items),
        accepted=accept(parsed, node_names, now),
        declared=declared,
        now=now,
    )


async def job(cluster: Cluster, namespace: str, name: str) -> HulkJob:
    """One job; NotFound when there is none."""
    return HulkJob.model_validate(await cluster.get(HULK_JOBS, name, namespace))


async def jobs(cluster: Cluster, namespace: str | None) -> tuple[HulkJob, ...]:
    """All jobs of a namespace, or of all namespaces."""
    found = await cluster.list(HULK_JOBS, namespace)
    return tuple(HulkJob.model_validate(item) for item in found.items)


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
    """Plans of the jobs on what the cluster has free now, beside everything that runs. Creates nothing.

    `declared` stands for the cluster's own HulkTopology where it is given; `texts` before the cluster's ConfigMaps.
    """
    seen = await Reader(cluster).inventory(await _in_force(cluster), datetime.now(UTC))
    seen = replace(seen, declared=declared or seen.declared)
    reports: dict[str, PlanReport] = {}
    for resource in sorted({one.spec.workers.resource_name for one in wanted}):
        workloads = []
        for one in wanted:
            if one.spec.workers.resource_name != resource:
                continue
            try:
                workload = workload_of(one, await _situation(cluster, one, seen), await _texts(cluster, one, texts))
                workloads.append(with_measured_speeds(workload, seen.profiles, products(seen.room)))
            except UnusableJobError as error:
                reports[one.key] = refused(one.key, error.reason, error.message)
        reports |= plan_together(workloads, seen.topology(resource))
    return tuple(reports[one.key] for one in wanted)


async def _in_force(cluster: Cluster) -> list[Held]:
    """Plans that hold accelerators, also those whose pods are not there yet."""
    held = []
    for one in await jobs(cluster, None):
        if holds(one.status, ConditionType.PLANNED) and not finished(one.status):
            stored = await full_plan(cluster, one)
            if stored is not None:
                held.append(Held(one, stored[0]))
    return held


async def _situation(cluster: Cluster, one: HulkJob, seen: Inventory) -> Situation:
    return Situation(
        attempt=1,
        candidates=candidates(seen.room, one.spec.template.pod_spec(), one.spec.workers.resource_name),
        priority=await _priority(cluster, one.spec.priority_class_name),
        allowed_regions=allowed_regions(seen.declared, one.metadata.namespace or "default"),
    )


async def _priority(cluster: Cluster, name: str | None) -> int:
    if name is None:
        return 0
    try:
        return int((await cluster.get(PRIORITY_CLASSES, name)).get("value", 0))
    except NotFound as error:
        raise UnusableJobError("PriorityClassNotFound", f"There is no PriorityClass {name}.") from error


async def _texts(cluster: Cluster, one: HulkJob, known: Texts) -> Texts:
    """What the job's ConfigMap holds, where its model is in one that is not `known` and exists."""
    reference = model_reference(one.spec)
    if reference is None or (reference.config_map, reference.key) in known:
        return known
    try:
        stored = await cluster.get(CONFIG_MAPS, reference.config_map, one.metadata.namespace or "default")
    except NotFound:
        return known
    return {(reference.config_map, key): text for key, text in (stored.get("data") or {}).items()}


async def _declared(cluster: Cluster) -> HulkTopologySpec:
    try:
        return HulkTopology.model_validate(await cluster.get(HULK_TOPOLOGIES, names.TOPOLOGY_NAME)).spec
    except NotFound:
        return HulkTopologySpec()
