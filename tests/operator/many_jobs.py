"""Jobs of two workers that train, by the hundred: an operator's store of them, its queue of passes, and its calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, cast

from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import HULK_JOBS, ApiResource, Object
from hulk_operator.observation import Observation
from hulk_operator.reconcile.polling import Workers
from hulk_operator.reconcile.reconciler import Decisions, Reconciler
from hulk_operator.reconcile.types import FullPlan, Timing, View
from hulk_operator.reconcile.work_queue import WorkQueue
from hulk_operator.watched import Store
from views import job, plan, running, summary

TIMING = Timing(observe_write_s=60.0)  # what a fake server copies takes longer than all that is looked at here


class Plans:
    """Every job runs by the plan that it has, and no other is made."""

    def __init__(self) -> None:
        self.full: dict[str, FullPlan] = {}

    def request(self, key: str) -> None:
        """None is made."""

    def decision(self, key: str) -> None:
        """There is no other."""

    def review(self, key: str) -> None:
        """Nor is one better."""

    def order(self, key: str) -> None:
        """Nobody competes."""

    def forget(self, key: str) -> None:
        """Nothing was kept."""

    async def full_plan(self, one: HulkJob) -> FullPlan | None:
        """The job's."""
        return self.full[one.key]

    async def calibrate(self, *_: Any) -> None:
        """Nothing is predicted."""


class Light(FakeCluster):
    """Patches of statuses that copy nothing: a thousand jobs have theirs written."""

    async def patch(
        self, resource: ApiResource, name: str, namespace: str | None, change: Mapping[str, Any], **_: Any
    ) -> Object:
        """Conflicts are no matter here."""
        found = _merged(self.objects[resource.plural, namespace, name], change)
        self._version += 1
        found["metadata"] = {**found["metadata"], "resourceVersion": str(self._version)}
        self.objects[resource.plural, namespace, name] = found
        return found


def _merged(old: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    new = {
        key: _merged(old.get(key) or {}, value) if isinstance(value, Mapping) else value
        for key, value in change.items()
    }
    return {key: value for key, value in {**old, **new}.items() if value is not None}


class Fleet:
    """`number` jobs that train: job 7's workers are at 127.1.7.1 and 127.1.7.2, on nodes of their own."""

    def __init__(
        self,
        number: int,
        workers: Workers,
        clock: Callable[[], datetime],
        port: int = names.WORKER_METRICS_PORT,
    ) -> None:
        self.cluster, self.store, plans = Light(), Store(clock), Plans()
        for index in range(number):
            one = self._job(index, clock())
            self.store.jobs.put(self.cluster._store(HULK_JOBS, one))
            nodes = (node_of(index, 0), node_of(index, 1))
            plans.full[f"lab/{one['metadata']['name']}"] = FullPlan(plan(nodes=nodes), b"", "digest-1", 10**6)
            for worker, node in enumerate(nodes):
                self.store.nodes.put({"metadata": {"name": node, "resourceVersion": "1"}})
                self.store.pods.put(self._pod(index, worker, port))
        self.queue = WorkQueue(self._pass, num_objects=self.store.num_pods_of)
        self.reconciler = Reconciler(
            self.cluster,
            self.store,
            cast(Decisions, plans),
            workers,
            clock,
            TIMING,
            self._observed,
            wake=self.queue.add,
        )

    @asynccontextmanager
    async def operated(self) -> AsyncIterator[None]:
        """Passes over all jobs, and what they ask of workers, as the operator runs them."""
        tasks = [asyncio.create_task(queue.run()) for queue in (self.queue, *self.reconciler.calls.queues.values())]
        for key, _ in self.store.jobs.items():
            self.queue.add(key)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)

    def job(self, index: int) -> HulkJob:
        """As the operator knows it."""
        found = self.store.job(f"lab/job-{index}")
        assert found is not None
        return found

    async def _pass(self, key: str) -> float | None:
        return await self.reconciler.reconcile(key)

    async def _observed(self, view: View, seen: Observation) -> None:
        return None

    def _job(self, index: int, now: datetime) -> Object:
        """With conditions of a moment ago."""
        status = running()
        since = {"last_transition_time": now}
        status = status.model_copy(
            update={
                "plan": summary().model_copy(update={"num_workers": 2, "num_accelerators": 2}),
                "conditions": tuple(found.model_copy(update=since) for found in status.conditions),
                "start_time": now,
            }
        )
        found = job(workers={"min": 2, "max": 2}).wire()
        found["metadata"] |= {"name": f"job-{index}", "uid": f"u{index}"}
        return {**found, "status": status.wire()}

    def _pod(self, index: int, worker: int, port: int) -> Object:
        name = f"job-{index}"
        labels = names.worker_labels(name, 1, worker)
        kind = {"apiVersion": names.API_VERSION, "kind": names.JOB_KIND}
        owner = {**kind, "name": name, "uid": f"u{index}", "controller": True}
        of_worker = {"name": "worker", "env": [{"name": names.ENV_METRICS_PORT, "value": str(port)}]}
        return {
            "metadata": {
                "name": names.pod(name, 1, worker),
                "namespace": "lab",
                "uid": f"p{index}-{worker}",
                "resourceVersion": "1",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": node_of(index, worker), "containers": [of_worker]},
            "status": {
                "phase": "Running",
                "podIP": address_of(index, worker),
                "containerStatuses": [{"name": "worker", "state": {"running": {}}}],
            },
        }


def node_of(index: int, worker: int) -> str:
    """Where a job's worker is."""
    return f"node-{index}-{worker}"


def address_of(index: int, worker: int) -> str:
    """Of a worker's pod."""
    return f"127.{index // 250 + 1}.{index % 250}.{worker + 1}"


def worker_at(address: str) -> tuple[int, int]:
    """Whose address (host:port) it is: a job and its worker.

    >>> worker_at(address_of(777, 1) + ":9400")
    (777, 1)
    """
    _, high, low, worker = (int(part) for part in address.partition(":")[0].split("."))
    return (high - 1) * 250 + low, worker - 1
