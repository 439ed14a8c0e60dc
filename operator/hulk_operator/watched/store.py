"""The newest version of every job and sweep, worker pod, node, profile and topology, and sums of all other pods.

When something happened is when it was first seen here. The times in pods and nodes are by other machines' clocks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeVar

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkSweep, HulkTopology, HulkTopologySpec, NodeProfile
from hulk_operator.cluster import Listing, Newest, Object
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.inputs.priority import NO_CLASS, PriorityClass, priority_class
from hulk_operator.inputs.resource_quotas import Quotas, ResourceQuota, is_granted, limited_classes, resource_quota
from hulk_operator.pods import Placeholder, WorkerPod, is_placeholder, is_worker, placeholder_pod, worker_pod
from hulk_operator.pods.termination_record import Farewell, farewell
from hulk_operator.watched.devices import Devices, with_devices
from hulk_operator.watched.kueue_objects import KueueObjects
from hulk_operator.watched.nodes import Node, NodeState, node_state, trimmed_node
from hulk_operator.watched.pods import ForeignPod, ForeignPods, Pod, foreign_pod
from hulk_operator.watched.profiles import Unreadable, is_news, profile
from hulk_operator.watched.snapshot import Snapshot

NO_NODE = ""

OfJob = TypeVar("OfJob", WorkerPod, Placeholder)


@dataclass(frozen=True, slots=True)
class News:
    """Who is told what: `job` the key of a job that should look at itself, `room` that another plan may be possible,
    `links` that there may be something to measure."""

    job: Callable[[str], None] = lambda key: None
    room: Callable[[], None] = lambda: None
    links: Callable[[], None] = lambda: None


HALF_RESTORED_S: Final = 30.0
"""Jobs are read anew long before: a restored lease is another operator's, as far as this one knows."""


class Store:
    """The cluster as last told. `agents_in`: the namespace of Hulk's agents."""

    def __init__(
        self, now: Callable[[], datetime] = lambda: datetime.now(UTC), agents_in: str = names.DEFAULT_NAMESPACE
    ) -> None:
        self._now = now
        self._agents_in = agents_in
        self.news = News()
        self.jobs: Newest[HulkJob] = Newest(HulkJob.model_validate)
        self._jobs_doubted_since: datetime | None = None
        self.kueue = KueueObjects(lambda key: self.news.job(key), lambda: self.news.room())
        self.sweeps: Newest[HulkSweep] = Newest(HulkSweep.model_validate)
        self.nodes: Newest[Node] = Newest(self._node, self._told_node)
        self.profiles: Newest[NodeProfile | Unreadable] = Newest(profile, self._told_profile)
        self.topologies: Newest[HulkTopology] = Newest(HulkTopology.model_validate, lambda *_: self.news.room())
        self.pods: Newest[Pod] = Newest(self._pod, self._told_pod, self._doubt_jobs)  # with the label of workers
        self._foreign = ForeignPods(lambda: self.news.room())
        self.others: Newest[ForeignPod] = Newest(self._other, self._told_other)
        self.agents: Newest[ForeignPod] = Newest(self._other, self._told_other)  # where `others` are not all
        self.devices = Devices(lambda: self.news.room())
        self.classes: Newest[PriorityClass] = Newest(priority_class, self._told_limit)
        self.sees_classes = False
        self.quotas: Newest[ResourceQuota] = Newest(resource_quota, self._told_quota)
        self._states: dict[str, NodeState] = {}
        self._pods_of: dict[str, dict[str, WorkerPod]] = {}  # by job, then by the pod's key
        self._placeholders: dict[str, dict[str, Placeholder]] = {}  # by job, then by the pod's key
        self._jobs_on: dict[str, dict[str, str]] = {}  # by node, then by the pod's key
        self._farewells: dict[str, dict[str, Farewell]] = {}  # by job and its uid; kept when the pod is gone

    @property
    def is_half_restored(self) -> bool:
        """Whether pods are a restored backup's, and jobs perhaps not yet: what one says of the other is false.

        For a while at most.
        """
        since = self._jobs_doubted_since
        return since is not None and self._now() - since < timedelta(seconds=HALF_RESTORED_S)

    def believe_jobs(self, jobs: Listing) -> None:
        """All jobs, read after everything else."""
        self.jobs.replace(jobs)
        self._jobs_doubted_since = None

    def _doubt_jobs(self) -> None:
        self._jobs_doubted_since = self._now()

    def job(self, key: str) -> HulkJob | None:
        """The job of that key."""
        return self.jobs.get(key)

    def all_jobs(self) -> Iterator[HulkJob]:
        """Every job, also those that have ended."""
        return self.jobs.values()

    def pods_of(self, key: str) -> tuple[WorkerPod, ...]:
        """All known pods that carry the job's name, of a deleted job of that name as well."""
        return tuple(self._pods_of.get(key, {}).values())

    def placeholders_of(self, key: str) -> tuple[Placeholder, ...]:
        """Pods that ask for nodes in the job's name, of a deleted job of that name as well."""
        return tuple(self._placeholders.get(key, {}).values())

    def num_pods_of(self, key: str) -> int:
        """How many of them there are."""
        return len(self._pods_of.get(key, ()))

    def farewell_of(self, job: HulkJob) -> Farewell | None:
        """What a worker of this very job said last when it ended."""
        return self._farewells.get(job.key, {}).get(job.metadata.uid or "")

    def forget(self, key: str) -> None:
        """There is no job of that key."""
        self._farewells.pop(key, None)

    def forget_jobs(self) -> None:
        """Nobody follows jobs and sweeps now: none is known, and the next listing is believed in all it says."""
        for kept in (self.jobs, self.sweeps):
            kept.restart()
            kept.retain((), "0")
        self._farewells.clear()

    def look_at_queued_jobs(self) -> None:
        """What is known of Kueue as a whole changed: every job of a queue looks at itself."""
        for key, job in self.jobs.items():
            if job.queue:
                self.news.job(key)

    def may_use_class(self, job: HulkJob) -> bool:
        """Whether the PriorityClass that the job names, if it does, is its namespace's to use, or puts it before nobody
        in a queue of Kueue's.
        """
        name = job.spec.priority_class_name
        if name is None:
            return True
        quotas, known = _by_namespace(self.quotas), self.classes.get(name)
        granted = is_granted(name, quotas.get(job.namespace, ()), limited_classes(quotas))
        return granted or (known is not None and known.value <= NO_CLASS.value)

    def node_states(self) -> Mapping[str, NodeState]:
        """Every node by name, also those that are told later."""
        return MappingProxyType(self._states)

    def jobs_on(self, node: str) -> set[str]:
        """Keys of the jobs that have a pod bound to a node, or one that is not bound yet: it may be planned for it."""
        return {job for name in (node, NO_NODE) for job in self._jobs_on.get(name, {}).values()}

    def snapshot(self) -> Snapshot:
        """All of it at this moment."""
        declared = self.topologies.get(names.TOPOLOGY_NAME)
        found = dict(self.profiles.items())
        offers = self.devices.offers()
        nodes = {
            name: with_devices(node, offers[name]) if name in offers else node for name, node in self.nodes.items()
        }
        return Snapshot(
            nodes=nodes,
            workers=tuple(pod for pods in self._pods_of.values() for pod in pods.values()),
            taken=_sum(_sum(self._foreign.taken, self._held_by_placeholders()), self.devices.taken()),
            agents=dict(self._foreign.agents),
            profiles={name: one for name, one in found.items() if isinstance(one, NodeProfile)},
            unreadable={name: one.message for name, one in found.items() if isinstance(one, Unreadable)},
            asked=self.devices.asked(),
            declared=declared.spec if declared else HulkTopologySpec(),
            classes=dict(self.classes.items()) if self.sees_classes else None,
            quotas=_by_namespace(self.quotas),
        )

    def _held_by_placeholders(self) -> dict[str, Amounts]:
        """What those take, by node, that give way to nobody, or to nobody in time."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for one in chain.from_iterable(pods.values() for pods in self._placeholders.values()):
            if self._holds_room(one):
                found[one.node].update(one.amounts)
        return dict(found)

    def _holds_room(self, one: Placeholder) -> bool:
        return bool(one.node) and not one.ended and not one.gives_way(self.jobs.get(one.job), self._now())

    def _node(self, node: Object) -> Node:
        state, before = node_state(node), self._states.get(node["metadata"]["name"])
        since = before.since if before and before.ready == state.ready else self._now()
        body = trimmed_node(node)
        return Node(body, replace(state, since=since, labels=body["metadata"]["labels"]))

    def _told_node(self, name: str, was: Node | None, now: Node | None) -> None:
        if now is None:
            self._states.pop(name, None)
        else:
            self._states[name] = now.state
        if was == now:  # a heartbeat
            return
        if was is None or now is None or was.state != now.state:
            for key in self.jobs_on(name):
                self.news.job(key)
        self.news.room()
        self.news.links()

    def _told_profile(self, _: str, was: NodeProfile | Unreadable | None, now: NodeProfile | Unreadable | None) -> None:
        if now is not None and is_news(was, now):
            self.news.room()
        self.news.links()

    def _told_limit(self, _: str, was: object, now: object) -> None:
        if was != now:
            self.news.room()

    def _told_quota(self, name: str, was: ResourceQuota | None, now: ResourceQuota | None) -> None:
        self._told_limit(name, was, now)
        if not (was and now and (was.hard, was.expressions) == (now.hard, now.expressions)):
            self.look_at_queued_jobs()  # what classes it grants

    def _pod(self, pod: Object) -> Pod:
        """Anyone who may create pods may put Hulk's labels on them: such a pod counts as any other."""
        before = self.pods.get(names.key(pod["metadata"]["namespace"], pod["metadata"]["name"]))
        if is_placeholder(pod):
            return placeholder_pod(pod, self._now(), before if isinstance(before, Placeholder) else None)
        if not is_worker(pod):
            return foreign_pod(pod, self._agents_in)
        return worker_pod(pod, self._now(), before if isinstance(before, WorkerPod) else None)

    def _told_pod(self, key: str, was: Pod | None, now: Pod | None) -> None:
        self._foreign.told(key, was, now)
        _follow(self._placeholders, key, *(one if isinstance(one, Placeholder) else None for one in (was, now)))
        _follow(self._pods_of, key, *(one if isinstance(one, WorkerPod) else None for one in (was, now)))
        if isinstance(was, WorkerPod):
            self._jobs_on[was.node].pop(key)
        if isinstance(now, WorkerPod):
            self._jobs_on.setdefault(now.node, {})[key] = now.job
            if said := farewell(now):
                of_job = self._farewells.setdefault(now.job, {})
                of_job[now.job_uid] = max(said, of_job.get(now.job_uid, said))
        for job in {one.job for one in (was, now) if isinstance(one, WorkerPod | Placeholder)}:
            self.news.job(job)
        if isinstance(was, WorkerPod) and (not isinstance(now, WorkerPod) or now.ended):
            self.news.room()
        if isinstance(was, Placeholder) and now is None and self._holds_room(was):
            self.news.room()

    def _other(self, pod: Object) -> ForeignPod:
        return foreign_pod(pod, self._agents_in)

    def _told_other(self, key: str, was: ForeignPod | None, now: ForeignPod | None) -> None:
        self._foreign.told(key, was, now)
        before, after = (one.addresses if one else frozenset() for one in (was, now))
        if before != after:
            self.news.links()


def _follow(by_job: dict[str, dict[str, OfJob]], key: str, was: OfJob | None, now: OfJob | None) -> None:
    """Keep a pod where its job's are."""
    if was is not None:
        by_job[was.job].pop(key)
        if not by_job[was.job]:
            del by_job[was.job]
    if now is not None:
        by_job.setdefault(now.job, {})[key] = now


def _by_namespace(quotas: Newest[ResourceQuota]) -> Quotas:
    found = defaultdict(list)
    for key, quota in quotas.items():
        found[names.namespace_of(key)].append(quota)
    return dict(found)


def _sum(one: Mapping[str, Amounts], other: Mapping[str, Amounts]) -> dict[str, Amounts]:
    both = {node: {**one[node], **amounts} for node, amounts in other.items() if node in one}
    for node, amounts in both.items():
        for resource, value in one[node].items():
            amounts[resource] = value + other[node].get(resource, 0)
    return {**one, **other, **both}
