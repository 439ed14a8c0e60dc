"""The planning pass among many jobs: asks the fleet's policy who has which workers, and keeps its orders.

Jobs of one kind of accelerator compete. The policy sees all machines, with what contestants hold counted as free; what
a grant says is planned on what is free in truth, so that nobody gets a machine before its pods are gone.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from hulk_placement.fleet.types import Settings
from hulk_placement.plan import Plan
from hulk_placement.solution import precedence

from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object, Refused
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.pod_size import Amounts, limits
from hulk_operator.inputs.priority import NO_CLASS, class_of
from hulk_operator.inputs.resource_quotas import Asking, admitted, first_objects
from hulk_operator.planning.fleet_jobs import (
    Contestant,
    fleet_job,
    is_between,
    is_contestant,
    is_movable,
    is_stopped,
    mapping_of,
    observed_steps,
)
from hulk_operator.planning.inventory import UNUSABLE, Inventory, Reader
from hulk_operator.planning.preemption import (
    behind,
    never_preempting,
    not_admitted,
    sharing,
    stops_others,
    undisturbed,
    within,
)
from hulk_operator.planning.process import Competition, Search
from hulk_operator.planning.queue_decision import Contest, Grant, Verdict, is_contested
from hulk_operator.planning.reservations import Held
from hulk_operator.reconcile.types import FullPlan, Order, Place
from hulk_operator.watched import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turns:
    """By job that waits and competes: what it is given, or its place. Who is in neither is planned as if alone."""

    grants: Mapping[str, Grant] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """The jobs of one kind of accelerator: those with plans, and those that wait or are between two plans."""

    running: dict[str, Held] = field(default_factory=dict)
    waiting: dict[str, HulkJob] = field(default_factory=dict)

    @property
    def jobs(self) -> list[HulkJob]:
        """All of them."""
        return [*self.waiting.values(), *(held.job for held in self.running.values())]


class Dispatcher:
    """`ready` is told the key of every job that has a new order, `failed` of every decision that failed."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        ready: Callable[[str], None],
        clock: Callable[[], datetime],
        full_plan: Callable[[HulkJob], Awaitable[FullPlan | None]],
        settings: Settings,
        pause_s: float,
        failed: Callable[[], None],
    ) -> None:
        self._store = store
        self._reader = reader
        self._ready = ready
        self._clock = clock
        self._full_plan = full_plan
        self._settings = settings
        self._pause_s = pause_s
        self._failed = failed
        self._orders: dict[str, tuple[str | None, Order]] = {}
        self._last: datetime | None = None

    def order(self, job: HulkJob) -> Order | None:
        """The last word on the gang of this very job."""
        uid, found = self._orders.get(job.key, (None, None))
        return found if uid == job.metadata.uid else None

    def forget(self, key: str) -> None:
        """There is no such job."""
        self._orders.pop(key, None)

    @property
    def is_due(self) -> bool:
        """Whether to look at jobs that run although none asks for a plan: one may or must have other workers by now.

        A clock that was put back does not stop it.
        """
        jobs = list(self._store.all_jobs())
        if not any(_might_grow(job) or (job.namespace in self._settings.quotas and _may_move(job)) for job in jobs):
            return False
        return self._last is None or abs((self._clock() - self._last).total_seconds()) >= self._pause_s

    async def take_turns(
        self, search: Search, wanted: Mapping[str, HulkJob], held: Sequence[Held], inventory: Inventory
    ) -> Turns:
        """Decide for every kind of accelerator that is competed for."""
        self._last = self._clock()
        self._orders = {}
        grants: dict[str, Grant] = {}
        places: dict[str, Place] = {}
        for resource, group in self._groups(wanted, held).items():
            quotas = inventory.quotas(resource, self._settings.quotas)
            num_free = await asyncio.to_thread(inventory.num_free, resource, group.jobs)
            if not is_contested(_running(group), _waiting(group), num_free, quotas):
                continue
            verdict = await self._decide(search, resource, group, wanted.keys(), inventory)
            if verdict is not None:
                grants |= verdict.grants
                places |= verdict.places
                self._keep(verdict.orders)
        return Turns(grants, places)

    def _groups(self, wanted: Mapping[str, HulkJob], held: Sequence[Held]) -> dict[str, Group]:
        groups: dict[str, Group] = defaultdict(Group)
        for one in held:
            if is_contestant(one.job):
                groups[one.job.spec.workers.resource_name].running[one.job.key] = one
        # Those that were stopped compete also before they ask for a plan: what their pods still hold is no stranger's.
        released = {job.key: job for job in self._store.all_jobs() if is_between(job) or is_stopped(job)}
        for key, job in {**released, **wanted}.items():
            group = groups[job.spec.workers.resource_name]
            if is_contestant(job) and key not in group.running:
                group.waiting[key] = job
        return groups

    async def _decide(
        self, search: Search, resource: str, group: Group, wanted: Collection[str], seen: Inventory
    ) -> Verdict | None:
        """None where it fails: then each job is planned as if it were alone, within the quotas."""
        quotas = seen.quotas(resource, self._settings.quotas)
        contestants, whole = await self._contestants(group, seen)
        topology = await asyncio.to_thread(whole.topology, resource)
        now = self._clock()
        pods = await asyncio.to_thread(self._admitted, contestants, group, seen)
        jobs = {key: within(fleet_job(one, now), one.mapping, pods[key]) for key, one in contestants.items()}
        refused, polite = not_admitted(contestants, jobs, pods), never_preempting(contestants)
        asked = Competition(
            now_s=now.timestamp(),
            jobs=tuple(jobs.values()),
            topology=topology,
            running={key: one.mapping for key, one in contestants.items() if one.plan is not None},
            observed=observed_steps(contestants),
            settings=replace(self._settings, taken=whole.taken_of(resource)),
        )
        waiting = frozenset(key for key in group.waiting if key in wanted and key in jobs)
        try:
            asked = behind(asked, refused)
            found = await search.decide(asked)
            if stops_others(found, polite):
                free = await search.decide(undisturbed(asked))
                asked = sharing(asked, polite.keys() - refused.keys(), free)
                found = await search.decide(asked)
            jobs = {job.key: job for job in asked.jobs}
            notes = {key: one.priority.note for key, one in contestants.items()} | polite | refused
            contest = Contest(
                contestants, waiting, jobs, topology, seen.unheld(resource), quotas, self._settings, notes
            )
            return await asyncio.to_thread(contest.judge, found)
        except Exception:
            logger.exception("who of %d jobs has which workers could not be decided", len(jobs))
            self._failed()
            return None

    def _admitted(self, contestants: Mapping[str, Contestant], group: Group, seen: Inventory) -> dict[str, int]:
        """Of each job, the pods that it has and those that the ResourceQuotas of its namespace admit beside them."""
        pods = Counter((pod.job, pod.attempt) for pod in seen.workers)
        asking, have = [], {}
        for key, one in sorted(contestants.items(), key=lambda item: precedence(item[1].workload)):
            runs, asked = key in group.running, one.job.spec.workers
            have[key] = pods[key, one.job.status.attempt] if runs else sum(seen.kept(one.job).values())
            spec = seen.spec_of(one.job)
            each = inputs.worker_amounts(spec, asked.resource_name, asked.accelerators_per_worker) | _limits(spec)
            missing, objects = max(0, one.workload.max_workers - have[key]), first_objects(one.job)
            asking.append(Asking(key, one.job.namespace, one.priority.name, missing, each, objects))
        held = self._held(seen)
        return {key: have[key] + num for key, num in admitted(asking, seen.resource_quotas, held).items()}

    def _held(self, seen: Inventory) -> dict[tuple[str, str], Counter[str]]:
        """What the pods of jobs hold by namespace and PriorityClass."""
        usual = (class_of(None, seen.classes or {}) or NO_CLASS).name
        held: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for pod in seen.workers:
            if job := self._store.job(pod.job):
                held[job.namespace, job.spec.priority_class_name or usual].update(pod.amounts)
        return held

    async def _contestants(self, group: Group, seen: Inventory) -> tuple[dict[str, Contestant], Inventory]:
        """The jobs that can be judged, and the cluster with nothing of theirs in it.

        The pods and plans of one that cannot be (its model is gone) keep what they hold; its wishes count for nothing.
        `seen`: the cluster with everything in it.
        """
        keys = group.running.keys() | group.waiting.keys()
        whole = await self._reader.inventory((), self._clock(), without=keys)
        found: dict[str, Contestant] = {}
        stuck: list[Held] = []
        for held in group.running.values():
            one = await self._contestant(held.job, whole, held.plan, mapping_of(held.plan))
            if one is None:
                stuck.append(held)
            else:
                found[one.key] = one
        for job in group.waiting.values():
            known = await self._full_plan(job) if is_between(job) else None
            one = await self._contestant(job, whole, known.plan if known else None, seen.kept(job))
            if one is not None:
                found[one.key] = one
        if stuck:
            whole = await self._reader.inventory(stuck, whole.now, without=found.keys())
        return found, whole

    async def _contestant(
        self, job: HulkJob, inventory: Inventory, plan: Plan | None, own: Mapping[str, int]
    ) -> Contestant | None:
        """`own`: its workers by node. A cordon keeps new ones off a node, and takes none from it."""
        try:
            workload = await self._reader.workload(job, inventory, {})
            priority = await self._reader.priority_class(job, inventory)
            one = Contestant(job, replace(workload, candidates=_with(workload.candidates, own)), plan, priority)
            fleet_job(one, inventory.now)
        except (Refused, ValueError) as error:
            logger.info("%s takes no part in the queue: %s", job.key, error)
            return None
        return one

    def _keep(self, orders: Mapping[str, Order]) -> None:
        for key, order in orders.items():
            job = self._store.job(key)
            if job is not None:
                self._orders[key] = job.metadata.uid, order
                self._ready(key)


def _might_grow(job: HulkJob) -> bool:
    plan = job.status.plan
    return _may_move(job) and plan is not None and plan.num_workers < job.spec.workers.max


def _may_move(job: HulkJob) -> bool:
    return is_contestant(job) and is_movable(job)


def _limits(spec: Object) -> Amounts:
    """None of a template whose limits cannot be read; its requests were."""
    try:
        return limits(spec)
    except UNUSABLE:
        return {}


def _running(group: Group) -> list[tuple[HulkJob, int]]:
    return [(held.job, len(held.plan.workers)) for held in group.running.values()]


def _waiting(group: Group) -> list[tuple[HulkJob, int]]:
    return [(job, job.spec.workers.max) for job in group.waiting.values()]


def _with(candidates: Mapping[str, int], own: Mapping[str, int]) -> Mapping[str, int]:
    """The very same candidates where it holds none: jobs that are alike share them, also on their way to the search."""
    if not own:
        return candidates
    return {**candidates, **{node: max(num, candidates.get(node, 0)) for node, num in own.items()}}
