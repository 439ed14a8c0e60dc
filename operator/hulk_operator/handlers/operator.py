"""The whole operator: one store that informers keep, one Lease, and for who holds it the parts that act.

    all the time       informers -> store; metrics and health
    a term of a lease  a queue of passes for jobs and one for sweeps, one planning pass, probing, Kopf's watches

Everything runs in one event loop. A part that breaks is started again; where that is no use all parts end: Kubernetes
starts the operator again, and a start loses nothing, because everything that matters is in the API server.
"""

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import kopf

from hulk_operator import background, event_loop_lag, names
from hulk_operator.api import ConditionType
from hulk_operator.cluster import HULK_JOBS, HULK_SWEEPS, Cluster, ClusterError, Lease, LeaseLost, NotFound
from hulk_operator.handlers.order_key import load_orders
from hulk_operator.handlers.settings import Settings
from hulk_operator.handlers.watches import MAX_END_S, Watches
from hulk_operator.handlers.watches import settings as kopf_settings
from hulk_operator.metrics import Health
from hulk_operator.observation import Observation
from hulk_operator.planning.planner import Planner
from hulk_operator.pods import metrics_readers
from hulk_operator.pods.orders import NO_ORDERS, Orders
from hulk_operator.probing import Prober
from hulk_operator.reconcile.polling import Workers
from hulk_operator.reconcile.reconciler import Reconciler
from hulk_operator.reconcile.types import View
from hulk_operator.reconcile.work_queue import WorkQueue
from hulk_operator.status import holds
from hulk_operator.sweeps.reconciler import SweepReconciler
from hulk_operator.watched import News, Store
from hulk_operator.watched.informers import Informers, Scope

logger = logging.getLogger(__name__)

NO_CRD_RETRY_S: Final = 1.0
JOBS: Final = "jobs"
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Acting:
    """What works while the lease is held. A term begins with nothing: another operator may have acted before it.

    `stands_down` is set once the lease is lost. Kopf looks at it when it is cancelled: without it, it has the process
    killed some time later, whatever that does by then.
    """

    queue: WorkQueue
    sweeps: WorkQueue
    planner: Planner
    prober: Prober
    reconciler: Reconciler
    stands_down: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Parts:
    """The parts of an operator; what metrics read.

    `acting`: None while another one holds the lease. `killed`: at the end of the time in which it must have stood down.
    """

    cluster: Cluster
    workers: Workers
    settings: Settings
    health: Health
    now: Callable[[], datetime]
    store: Store
    informers: Informers
    lease: Lease
    orders: Orders = NO_ORDERS
    acting: Acting | None = None
    killed: asyncio.TimerHandle | None = None


def parts_of(
    cluster: Cluster, workers: Workers, settings: Settings, health: Health, now: Callable[[], datetime]
) -> Parts:
    """The parts that every operator has, all by one clock; nothing runs yet."""
    store = Store(now, settings.lease_namespace)
    informers = Informers(cluster, store, Scope(settings.namespace, settings.lease_namespace), health.heard)
    lease = Lease(cluster, settings.lease_namespace, settings.identity, now, settings.lease_s)
    return Parts(cluster, workers, settings, health, now, store, informers, lease)


def assemble(parts: Parts) -> Acting:
    """Connect the parts that act; nothing runs yet."""
    cluster, settings, health, now, store = parts.cluster, parts.settings, parts.health, parts.now, parts.store
    prober = Prober(
        cluster,
        parts.informers.seen,
        lambda: nodes_of_running_jobs(store),
        settings.probing,
        clock=now,
        wrote=store.profiles.put,
        failed=lambda: health.failed("probing"),
        namespace=settings.namespace,
    )

    async def work(key: str) -> float | None:
        with health.reconcile():
            return await reconciler.reconcile(key)

    queue = WorkQueue(work, failed=lambda: health.failed("reconcile"), num_objects=store.num_pods_of)
    planner = Planner(
        cluster,
        store,
        parts.informers.seen,
        queue.add,
        now,
        settings.timing,
        settings.policy,
        idle_s=settings.planner_idle_s,
        fleet=settings.fleet,
        planned=health.planned,
        failed=lambda: health.failed("planning"),
    )

    async def observed(view: View, seen: Observation) -> None:
        try:
            await prober.record_load(seen.links, {pod.node for pod in view.pods})
        except (ClusterError, ValueError) as error:  # for later plans, no matter of this job
            logger.warning("links of %s under load are not recorded: %s", view.job.key, error)
            health.failed("probing")

    def acts() -> bool:
        return parts.lease.valid

    reconciler = Reconciler(
        cluster,
        store,
        planner,
        parts.workers,
        now,
        settings.timing,
        observed,
        acts,
        health.failed,
        health.moved,
        metrics_readers(settings.lease_namespace, settings.prometheus_namespaces),
        parts.orders,
        queue.add,
        settings.scale_up,
        settings.pod_groups,
        settings.instrumentation,
    )
    sweeper = SweepReconciler(cluster, store, parts.workers, now, acts)
    sweeps = WorkQueue(sweeper.reconcile, failed=lambda: health.failed("sweep"), num_objects=sweeper.num_trials)
    store.news = News(queue.add, planner.changed, prober.wake)
    return Acting(queue, sweeps, planner, prober, reconciler)


Serve = Callable[[Parts], Coroutine[Any, Any, None]]


async def run(
    cluster: Cluster, workers: Workers, settings: Settings, health: Health, serve: Serve, now: Callable[[], datetime]
) -> None:
    """Be the operator until SIGTERM; raises when it cannot go on (a defect). `now`: the API server's clock.

    `serve` answers for metrics and health from the start, and the cluster is followed, also while another operator
    holds the lease. Whoever loses it stands down, and waits for it like any other. In a container this is process 1, to
    which a signal without a handler does nothing: so SIGTERM is handled from the start as well.
    """
    parts = parts_of(cluster, workers, settings, health, now)
    stop = asyncio.Event()
    _take_signals(stop)
    try:
        async with background.running() as tasks:
            beside = [
                tasks.start("serving", lambda: serve(parts)),
                tasks.start("informers", parts.informers.run),
                tasks.start("event-loop-lag", lambda: event_loop_lag.measure(health.lags.add)),
            ]
            while await _unless(stop, _acquire(parts)):
                try:
                    await _act(parts, stop)
                except LeaseLost as error:
                    logger.warning("stands down: %s", error)
                    me = asyncio.current_task()
                    if me is not None and me.cancelling():  # which a task group forgets that ends by an error
                        raise asyncio.CancelledError from error
                    continue
                await parts.lease.release()
                break
            for task in beside:
                task.cancel()
    finally:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


def _take_signals(stop: asyncio.Event) -> None:
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work unless asked to stop first; whether it was done."""
    ended = await background.first_of(work, stop.wait())
    return ended is not None and ended[0] == 0


async def _acquire(parts: Parts) -> None:
    """Wait for the lease; who does not know the cluster yet leaves it to others."""
    await parts.informers.seen()
    if not parts.orders.key:
        parts.orders = await load_orders(parts.cluster, parts.settings.lease_namespace, secrets.token_bytes)
    await parts.lease.acquire()


async def _act(parts: Parts, stop: asyncio.Event) -> None:
    """Do an operator's work while the lease is held; `LeaseLost` when it is not any more."""
    acting = parts.acting = assemble(parts)
    try:
        async with background.running() as tasks:
            # without it another operator begins, whatever this one does
            holding = tasks.start("lease", lambda: _hold(parts, acting), is_restarted=False, raises=(LeaseLost,))
            if not await _unless(stop, load(parts, acting)):
                holding.cancel()
                return
            working = [
                holding,
                tasks.start("jobs", acting.queue.run),
                tasks.start("sweeps", acting.sweeps.run),
                *(tasks.start(name, queue.run) for name, queue in acting.reconciler.calls.queues.items()),
                tasks.start("planning", acting.planner.run),
                tasks.start("probing", acting.prober.run),
                tasks.start("resync", lambda: _resync(parts, acting)),
            ]
            try:
                await _watch(parts, acting, stop)
            finally:
                for task in working:
                    task.cancel()
    finally:
        if parts.killed is not None:
            parts.killed.cancel()
        parts.acting, parts.killed, parts.store.news = None, None, News()
        parts.store.forget_jobs()
        parts.health.unheard(JOBS)


async def _hold(parts: Parts, acting: Acting) -> None:
    """Renew the lease; an operator that has lost it and cannot stand down in `MAX_END_S` is killed."""
    try:
        await parts.lease.hold()
    except LeaseLost:
        acting.stands_down.set()
        parts.killed = asyncio.get_running_loop().call_later(MAX_END_S, os.kill, os.getpid(), signal.SIGKILL)
        raise


async def _watch(parts: Parts, acting: Acting, stop: asyncio.Event) -> None:
    """Kopf, until it is to stop. Left to itself at a signal, it waits 5 s for every task that it did not begin."""
    watches = Watches(parts.store, acting.queue.add, acting.planner.changed, acting.sweeps.add)
    ours = asyncio.all_tasks()
    namespace = parts.settings.namespace
    tasks = await kopf.spawn_tasks(
        registry=watches.registry(),
        settings=kopf_settings(),
        standalone=True,
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace else [],
        stop_flag=acting.stands_down,
    )
    _take_signals(stop)  # Kopf has just taken them for itself
    await _unless(stop, background.ends_operator("watches", kopf.run_tasks(tasks, ignored=ours)))


async def load(parts: Parts, acting: Acting) -> None:
    """Read all jobs and sweeps, so that no pass takes what is not read yet for missing; waits for the CRDs.

    And for what is followed: a lease that was lost may have been of a server that was restored from a backup since.
    """
    await parts.informers.connected()
    namespace, store = parts.settings.namespace, parts.store
    while True:
        try:
            jobs = await parts.cluster.list(HULK_JOBS, namespace)
            sweeps = await parts.cluster.list(HULK_SWEEPS, namespace)
        except NotFound:
            logger.info("waits for the CRDs of %s", names.GROUP)
        except ClusterError as error:
            logger.warning("the cluster is not readable: %s", error.message)
        else:
            parts.health.heard(JOBS)
            store.believe_jobs(jobs)
            store.sweeps.replace(sweeps)
            for key, _ in store.jobs.items():
                acting.queue.add(key)
            for key, _ in store.sweeps.items():
                acting.sweeps.add(key)
            return
        await asyncio.sleep(NO_CRD_RETRY_S)


async def _resync(parts: Parts, acting: Acting) -> None:
    """Look at every job again now and then: what Kopf's watch lost while it was disconnected is found here."""
    while True:
        await asyncio.sleep(parts.settings.timing.resync_s)
        known = {key for key, _ in parts.store.jobs.items()}
        await load(parts, acting)
        for key in known:
            acting.queue.add(key)
        acting.planner.changed()


def nodes_of_running_jobs(store: Store) -> Iterable[Collection[str]]:
    """The nodes of each job with a plan in force: no bandwidth test beside them."""
    for key, job in store.jobs.items():
        if holds(job.status, ConditionType.PLANNED) and not holds(job.status, ConditionType.SUCCEEDED):
            yield {pod.node for pod in store.pods_of(key) if pod.node}
