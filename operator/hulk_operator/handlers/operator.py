"""The whole operator: one Lease, one store, a queue of passes for each kind, one planning pass, the watches, probing.

Everything runs in one event loop. A part that breaks is started again; where that is no use all parts end: Kubernetes
starts the operator again, and a start loses nothing, because everything that matters is in the API server.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import kopf

from hulk_operator import background, names
from hulk_operator.api import ConditionType
from hulk_operator.cluster import HULK_JOBS, HULK_SWEEPS, NODES, PODS, Cluster, ClusterError, Lease, LeaseLost, NotFound
from hulk_operator.handlers.pods import PodWatch
from hulk_operator.handlers.settings import Settings
from hulk_operator.handlers.watches import Watches
from hulk_operator.handlers.watches import settings as kopf_settings
from hulk_operator.metrics import Health
from hulk_operator.observation import Observation
from hulk_operator.planning.planner import Planner
from hulk_operator.probing import Prober
from hulk_operator.reconcile.polling import Workers
from hulk_operator.reconcile.reconciler import Reconciler
from hulk_operator.reconcile.store import Store
from hulk_operator.reconcile.types import View
from hulk_operator.reconcile.work_queue import WorkQueue
from hulk_operator.status import holds
from hulk_operator.sweeps.reconciler import SweepReconciler

logger = logging.getLogger(__name__)

NO_CRD_RETRY_S: Final = 1.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Parts:
    """The running parts of an operator; what metrics read."""

    store: Store
    queue: WorkQueue
    sweeps: WorkQueue
    planner: Planner
    prober: Prober
    reconciler: Reconciler
    lease: Lease
    health: Health
    metrics_port: int
    now: Callable[[], datetime]


def assemble(
    cluster: Cluster, workers: Workers, settings: Settings, health: Health, now: Callable[[], datetime]
) -> Parts:
    """Connect the parts, all by one clock; nothing runs yet."""
    store = Store(now)
    prober = Prober(
        cluster,
        lambda: nodes_of_running_jobs(store),
        settings.probing,
        clock=now,
        failed=lambda: health.failed("probing"),
        heard=health.heard,
        namespace=settings.namespace,
        agents_in=settings.lease_namespace,
    )

    async def work(key: str) -> float | None:
        with health.reconcile():
            return await reconciler.reconcile(key)

    queue = WorkQueue(work, failed=lambda: health.failed("reconcile"), num_objects=store.num_pods_of)
    planner = Planner(
        cluster,
        store,
        queue.add,
        now,
        settings.namespace,
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

    lease = Lease(cluster, settings.lease_namespace, settings.identity, now, settings.lease_s)
    reconciler = Reconciler(
        cluster,
        store,
        planner,
        workers,
        now,
        settings.timing,
        observed,
        lambda: lease.valid,
        health.failed,
        health.moved,
        queue.add,
    )
    sweeper = SweepReconciler(cluster, store, workers, now, lambda: lease.valid)
    sweeps = WorkQueue(sweeper.reconcile, failed=lambda: health.failed("sweep"), num_objects=sweeper.num_trials)
    return Parts(store, queue, sweeps, planner, prober, reconciler, lease, health, settings.metrics_port, now)


Serve = Callable[[Parts], Coroutine[Any, Any, None]]


async def run(
    cluster: Cluster, workers: Workers, settings: Settings, health: Health, serve: Serve, now: Callable[[], datetime]
) -> None:
    """Be the operator until SIGTERM; raises when it cannot go on (`LeaseLost`, a defect). `now`: the API server's.

    `serve` answers for metrics and health from the start, also while another operator holds the lease. In a container
    it is process 1, to which a signal without a handler does nothing: so SIGTERM is handled from the start as well.
    """
    parts = assemble(cluster, workers, settings, health, now)
    stop = asyncio.Event()
    _take_signals(stop)
    try:
        async with background.running() as tasks:
            serving = tasks.start("serving", lambda: serve(parts))
            if await _unless(stop, parts.lease.acquire()):
                await _act(cluster, settings, parts, stop)
                await parts.lease.release()
            serving.cancel()
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


async def _act(cluster: Cluster, settings: Settings, parts: Parts, stop: asyncio.Event) -> None:
    """Do an operator's work while the lease is held."""
    async with background.running() as tasks:
        # without it another operator begins, whatever this one does
        holding = tasks.start("lease", parts.lease.hold, is_restarted=False, raises=(LeaseLost,))
        if not await _unless(stop, load(cluster, settings, parts)):
            holding.cancel()
            return
        pods = PodWatch(
            cluster,
            parts.store,
            parts.queue.add,
            parts.planner.changed,
            settings.namespace,
            lambda: parts.health.heard("pods"),
        )
        acting = [
            holding,
            tasks.start("jobs", parts.queue.run),
            tasks.start("sweeps", parts.sweeps.run),
            *(tasks.start(name, queue.run) for name, queue in parts.reconciler.calls.queues.items()),
            tasks.start("planning", parts.planner.run),
            tasks.start("probing", parts.prober.run),
            tasks.start("pods", pods.run),
            tasks.start("resync", lambda: _resync(cluster, settings, parts)),
        ]
        try:
            await _watch(settings, parts, stop)
        finally:
            for task in acting:
                task.cancel()


async def _watch(settings: Settings, parts: Parts, stop: asyncio.Event) -> None:
    """Kopf, until it is to stop. Left to itself at a signal, it waits 5 s for every task that it did not begin."""
    watches = Watches(parts.store, parts.queue.add, parts.planner.changed, parts.sweeps.add)
    ours = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=watches.registry(),
        settings=kopf_settings(),
        standalone=True,
        clusterwide=settings.namespace is None,
        namespaces=[settings.namespace] if settings.namespace else [],
    )
    _take_signals(stop)  # Kopf has just taken them for itself
    await _unless(stop, background.ends_operator("watches", kopf.run_tasks(tasks, ignored=ours)))


async def load(cluster: Cluster, settings: Settings, parts: Parts) -> None:
    """Read everything once, so that no pass takes what is not read yet for missing; waits for the CRDs."""
    while True:
        try:
            nodes = await cluster.list(NODES)
            pods = await cluster.list(PODS, settings.namespace, labels=names.LABEL_JOB)
            jobs = await cluster.list(HULK_JOBS, settings.namespace)
            sweeps = await cluster.list(HULK_SWEEPS, settings.namespace)
        except NotFound:
            logger.info("waits for the CRDs of %s", names.GROUP)
        except ClusterError as error:
            logger.warning("the cluster is not readable: %s", error.message)
        else:
            parts.health.heard("everything")
            parts.store.nodes.replace(nodes)
            parts.store.replace_pods(pods)
            parts.store.jobs.replace(jobs)
            parts.store.sweeps.replace(sweeps)
            for key, _ in parts.store.jobs.items():
                parts.queue.add(key)
            for key, _ in parts.store.sweeps.items():
                parts.sweeps.add(key)
            return
        await asyncio.sleep(NO_CRD_RETRY_S)


async def _resync(cluster: Cluster, settings: Settings, parts: Parts) -> None:
    """Look at everything again now and then: what a watch lost while it was disconnected is found here."""
    while True:
        await asyncio.sleep(settings.timing.resync_s)
        known = {key for key, _ in parts.store.jobs.items()}
        await load(cluster, settings, parts)
        for key in known:
            parts.queue.add(key)
        parts.planner.changed()


def nodes_of_running_jobs(store: Store) -> Iterable[Collection[str]]:
    """The nodes of each job with a plan in force: no bandwidth test beside them."""
    for key, job in store.jobs.items():
        if holds(job.status, ConditionType.PLANNED) and not holds(job.status, ConditionType.SUCCEEDED):
            yield {pod.node for pod in store.pods_of(key) if pod.node}
