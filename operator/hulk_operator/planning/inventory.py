"""The cluster as one planning pass sees it: read once, all from about the same moment."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hulk_placement.topology import Link, Pair, Topology
from hulk_placement.workload import Workload
from pydantic import ValidationError

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkTopology, HulkTopologySpec, NodeProfile
from hulk_operator.cluster import (
    CONFIG_MAPS,
    HULK_TOPOLOGIES,
    NODE_PROFILES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Cluster,
    Forbidden,
    NotFound,
    Object,
)
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.topology import Room
from hulk_operator.inputs.workloads import (
    Situation,
    UnusableJobError,
    model_reference,
    to_model,
    to_workload,
    with_measured_speeds,
)
from hulk_operator.planning.reservations import Held, unmet_claims
from hulk_operator.probing.links import accept, measured

logger = logging.getLogger(__name__)

LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is free, what the links are, what is declared, how fast nodes showed to be."""

    room: Room
    links: Mapping[Pair, Link]
    declared: HulkTopologySpec | None
    profiles: Mapping[str, NodeProfile]

    def topology(self, resource: str) -> Topology:
        """The planner's topology for one kind of accelerator."""
        return inputs.topology(self.room, resource, self.links, self.declared)


class Reader:
    """Reads inventories, and the parts of jobs that are objects of their own. `namespace`: single-namespace mode."""

    def __init__(self, cluster: Cluster, namespace: str | None = None) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def inventory(self, held: Sequence[Held], now: datetime) -> Inventory:
        """The cluster with everything in `held` taken.

        `held` was collected before this reads the pods, so that a plan in force counts by itself or by its pods, and
        one that was given up meanwhile at worst twice.
        """
        nodes, pods, profiles, declared = await asyncio.gather(
            self._cluster.list(NODES), self._pods(), self._profiles(), self._declared()
        )
        left = inputs.room(nodes.items, pods, unmet_claims(held, pods))
        believed = accept(profiles.values(), left.nodes.keys(), now).links
        regions = {machine: _region(node) for machine, node in left.nodes.items()}
        return Inventory(left, measured(believed, regions, now), declared, profiles)

    async def workload(self, job: HulkJob, inventory: Inventory, now: datetime) -> Workload:
        """The planner's workload; UnusableJobError when the job cannot be planned as it is."""
        spec = job.spec
        text = await self._model_text(job)
        avoided = (node.name for node in job.status.avoided_nodes if node.until > now)
        situation = Situation(
            attempt=job.status.attempt + 1,
            candidates=_candidates(job, inventory.room, avoided),
            priority=await self._priority(spec.priority_class_name),
            allowed_regions=inputs.allowed_regions(inventory.declared, job.metadata.namespace or ""),
        )
        workload = to_workload(job, to_model(spec, text), situation)
        return with_measured_speeds(workload, inventory.profiles, inputs.products(inventory.room))

    async def _pods(self) -> tuple[Object, ...]:
        """Every pod that may hold resources; in single-namespace mode those that may be seen."""
        try:
            return (await self._cluster.list(PODS, fields=LIVE_PODS)).items
        except Forbidden:
            if self._namespace is None:
                raise
            return (await self._cluster.list(PODS, self._namespace, fields=LIVE_PODS)).items

    async def _profiles(self) -> dict[str, NodeProfile]:
        listing = await self._cluster.list(NODE_PROFILES)
        found = (_readable(item) for item in listing.items)
        return {profile.metadata.name: profile for profile in found if profile is not None}

    async def _declared(self) -> HulkTopologySpec | None:
        try:
            found = await self._cluster.get(HULK_TOPOLOGIES, names.TOPOLOGY_NAME)
        except NotFound:
            return None
        return HulkTopology.model_validate(found).spec

    async def _model_text(self, job: HulkJob) -> str | None:
        reference = model_reference(job.spec)
        if reference is None:
            return None
        try:
            found = await self._cluster.get(CONFIG_MAPS, reference.config_map, job.metadata.namespace)
        except NotFound as error:
            raise UnusableJobError("ModelNotFound", f"The model cannot be read: {error.message}.") from error
        text: str | None = (found.get("data") or {}).get(reference.key)
        if text is None:
            message = f"The model cannot be read: ConfigMap {reference.config_map} has no key {reference.key}."
            raise UnusableJobError("ModelNotFound", message)
        return text

    async def _priority(self, name: str | None) -> int:
        if name is None:
            return 0
        try:
            return int((await self._cluster.get(PRIORITY_CLASSES, name))["value"])
        except NotFound as error:
            raise UnusableJobError("PriorityClassNotFound", f"{error.message}.") from error


def _candidates(job: HulkJob, room: Room, avoided: Iterable[str]) -> dict[str, int]:
    """The nodes that take the job's pods. Most of a pod template is unchecked until the API server gets a pod of it."""
    workers, spec = job.spec.workers, job.spec.template.pod_spec()
    try:
        return inputs.candidates(room, spec, workers.resource_name, avoided, workers.accelerators_per_worker)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"The pod template cannot be used: {type(error).__name__}: {error}."
        raise UnusableJobError("InvalidTemplate", message) from error


def _readable(item: Object) -> NodeProfile | None:
    """A profile; None for one that another version of the schema let through: the planner then knows less."""
    try:
        return NodeProfile.model_validate(item)
    except ValidationError as error:
        logger.warning("NodeProfile %s is not readable: %s", item["metadata"]["name"], error)
        return None


def _region(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    return labels.get(names.NODE_REGION) or names.UNKNOWN_REGION
