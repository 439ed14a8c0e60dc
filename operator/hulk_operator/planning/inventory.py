"""The cluster as one planning pass sees it: one snapshot of what the watches have told, and what is promised on it."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, starmap
from typing import Any, Final, TypeVar

from hulk_placement.fleet.quotas import Quotas
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkTopologySpec, NodeProfile, ObservedModel
from hulk_operator.cluster import (
    CONFIG_MAPS,
    PRIORITY_CLASSES,
    Cluster,
    NotFound,
    Object,
)
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.admission import admits, wishes
from hulk_operator.inputs.devices import with_claims
from hulk_operator.inputs.node import region
from hulk_operator.inputs.placement_constraints import Nodes, UnusableJobError
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.inputs.priority import NO_CLASS, PriorityClass, class_of, priority_class
from hulk_operator.inputs.region_pins import untrusted
from hulk_operator.inputs.resource_quotas import Quotas as ResourceQuotas
from hulk_operator.inputs.resource_quotas import is_granted, limited_classes
from hulk_operator.inputs.speeds import KnownSpeeds, Said, ShownSpeeds, known_speeds, said_speeds, with_speeds
from hulk_operator.inputs.topology import Claim, Room
from hulk_operator.inputs.unknown_model import measured_model, reference_speeds
from hulk_operator.inputs.workloads import (
    Situation,
    Texts,
    model_reference,
    to_model,
    to_workload,
)
from hulk_operator.kueue import Placement, as_admitted, within
from hulk_operator.planning.reservations import Held, unmet_claims
from hulk_operator.pods import WorkerPod
from hulk_operator.probing.link_validation import Accepted, accept, measured
from hulk_operator.reconcile.retained_pods import usable, waiting
from hulk_operator.watched import NodeState, Snapshot

UNUSABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a pod template that nobody has checked may raise."""


Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is free, which measured links are believed, what is declared, how fast nodes showed to be."""

    room: Room
    accepted: Accepted
    profiles: Mapping[str, NodeProfile]
    now: datetime
    declared: HulkTopologySpec = field(default_factory=HulkTopologySpec)
    workers: tuple[WorkerPod, ...] = ()  # the pods of all jobs that count as taking room
    states: Mapping[str, NodeState] = field(default_factory=dict)
    taken: Mapping[str, Amounts] = field(default_factory=dict)  # what jobs hold, by namespace: pods and claims
    classes: Mapping[str, PriorityClass] | None = None  # None: not for everyone to see
    resource_quotas: ResourceQuotas = field(default_factory=dict)
    _known: dict[Hashable, Any] = field(default_factory=dict, compare=False)  # what was made of it already

    def quotas(self, resource: str, limits: Mapping[str, int]) -> Quotas:
        """What namespaces' quotas leave of one kind of accelerator: pods count until they are gone."""
        return Quotas(limits, self.taken_of(resource))

    def taken_of(self, resource: str) -> dict[str, int]:
        """What jobs hold of one kind of accelerator, by namespace."""
        return {namespace: amounts.get(resource, 0) for namespace, amounts in self.taken.items()}

    def unheld(self, resource: str) -> Mapping[str, int]:
        """Accelerators of one kind that nobody holds, by node."""
        return self._once(("unheld", resource), lambda: inputs.unheld(self.room, resource))

    def spec_of(self, job: HulkJob) -> Object:
        """A worker's pod as the template has it, its own device claims among its requests."""
        return with_claims(job.spec.template.pod_spec(), job.namespace, self.room.asked)

    def num_free(self, resource: str, jobs: Sequence[HulkJob]) -> int:
        """Accelerators of one kind that nobody holds, on nodes that take pods of one of these jobs at least."""
        takes = frozenset[str]().union(*map(self._admitting, jobs)) - self.untrusted().keys()
        return sum(num for name, num in self.unheld(resource).items() if name in takes)

    def _admitting(self, job: HulkJob) -> frozenset[str]:
        """The nodes that take the job's pods, however much they hold already; none of a template that is unusable."""
        spec = job.spec.template.pod_spec()
        try:
            of = ("admitting", json.dumps(wishes(spec), sort_keys=True))
        except UNUSABLE:
            return frozenset()
        return self._once(of, lambda: frozenset(name for name, node in self.room.nodes.items() if _takes(node, spec)))

    def kept(self, job: HulkJob) -> Mapping[str, int]:
        """How many pods of the job wait on each node for its next plan: room that is taken for everyone else."""
        if not waiting(job, job.status):
            return {}
        own = self._once("workers", self._workers_by_job).get(job.key, ())
        return Counter(pod.node for pod in usable(job, own, self.states, self.now))

    def _workers_by_job(self) -> Mapping[str, Sequence[WorkerPod]]:
        found: dict[str, list[WorkerPod]] = defaultdict(list)
        for pod in self.workers:
            found[pod.job].append(pod)
        return found

    def products(self, resource: str) -> Mapping[str, str]:
        """The product that the resource stands for, of every node."""
        return self._once(("products", resource), lambda: inputs.products(self.room, resource))

    def untrusted(self) -> Mapping[str, tuple[str, str]]:
        """The nodes that get no new pods as their region labels are not to be believed, and why."""
        return self._once("untrusted", self._untrusted)

    def counted(self, known: PriorityClass, usual: PriorityClass, namespace: str) -> PriorityClass:
        """A class as pods of a namespace may use it. `usual`: the one of pods that name none."""
        elsewhere = self._once("limited", lambda: limited_classes(self.resource_quotas))
        granted = is_granted(known.name, self.resource_quotas.get(namespace, ()), elsewhere)
        return known if granted else known.ungranted(usual, namespace)

    def places(self, resource: str) -> Nodes:
        """Where nodes are, and what they cost."""
        return self._once(("places", resource), lambda: self._places(resource))

    def topology(self, resource: str) -> Topology:
        """The planner's topology for one kind of accelerator. With thousands of nodes it takes some 0.4 s."""
        return self._once(("topology", resource), lambda: self._topology(resource))

    def said(self, resource: str) -> Mapping[str, Said]:
        """What jobs said of nodes' speeds, by namespace."""
        return self._once(("said", resource), lambda: said_speeds(self.profiles, self.products(resource), self.now))

    def speeds(self, job: HulkJob, digest: str, shown: ShownSpeeds) -> KnownSpeeds:
        """What is known of a workload's speeds, once for a namespace's jobs that have measured nothing themselves."""
        resource, namespace = job.spec.workers.resource_name, job.namespace
        said = self.said(resource)
        if shown.speeds or job.metadata.name in self._saying(resource, namespace):
            return known_speeds(job.key, digest, said, shown)
        return self._once(("speeds", resource, namespace, digest), lambda: known_speeds(job.key, digest, said))

    def _saying(self, resource: str, namespace: str) -> frozenset[str]:
        """The jobs of a namespace that said something of nodes' speeds."""
        said = self.said(resource).get(namespace, ())
        return self._once(("saying", resource, namespace), lambda: frozenset(entry.job for _, entry in said))

    def candidates(self, spec: Object, resource: str, num_accelerators: int) -> Mapping[str, int]:
        """How many pods of a spec each admitting node holds (`inputs.candidates`), once for jobs that are alike."""
        asked = inputs.worker_amounts(spec, resource, num_accelerators)
        of = (json.dumps([wishes(spec), asked], sort_keys=True), resource, num_accelerators)
        return self._once(of, lambda: inputs.candidates(self.room, spec, resource, (), num_accelerators))

    def num_fitting(
        self, spec: Object, resource: str, num_accelerators: int, regions: Collection[str], avoided: Collection[str]
    ) -> int:
        """How many pods of a spec find room in these regions (none: in any) but on the nodes to avoid."""
        of = ("fitting", json.dumps(spec, sort_keys=True), resource, num_accelerators, *regions, "", *avoided)
        return self._once(of, lambda: self._num_fitting(spec, resource, num_accelerators, regions, avoided))

    def _num_fitting(
        self, spec: Object, resource: str, num_accelerators: int, regions: Collection[str], avoided: Collection[str]
    ) -> int:
        unheld, places = self.unheld(resource), self.places(resource).regions
        return sum(
            min(num, unheld.get(node, 0) // num_accelerators)
            for node, num in self.candidates(spec, resource, num_accelerators).items()
            if node not in avoided and (not regions or places[node] in regions)
        )

    def _places(self, resource: str) -> Nodes:
        products, prices = self.products(resource), inputs.declared_prices(self.declared)
        return Nodes(
            regions={name: region(node) for name, node in self.room.nodes.items()},
            prices={name: prices.get(product, 0.0) for name, product in products.items()},
            products=products,
        )

    def _untrusted(self) -> Mapping[str, tuple[str, str]]:
        regions = {name: region(node) for name, node in self.room.nodes.items()}
        return untrusted(regions, self.declared)

    def _topology(self, resource: str) -> Topology:
        doubted = self.untrusted()
        regions = {machine: region(node) for machine, node in self.room.nodes.items() if machine not in doubted}
        links = measured(self.accepted.links, regions, self.now)
        keeping = {name for name, profile in self.profiles.items() if profile.status.keeps_windows}
        return inputs.topology(self.room, resource, links, self.declared, keeping)

    def _once(self, of: Hashable, make: Callable[[], Made]) -> Made:
        if of not in self._known:
            self._known[of] = make()
        made: Made = self._known[of]
        return made


class Reader:
    """Reads inventories, and the parts of jobs that are objects of their own.

    `seen` answers the cluster as it is now. `texts` stand for the ConfigMaps of their names. `jobs`: those whose first
    steps may have measured the model of another one. `placements`: what Kueue admitted a job to.
    """

    def __init__(
        self,
        cluster: Cluster,
        seen: Callable[[], Awaitable[Snapshot]],
        texts: Texts | None = None,
        jobs: Callable[[], Iterable[HulkJob]] = tuple,
        placements: Callable[[HulkJob], Placement | None] = lambda job: None,
    ) -> None:
        self._cluster = cluster
        self._seen = seen
        self._texts = texts or {}
        self._jobs = jobs
        self._placements = placements

    async def inventory(self, held: Sequence[Held], now: datetime, without: Collection[str] = ()) -> Inventory:
        """The cluster with everything in `held` taken, and with nothing taken by the pods of the jobs in `without`.

        `held` was collected before this reads the pods, so that a plan in force counts by itself or by its pods, and
        one that was given up meanwhile at worst twice.
        """
        return await asyncio.to_thread(_inventory, await self._seen(), held, now, without)

    async def workload(self, job: HulkJob, inventory: Inventory, own: Mapping[str, int] | None = None) -> Workload:
        """The planner's workload; UnusableJobError when the job cannot be planned as it is.

        `own`: how many of its pods are on each node, where it runs and is planned anew all the same.
        """
        text = await self._model_text(job)
        _require_offered(job.spec.workers.resource_name, inventory.room)
        priority = (await self.priority_class(job, inventory)).value
        seen = measured_model(job, self._jobs())
        placed = self._placements(job)
        return await asyncio.to_thread(_workload, job, inventory, own, text, priority, seen, placed)

    async def _model_text(self, job: HulkJob) -> str | None:
        reference = model_reference(job.spec)
        if reference is None:
            return None
        given = self._texts.get((job.namespace, reference.config_map, reference.key))
        if given is not None:
            return given
        try:
            found = await self._cluster.get(CONFIG_MAPS, reference.config_map, job.metadata.namespace)
        except NotFound as error:
            raise UnusableJobError("ModelNotFound", f"The model cannot be read: {error.message}.") from error
        text: str | None = (found.get("data") or {}).get(reference.key)
        if text is None:
            message = f"The model cannot be read: ConfigMap {reference.config_map} has no key {reference.key}."
            raise UnusableJobError("ModelNotFound", message)
        return text

    async def priority_class(self, job: HulkJob, inventory: Inventory) -> PriorityClass:
        """The class that the job's pods get, as their namespace may use it."""
        name, classes = job.spec.priority_class_name, inventory.classes or {}
        # What the job names may be newer than what was told, or not for everyone to list.
        known = class_of(name, classes) or await self._read_class(name or "")
        return inventory.counted(known, class_of(None, classes) or NO_CLASS, job.namespace)

    async def _read_class(self, name: str) -> PriorityClass:
        try:
            return priority_class(await self._cluster.get(PRIORITY_CLASSES, name))
        except NotFound as error:
            raise UnusableJobError("PriorityClassNotFound", f"{error.message}.") from error


def _workload(
    job: HulkJob,
    inventory: Inventory,
    own: Mapping[str, int] | None,
    text: str | None,
    priority: int,
    seen: ObservedModel | None,
    placed: Placement | None,
) -> Workload:
    job = as_admitted(job, placed)
    spec, resource = job.spec, job.spec.workers.resource_name
    untrusted = inventory.untrusted()
    avoided = {node.name for node in job.status.avoided_nodes if node.until > inventory.now} | untrusted.keys()
    kept = inventory.kept(job) if own is None else own
    free = _candidates(job, inventory, avoided, kept)
    if not any(free.values()):
        _require_large_enough(job, inventory)
    if not free and untrusted:
        _require_trusted(job, inventory)
    candidates = free if placed is None else _within(placed, free, job, inventory, kept)
    situation = Situation(
        attempt=job.status.attempt + 1,
        candidates=candidates,
        kept={node: num for node, num in kept.items() if node in candidates},
        priority=priority,
        allowed_regions=inputs.allowed_regions(inventory.declared, job.metadata.namespace or ""),
        nodes=inventory.places(resource),
    )
    workload = to_workload(job, to_model(spec, text, seen), situation)
    products = inventory.products(resource)
    shown = ShownSpeeds(seen.node or "", reference_speeds(spec, seen, products)) if seen else ShownSpeeds()
    return with_speeds(workload, inventory.speeds(job, workload.digest, shown))


def _inventory(seen: Snapshot, held: Sequence[Held], now: datetime, without: Collection[str]) -> Inventory:
    """In a thread: with thousands of nodes it takes longer than the event loop may stand still."""
    workers = tuple(pod for pod in seen.workers if pod.lives and pod.job not in without)
    states = {name: node.state for name, node in seen.nodes.items()}
    claims = unmet_claims(held, workers, states, now, seen.asked)
    bound = [Claim(pod.node, pod.amounts) for pod in workers if pod.node]
    bodies = {name: node.body for name, node in seen.nodes.items()}
    left = inputs.room(bodies, chain(starmap(Claim, seen.taken.items()), bound, *claims.values()), seen.asked)
    links = accept(seen.profiles.values(), left.nodes.keys(), now)
    taken = _taken(workers, claims)
    return Inventory(left, links, seen.profiles, now, seen.declared, workers, states, taken, seen.classes, seen.quotas)


def _taken(workers: Iterable[WorkerPod], claims: Mapping[str, Iterable[Claim]]) -> dict[str, Amounts]:
    """What jobs hold by namespace: bound worker pods that have not ended, and claims of workers without one."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in workers:
        if pod.node:
            found[names.namespace_of(pod.job)].update(pod.amounts)
    for key, mine in claims.items():
        for claim in mine:
            found[names.namespace_of(key)].update(claim.amounts)
    return dict(found)


def _require_offered(resource: str, room: Room) -> None:
    """The first hour's mistake: a device plugin is missing, or the resource has another name."""
    if any(resource in ((node.get("status") or {}).get("allocatable") or {}) for node in room.nodes.values()):
        return
    raise UnusableJobError(
        "NoCandidates",
        f"None of the cluster's {len(room.nodes)} nodes offers {resource} (spec.workers.resourceName). "
        "What they offer: kubectl get nodes -o custom-columns=NODE:.metadata.name,OFFERS:.status.allocatable",
    )


def _require_large_enough(job: HulkJob, seen: Inventory) -> None:
    """What a worker's pod asks for beside accelerators must be there on one node at least, were it empty."""
    workers, spec = job.spec.workers, seen.spec_of(job)
    asked = inputs.worker_amounts(spec, workers.resource_name, workers.accelerators_per_worker)
    found = inputs.never_enough(seen.room, asked, workers.resource_name)
    if found is not None:
        raise UnusableJobError("NotEnoughResources", found)


def _candidates(job: HulkJob, seen: Inventory, avoided: Collection[str], kept: Mapping[str, int]) -> Mapping[str, int]:
    """The nodes that take the job's pods, or hold them already: a cordon keeps new pods out, and moves none.

    Most of a pod template is unchecked until the API server gets a pod of it.
    """
    workers, spec = job.spec.workers, seen.spec_of(job)
    resource, num_accelerators = workers.resource_name, workers.accelerators_per_worker
    try:
        if not kept:
            found = seen.candidates(spec, resource, num_accelerators)
            return {name: num for name, num in found.items() if name not in avoided} if avoided else found
        own = inputs.worker_amounts(spec, resource, num_accelerators)
        room = inputs.given_back(seen.room, kept, own)
        with_own = inputs.candidates(room, spec, resource, avoided, num_accelerators)
        return with_own | {node: max(count, with_own.get(node, 0)) for node, count in kept.items()}
    except UNUSABLE as error:
        message = f"The pod template cannot be used: {type(error).__name__}: {error}."
        raise UnusableJobError("InvalidTemplate", message) from error


def _require_trusted(job: HulkJob, seen: Inventory) -> None:
    """A job that only nodes would take whose region labels are not to be believed says so."""
    untrusted = seen.untrusted()
    if kept_out := _candidates(job, seen, (), {}).keys() & untrusted.keys():
        reason, message = untrusted[first := min(kept_out)]
        raise UnusableJobError(reason, f"No node that would take a worker may be used, such as {first}: {message}.")


def _within(
    placed: Placement, free: Mapping[str, int], job: HulkJob, seen: Inventory, kept: Mapping[str, int]
) -> Mapping[str, int]:
    """Of the candidates, those that Kueue admitted the job to."""
    labels = {name: state.labels for name, state in seen.states.items()}
    return within(placed, free, _num_workers_fitting(job, seen, kept), labels)


def _num_workers_fitting(job: HulkJob, seen: Inventory, kept: Mapping[str, int]) -> dict[str, int]:
    """How many of the job's workers find accelerators on each node, those that are there already among them."""
    each = job.spec.workers.accelerators_per_worker
    unheld = seen.unheld(job.spec.workers.resource_name)
    return {node: num // each + kept.get(node, 0) for node, num in unheld.items()}


def _takes(node: Object, spec: Object) -> bool:
    """Nodes take no pods of a template that cannot be used."""
    try:
        return admits(node, spec)
    except UNUSABLE:
        return False
