"""Many jobs under a whole planner and reconciler over a cluster in memory: pods come up, train, save and end.

A killed operator is a new one over the same objects: all that it knew beside them is gone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from fake_cluster import FakeCluster, selected
from hulk_operator import names
from hulk_operator.api import HulkJob, format_time
from hulk_operator.cluster import HULK_JOBS, ORIGIN, PODS, PRIORITY_CLASSES, ApiResource, ClusterError, Listing, Object
from hulk_operator.observation import Expected, Observation, ObserveError, Preflight
from hulk_operator.planning.planner import Planner
from hulk_operator.pods import worker_pod
from hulk_operator.reconcile.reconciler import Reconciler
from hulk_operator.reconcile.types import Timing, View
from hulk_operator.status import condition, holds
from hulk_operator.watched import Store
from hulk_operator.watched.informers import read
from hulk_placement.fleet.types import Settings
from test_planning import job, node
from test_planning_replan_review import profile
from views import NOW, carry_out

WAIT_S = 300.0
STEP_S = 1.0
EVERY = 5
TIMING = Timing(backoff_s=0.0, review_s=0.0, observe_write_s=0.0)
MODEL = {"transformer": {"layers": 4, "hidden": 64, "heads": 1, "sequenceLength": 4096, "vocabulary": 256}}
"""Much to compute and little to send: more workers are faster."""
PLAIN, LAUNCHED = ["python", "train.py"], ["/opt/hulk/bin/hulk-launch"]


class KilledError(Exception):
    """The operator's process is gone."""


@dataclass(slots=True)
class KillPoint:
    """The operator dies before or after the `number`-th such write for a job that a step asks for."""

    step: str
    write: str
    number: int
    moment: str
    seen: int = 0
    is_over: bool = False

    def reached(self, write: str) -> bool:
        """Whether this write is the one."""
        if self.is_over or (ORIGIN.get(), write) != (self.step, self.write):
            return False
        self.seen += 1
        self.is_over = self.seen == self.number
        return self.is_over


def high(value: int, name: str = "high", **more: Any) -> tuple[ApiResource, Object]:
    """A PriorityClass."""
    return PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **more}


def want(name: str, least: int, most: int, *, after_s: float = 0.0, launched: bool = False, **spec: Any) -> Any:
    """A job that keeps checkpoints and would train for long."""
    container = {"name": "w", "image": "i", "command": LAUNCHED if launched else PLAIN}
    template = {"spec": {"containers": [{**container, "resources": {"requests": {"cpu": "1"}}}]}}
    given = {
        "workers": {"min": least, "max": most},
        "model": MODEL,
        "training": {"globalBatch": 24, "steps": 100_000},
        "checkpoint": {"storage": {"url": f"s3://bucket/{name}"}, "everySteps": EVERY},
        "template": template,
        **spec,
    }
    kind, body = job(name, **given)
    created = format_time(NOW + timedelta(seconds=after_s))
    namespace = spec.get("namespace", "lab")
    body["spec"].pop("namespace", None)
    body["metadata"] |= {"creationTimestamp": created, "namespace": namespace}
    return kind, body


class Kubelets(FakeCluster):
    """A cluster whose deletions take effect at the next tick, and in which the operator may die at a write."""

    point: KillPoint | None = None

    async def create(self, resource: ApiResource, body: Object) -> Object:
        return await self._dying(f"create {resource.plural}", super().create(resource, body))

    async def patch(
        self, resource: ApiResource, name: str, namespace: str | None, change: Any, **options: Any
    ) -> Object:
        part = f"/{options['subresource']}" if options.get("subresource") else ""
        sent = super().patch(resource, name, namespace, change, **options)
        return await self._dying(f"patch {resource.plural}{part}", sent)

    async def delete_all(self, resource: ApiResource, namespace: str, *, labels: str) -> None:
        await self._dying(f"delete {resource.plural}", self._delete_all(resource, namespace, labels))

    async def _dying(self, write: str, sent: Coroutine[Any, Any, Any]) -> Any:
        now = self.point is not None and self.point.reached(write)
        if now and self.point and self.point.moment == "before":
            sent.close()
            raise KilledError
        done = await sent
        if now:
            raise KilledError
        return done

    async def _delete_all(self, resource: ApiResource, namespace: str, labels: str) -> None:
        self._write(f"delete {resource.plural}", {"labels": labels})
        for (plural, where, _), body in list(self.objects.items()):
            if (plural, where) == (resource.plural, namespace) and selected(body, labels):
                if resource is PODS:
                    body["metadata"].setdefault("deletionTimestamp", format_time(NOW))
                    self._store(resource, body)
                else:
                    del self.objects[plural, where, body["metadata"]["name"]]


class QueueWorld:
    """Nodes, jobs, an operator, and a clock that goes on by a second a turn."""

    def __init__(self, *objects: tuple[ApiResource, Object], settings: Settings | None = None) -> None:
        self.cluster = Kubelets(*objects)
        self.settings = settings or Settings(slot_s=10.0, hysteresis=0.1)
        self.now: datetime = NOW
        self.trained: dict[str, int] = {}
        self.saved: dict[str, int] = {}
        self.moves: list[tuple[str, str]] = []
        self.num_kills = 0
        self.holds_pods: set[str] = set()  # jobs whose pods do not end
        self.quotas = dict(self.settings.quotas)  # what pods may hold at every moment, each an accelerator
        self.restart()

    def restart(self) -> None:
        """Another operator: what the one before knew is lost."""
        self.store = Store(lambda: self.now)
        seen = partial(read, self.cluster)
        self.planner = Planner(
            self.cluster, self.store, seen, lambda key: None, lambda: self.now, TIMING, fleet=self.settings
        )
        self.reconciler = Reconciler(
            self.cluster, self.store, self.planner, self, lambda: self.now, TIMING, self._observed, moved=self._moved
        )
        self.task: asyncio.Task[None] | None = None
        self._key = ""

    async def stop(self) -> None:
        """The operator ends."""
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task
            self.task = None

    def _moved(self, kind: str) -> None:
        self.moves.append((self._key, kind))

    async def _observed(self, view: View, seen: Observation) -> None:
        return None

    def add(self, one: tuple[ApiResource, Object]) -> None:
        """A job arrives."""
        self.cluster._store(*one)

    def change(self, name: str, spec: Object) -> None:
        """Somebody changes a job's spec."""
        body = self.cluster.objects["hulkjobs", "lab", name]
        body["spec"] |= spec
        body["metadata"]["generation"] += 1
        self.cluster._store(HULK_JOBS, body)

    def jobs(self) -> dict[str, HulkJob]:
        """All jobs as the API server has them, by name."""
        return {
            name: HulkJob.model_validate(body)
            for (plural, _, name), body in self.cluster.objects.items()
            if plural == "hulkjobs"
        }

    def events(self, name: str) -> dict[str, list[str]]:
        """What a job's events say, by their reasons."""
        said: dict[str, list[str]] = {}
        for (plural, _, _), body in self.cluster.objects.items():
            if plural == "events" and body["involvedObject"]["name"] == name:
                said.setdefault(body["reason"], []).append(body["message"])
        return said

    def lose_pod(self, name: str) -> None:
        """A worker's pod is gone: its node was drained."""
        pods = [key for key, pod in self.cluster.objects.items() if key[0] == "pods" and key[2].startswith(f"{name}-")]
        del self.cluster.objects[pods[-1]]

    def job(self, name: str) -> HulkJob:
        """One of them."""
        return self.jobs()[name]

    def why(self, name: str) -> str:
        """The reason of its condition Planned."""
        found = condition(self.job(name).status, "Planned")  # type: ignore[arg-type]
        return found.reason if found else ""

    def num_workers(self, name: str) -> int:
        """How many workers run."""
        one = self.job(name)
        up = holds(one.status, "Running")  # type: ignore[arg-type]
        return one.status.plan.num_workers if up and one.status.plan else 0

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        """Turn until something is so."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + WAIT_S
        while not true():
            told = {name: one.status.wire() for name, one in self.jobs().items()}
            assert loop.time() < end_s, f"{what}: {told}"
            await self.turn()

    async def turns(self, number: int) -> None:
        """Some turns."""
        for _ in range(number):
            await self.turn()

    async def turn(self) -> None:
        """Watches deliver, the planner plans, each job is looked at, kubelets work."""
        if self.task is None:
            self.task = asyncio.create_task(self.planner.run())
        assert not self.task.done(), self.task.result()
        self._deliver()
        self.planner.changed()
        try:
            await self._reconcile_all()
        except KilledError:
            await self.stop()
            self.num_kills += 1
            self.restart()
        self._tick()
        self._check()
        self.now += timedelta(seconds=STEP_S)
        await asyncio.sleep(0.02)

    async def _reconcile_all(self) -> None:
        for key in sorted(key for key, _ in self.store.jobs.items()):
            self._key = key
            with suppress(ClusterError):
                await self.reconciler.reconcile(key)
        await carry_out(self.reconciler.calls)

    def _deliver(self) -> None:
        version = str(self.cluster._version)
        of = {plural: [] for plural in ("hulkjobs", "pods", "nodes")}  # type: dict[str, list[Object]]
        for (plural, _, _), body in self.cluster.objects.items():
            if plural in of:
                of[plural].append(body)
        self.store.jobs.replace(Listing(tuple(of["hulkjobs"]), version))
        self.store.nodes.replace(Listing(tuple(of["nodes"]), version))
        self.store.pods.replace(Listing(tuple(of["pods"]), version))

    def _tick(self) -> None:
        """New pods run; those that are to end save what they have done, and are gone."""
        for (plural, namespace, name), pod in list(self.cluster.objects.items()):
            if plural != "pods":
                continue
            owner = f"{namespace}/{pod['metadata']['labels'][names.LABEL_JOB]}"
            if pod["metadata"].get("deletionTimestamp"):
                if owner not in self.holds_pods:
                    self._save(owner)
                    del self.cluster.objects[plural, namespace, name]
            elif not (pod.get("status") or {}).get("phase"):
                self._run(pod)

    def _run(self, pod: Object) -> None:
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        pod["spec"]["nodeName"] = term["matchFields"][0]["values"][0]
        running = [{"name": "w", "state": {"running": {}}}]
        address = pod["metadata"]["name"]
        pod["status"] = {"phase": "Running", "podIP": address, "containerStatuses": running}
        self.cluster._store(PODS, pod)

    def _save(self, key: str) -> None:
        self.saved[key] = max(self.saved.get(key, 0), self.trained.get(key, 0))

    def _check(self) -> None:
        """No accelerator is given twice, no quota exceeded, and no checkpoint that was told of is lost."""
        used: dict[str, int] = {}
        for (plural, _, _), pod in self.cluster.objects.items():
            if plural == "pods" and pod["spec"].get("nodeName"):
                node_name = pod["spec"]["nodeName"]
                used[node_name] = used.get(node_name, 0) + 1
        for node_name, number in used.items():
            size = int(self.cluster.objects["nodes", None, node_name]["status"]["allocatable"]["nvidia.com/gpu"])
            assert number <= size, f"{number} pods on {node_name}, which has {size} accelerators"
        for namespace, limit in self.quotas.items():
            num = sum((plural, where) == ("pods", namespace) for plural, where, _ in self.cluster.objects)
            assert num <= limit, f"{num} pods in {namespace}, whose quota is {limit}"
        for one in self.jobs().values():
            if one.status.checkpoint is not None:
                assert one.status.checkpoint.step <= self.saved.get(one.key, 0), f"{one.key}: told of what is not kept"

    def _of(self, address: str) -> tuple[str, int, int] | None:
        for (plural, namespace, _), pod in self.cluster.objects.items():
            if plural == "pods" and (pod.get("status") or {}).get("podIP") == address.partition(":")[0]:
                found = worker_pod(pod)
                peers = [
                    other
                    for (kind, where, _), other in self.cluster.objects.items()
                    if (kind, where) == ("pods", namespace)
                    and other["metadata"]["labels"][names.LABEL_JOB] == pod["metadata"]["labels"][names.LABEL_JOB]
                    and other["metadata"]["labels"][names.LABEL_ATTEMPT] == str(found.attempt)
                ]
                return f"{namespace}/{pod['metadata']['labels'][names.LABEL_JOB]}", found.attempt, len(peers)
        return None

    async def metrics(self, address: str, expected: Expected) -> Observation:
        """A step further each time; from the last checkpoint on in a new attempt."""
        of = self._of(address)
        if of is None:
            raise ObserveError("silent")
        key, attempt, num = of
        begun = f"{key}#{attempt}"
        if begun not in self.trained:
            self.trained[begun] = 1
            self.trained[key] = self.saved.get(key, 0)
        self.trained[key] += 1
        step = self.trained[key]
        if step % EVERY == 0:
            self._save(key)
        return Observation(attempt, step=step, step_s=4.0 / num, loss=2.5, checkpoint_step=self.saved.get(key) or None)

    async def preflight(self, address: str, expected: Expected) -> Preflight | None:
        """Every rank computes for as long as the batch is large."""
        of = self._of(address)
        return Preflight(of[1], (4.0 / of[2],) * of[2]) if of else None

    async def start(self, address: str, attempt: int, order: str) -> None:
        """Accepted."""

    async def answers(self, address: str) -> bool:
        """Every node lives."""
        return True


def nodes(number: int, accelerators: int = 1) -> list[tuple[ApiResource, Object]]:
    """Nodes a, b, c, ... of one region, near one another."""
    known = [chr(ord("a") + index) for index in range(number)]
    links = [profile(name, {other: 100 for other in known if other != name}) for name in known]
    return [*(node(name, accelerators, cpu="64") for name in known), *links]


Make = Callable[..., QueueWorld]
"""make(*objects, **options), of which each ends with its test."""
