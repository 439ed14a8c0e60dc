"""One pass over one HulkJob: gather, decide, carry out, write the status once."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from hulk_operator.api import ConditionType, HulkJob, HulkJobStatus
from hulk_operator.cluster import (
    EVENTS,
    HULK_JOBS,
    ORIGIN,
    PODS,
    WORKLOADS,
    AlreadyExists,
    ApiResource,
    Cluster,
    ClusterError,
    Conflict,
    NamespaceEnds,
    NotFound,
    Object,
)
from hulk_operator.observation import Observation
from hulk_operator.pods import Instrumentation, ScaleUp
from hulk_operator.pods.orders import NO_ORDERS, Orders
from hulk_operator.reconcile.attempt_state import set_condition
from hulk_operator.reconcile.executor import Executor, Plans
from hulk_operator.reconcile.polling import Workers
from hulk_operator.reconcile.recipe import EVENTS_WRITE, STATUS_WRITE, decide
from hulk_operator.reconcile.steps.admission import holds_up
from hulk_operator.reconcile.steps.kueue import waits_for_kueue
from hulk_operator.reconcile.steps.queueing import queue_move
from hulk_operator.reconcile.steps.start_failures import refused
from hulk_operator.reconcile.types import (
    NOTHING,
    FullPlan,
    Memory,
    Order,
    Planned,
    Review,
    Step,
    Timing,
    Unplanned,
    View,
)
from hulk_operator.reconcile.worker_calls import WorkerCalls
from hulk_operator.status import event, finished, holds, merge_patch, phase, transitions
from hulk_operator.watched import Store

logger = logging.getLogger(__name__)

CONFLICT_RETRY_S = 0.1
RESTORED_RETRY_S = 0.5
NAMESPACE_ENDS_S = 30.0  # between two looks at a job whose namespace is being deleted
REFUSED = Step("refused", lambda _: NOTHING)  # in whose name a refused gang is released


class Decisions(Plans, Protocol):
    """What a pass asks of the planning pass."""

    def decision(self, key: str) -> Planned | Unplanned | None:
        """Its answer for a job, None before there is one."""
        ...

    def review(self, key: str) -> Review | None:
        """Its last word on the plan in force, None before there is one."""
        ...

    def order(self, key: str) -> Order | None:
        """The queue's word on the gang that runs, None where it goes on as it is."""
        ...

    def forget(self, key: str) -> None:
        """The job needs no plan now: drop the answer and what it reserves."""
        ...

    async def full_plan(self, job: HulkJob) -> FullPlan | None:
        """The full plan of the attempt in force; None when it was never written."""
        ...


class Reconciler:
    """Runs passes. Its memory of the jobs may be lost at any time.

    `acts` says whether this operator still holds the lease, `failed` is told what kind of side work went wrong, `moved`
    what the queue did with a job, once that is written; `metrics_readers` reach the workers' port 9400. `wake` asks for
    a pass: a worker has answered one of the `calls`, which run beside the passes. `pod_groups`: gangs have PodGroups.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        plans: Decisions,
        workers: Workers,
        clock: Callable[[], datetime],
        timing: Timing,
        observed: Callable[[View, Observation], Awaitable[None]],
        acts: Callable[[], bool] = lambda: True,
        failed: Callable[[str], None] = lambda _: None,
        moved: Callable[[str], None] = lambda _: None,
        metrics_readers: tuple[Object, ...] = View.metrics_readers,
        orders: Orders = NO_ORDERS,
        wake: Callable[[str], None] = lambda _: None,
        scale_up: ScaleUp = View.scale_up,
        pod_groups: bool = False,
        instrumentation: Instrumentation = View.instrumentation,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._plans = plans
        self._clock = clock
        self._timing = timing
        self._metrics_readers = metrics_readers
        self._orders = orders
        self._scale_up = scale_up
        self._pod_groups = pod_groups
        self._instrumentation = instrumentation
        self.memory: dict[str, Memory] = {}
        self._failed, self._moved, self._wake = failed, moved, wake
        self._executor = Executor(cluster, plans, self._see_created, self._update_memory, acts)
        self.calls = WorkerCalls(cluster, workers, clock, self._land, observed, lambda: failed("reconcile"))

    async def reconcile(self, key: str) -> float | None:
        """One pass; answers after how many seconds the next one is due, None: when something happens."""
        if self._store.is_half_restored:
            return RESTORED_RETRY_S
        job = self._store.job(key)
        if job is None:
            self.memory.pop(key, None)
            self._plans.forget(key)
            self._store.forget(key)
            self.calls.forget(key)
            return None
        view = await self._gather(job)
        decision = decide(view)
        status, requeue_after_s = decision.view.status, decision.requeue_after_s
        errors = await self._executor.run(view, decision.own_actions)
        if errors and isinstance(errors[0], NamespaceEnds):
            status, requeue_after_s = _waiting(decision.view, errors[0]), NAMESPACE_ENDS_S
        elif errors:
            outcome = refused(decision.view, errors)
            await self._executor.run(view, [(REFUSED, action) for action in outcome.actions])
            status, requeue_after_s = outcome.status or status, outcome.requeue_after_s
        try:
            await self._write_status(job, status)
        except Conflict:
            return CONFLICT_RETRY_S
        except NotFound:
            return None
        self.calls.ask(decision.view, () if errors else decision.calls)
        memory = self._remembered(job)
        is_refused = holds_up(view, memory.admission)
        if not _may_need_plan(job, status) or is_refused or waits_for_kueue(view):
            self._plans.forget(key)
        return requeue_after_s if memory.unqueued == view.memory.unqueued else 0  # the status is to say it

    async def _gather(self, job: HulkJob) -> View:
        pods = self._store.pods_of(job.key)
        uid = job.metadata.uid
        planned = holds(job.status, ConditionType.PLANNED) and not finished(job.status)
        return View(
            job=job,
            status=job.status,
            now=self._clock(),
            pods=tuple(pod for pod in pods if pod.job_uid == uid),
            leftovers=tuple(pod for pod in pods if pod.job_uid != uid),
            nodes=self._store.node_states(),
            decision=self._plans.decision(job.key),
            review=self._plans.review(job.key),
            order=self._plans.order(job.key),
            full=await self._plans.full_plan(job) if planned else None,
            memory=self._remembered(job),
            timing=self._timing,
            metrics_readers=self._metrics_readers,
            farewell=self._store.farewell_of(job),
            orders=self._orders,
            kueue=self._store.kueue.standing(job),
            may_use_class=not job.queue or self._store.may_use_class(job),
            placeholders=tuple(pod for pod in self._store.placeholders_of(job.key) if pod.job_uid == uid),
            scale_up=self._scale_up,
            pod_groups=self._pod_groups,
            instrumentation=self._instrumentation,
        )

    async def _write_status(self, job: HulkJob, status: HulkJobStatus) -> None:
        """Tell what changes, then write it, unless someone changed the job since this pass read it."""
        if not job.spec.ours or job.metadata.deletion_timestamp is not None:
            return
        generation = job.metadata.generation
        after = status.model_copy(update={"observed_generation": generation, "phase": phase(status)})
        change = merge_patch(job.status.wire(), after.wire())
        if not change:
            return
        await self._tell(job, after)
        token = ORIGIN.set(STATUS_WRITE[0])
        try:
            written = await self._cluster.patch(
                HULK_JOBS,
                job.metadata.name,
                job.metadata.namespace,
                {"status": change},
                subresource="status",
                resource_version=job.metadata.resource_version,
            )
        finally:
            ORIGIN.reset(token)
        self._store.jobs.put(written)
        if kind := queue_move(job.status, after):
            self._moved(kind)

    async def _tell(self, job: HulkJob, after: HulkJobStatus) -> None:
        """Events are for people: one that cannot be written does not hold up the job."""
        token = ORIGIN.set(EVENTS_WRITE[0])
        try:
            for transition in transitions(job.status, after):
                logger.info("%s: %s: %s", job.key, transition.reason, transition.message)
                try:
                    await self._cluster.create(EVENTS, event(job, transition, after.attempt, self._clock()))
                except (AlreadyExists, NamespaceEnds):
                    continue
                except ClusterError as error:
                    self._failed("event")
                    logger.warning("%s: event %s was not written: %s", job.key, transition.reason, error.message)
        finally:
            ORIGIN.reset(token)

    def _see_created(self, resource: ApiResource, created: Object) -> None:
        if resource is PODS:
            self._store.pods.put(created)
        elif resource is WORKLOADS:
            self._store.kueue.workloads.put(created)

    def _remembered(self, job: HulkJob) -> Memory:
        """What is known of this very job, not of one that had its name before."""
        uid = job.metadata.uid or ""
        known = self.memory.get(job.key)
        return known if known is not None and known.uid == uid else Memory(uid)

    def _land(self, job: HulkJob, change: Callable[[Memory], Memory]) -> None:
        """Take over what was asked of a job's workers, unless the job is gone by now, and look at it."""
        known = self._store.job(job.key)
        if known is not None and known.metadata.uid == job.metadata.uid:
            self._update_memory(job, change)
            self._wake(job.key)

    def _update_memory(self, job: HulkJob, change: Callable[[Memory], Memory]) -> None:
        self.memory[job.key] = change(self._remembered(job))


def _waiting(view: View, error: NamespaceEnds) -> HulkJobStatus:
    """The job goes with its namespace; another attempt would be refused like this one, so none is made."""
    return set_condition(view, ConditionType.DEPLOYED, False, "NamespaceTerminating", error.message)


def _may_need_plan(job: HulkJob, status: HulkJobStatus) -> bool:
    """Whether an answer of the planning pass, and what it reserves, is still of use."""
    over = finished(status) or holds(status, ConditionType.PLANNED)
    return not over and job.spec.ours and not job.spec.suspend and job.metadata.deletion_timestamp is None
