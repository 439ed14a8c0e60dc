"""An operator that kills itself: run by test_kill.py in processes of its own, with the product's operator in it.

SIGKILL hits the process just before or just after (`moment`) the `number`-th `write` that `step` asks for; or nothing
is killed, and a file gets a line "STEP<tab>WRITE" for each write. A status write can be told by the step that changed
the status (`because`). Pods that kwok simulates have no processes, so rank 0's answers are given here.
"""

import asyncio
import json
import logging
import os
import signal
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from hulk_operator import names
from hulk_operator.cluster import (
    CONFIG_MAPS,
    ORIGIN,
    PODS,
    ApiResource,
    Change,
    Cluster,
    LeaseLost,
    Listing,
    NotFound,
    Object,
    connect,
)
from hulk_operator.handlers.operator import run
from hulk_operator.handlers.serving import serve
from hulk_operator.handlers.settings import Settings
from hulk_operator.metrics import Health
from hulk_operator.observation import Expected, Observation, ObservedLink, Preflight
from hulk_operator.pods import WorkerPod, worker_pod
from hulk_operator.reconcile import reconciler
from hulk_operator.reconcile.recipe import RECIPE, Decision, decide
from hulk_operator.reconcile.types import Outcome, Step, Timing, View
from hulk_operator.worker_client import ObserveError
from hulk_placement.fleet.types import Settings as Fleet
from hulk_placement.replan.decide import Policy
from kubernetes.config import kube_config

TIMING = Timing(
    backoff_s=0.2,
    settle_s=0.5,
    alone_s=0.2,
    poll_s=0.2,
    preflight_poll_s=0.1,
    leftover_s=5.0,
    avoid_node_s=1.0,
    resync_s=5.0,
    review_s=0.5,
)
POLICY = Policy(hold_s=0.0)
FLEET = Fleet(settle_s=0.0)
SILENT = frozenset({"foreign", "deleting", "backoff", "drain", "start"})
"""Steps that neither write anything nor change the status: they end or delay a pass, or talk to rank 0."""
EXIT_LEASE_LOST = 75
"""The API server was too slow for the operator to keep its lease: it ends, as it must, and is started again."""
CHANGED: ContextVar[tuple[str, ...]] = ContextVar("CHANGED", default=())
"""The steps that changed the status in this pass."""


@dataclass(slots=True)
class KillPoint:
    """Where the process dies. Writes are counted in a file, because a process that loses its lease has a successor."""

    step: str
    write: str
    number: int
    moment: str
    because: str = ""
    count: Path = Path(os.devnull)

    def reached(self, write: str) -> bool:
        """Whether the write that begins now is the one."""
        if (ORIGIN.get(), write) != (self.step, self.write) or (self.because and self.because not in CHANGED.get()):
            return False
        with self.count.open("ab") as count:
            count.write(b".")
            return count.tell() == self.number


@dataclass(frozen=True, slots=True)
class Record:
    """Writes down what is written, and never dies."""

    file: Path
    moment: str = "never"

    def reached(self, write: str) -> bool:
        """Never."""
        with self.file.open("a") as lines:
            lines.write(f"{ORIGIN.get()}\t{write}\n")
        return False


class Killing:
    """A `Cluster` that dies at a kill point.

    One object's deletion counts once: a pass that comes before the deletion is seen deletes again, sooner or later as
    the machine is busy, and there is no telling whether it will.
    """

    def __init__(self, inner: Cluster, point: KillPoint | Record) -> None:
        self._inner = inner
        self._point = point
        self._deleted: set[tuple[str, str | None, str, str | None]] = set()

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        return await self._inner.get(resource, name, namespace)

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Listing:
        return await self._inner.list(resource, namespace, labels=labels, fields=fields)

    def pages(self, resource: ApiResource, namespace: str | None = None, **options: Any) -> AsyncIterator[Listing]:
        return self._inner.pages(resource, namespace, **options)

    async def version(self, resource: ApiResource, namespace: str | None = None) -> str:
        return await self._inner.version(resource, namespace)

    def watch(self, resource: ApiResource, namespace: str | None = None, **options: Any) -> AsyncIterator[Change]:
        return self._inner.watch(resource, namespace, **options)

    async def create(self, resource: ApiResource, body: Object) -> Object:
        return await self._write(f"create {resource.plural}", self._inner.create(resource, body))

    async def try_create(self, resource: ApiResource, body: Object) -> None:
        await self._inner.try_create(resource, body)

    async def patch(
        self, resource: ApiResource, name: str, namespace: str | None, change: Mapping[str, Any], **options: Any
    ) -> Object:
        sent = self._inner.patch(resource, name, namespace, change, **options)
        return await self._write(f"patch {resource.plural}{_part(options)}", sent)

    async def apply(
        self, resource: ApiResource, name: str, namespace: str | None, body: Mapping[str, Any], **options: Any
    ) -> Object:
        sent = self._inner.apply(resource, name, namespace, body, **options)
        return await self._write(f"apply {resource.plural}{_part(options)}", sent)

    async def delete(self, resource: ApiResource, name: str, namespace: str | None = None, **options: Any) -> None:
        sent = self._inner.delete(resource, name, namespace, **options)
        key = resource.plural, namespace, name, options.get("uid")
        if key in self._deleted:
            await sent
            return
        self._deleted.add(key)
        await self._write(f"delete {resource.plural}", sent)

    async def delete_all(self, resource: ApiResource, namespace: str, *, labels: str) -> None:
        await self._write(f"delete {resource.plural}", self._inner.delete_all(resource, namespace, labels=labels))

    async def log(self, pod: str, namespace: str, **options: Any) -> tuple[str, ...]:
        """Always the same line: there are no kubelets to ask."""
        return ("a line",)

    async def _write(self, name: str, sent: Any) -> Any:
        now = self._point.reached(name)
        if now and self._point.moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await sent
        finally:
            if now:
                os.kill(os.getpid(), signal.SIGKILL)


def _part(options: Mapping[str, Any]) -> str:
    return f"/{options['subresource']}" if options.get("subresource") else ""


class Answers:
    """Rank 0 of any attempt: a preflight at once; a first step when it was told to start, if it `trains` at all.

    It tells of the link between two nodes of the gang: of one direction before the start, of the other one after it,
    so that the first poll of either kind has something to write down. Workers that lost their peers are left out.
    """

    def __init__(self, cluster: Cluster, namespace: str, trains: bool) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._trains = trains
        self._started: int | None = None

    async def preflight(self, address: str, expected: Expected) -> Preflight | None:
        """Half a second on every rank, of the attempt whose pod has the address."""
        gang = await self._gang(address)
        return Preflight(gang[0].attempt, (0.5,) * len(gang)) if gang else None

    async def metrics(self, address: str, expected: Expected) -> Observation:
        """A link, and the first step."""
        gang = await self._gang(address)
        ends = sorted({pod.node for pod in gang}, reverse=self._started is not None)
        links = tuple(ObservedLink(source, target, 0.08, 1e6) for source, target in pairwise(ends))[:1]
        if self._started is None or not self._trains:
            return Observation(links=links)
        cut_off = frozenset(pod.worker for pod in gang if pod.exit and pod.exit.code == names.EXIT_LOST_PEER)
        epoch = 1 if cut_off else 0
        return Observation(self._started, step=1, step_s=1.0, loss=2.5, links=links, epoch=epoch, absent=cut_off)

    async def start(self, address: str, attempt: int, order: str) -> None:
        """Accepted, if it is the order of the operator that made the pods, which may be killed by now."""
        if await self._start_digest(address) != sha256(order.encode()).hexdigest():
            raise ObserveError(f"{address} does not know the order to begin attempt {attempt}")
        self._started = attempt

    async def answers(self, address: str) -> bool:
        """Every node lives."""
        return True

    async def _start_digest(self, address: str) -> str:
        """What the pod at an address knows the order by: its environment, or what pods that stay are told."""
        found = await self._cluster.list(PODS, self._namespace, fields=f"status.podIP={address.partition(':')[0]}")
        (pod,) = found.items
        name = names.gang_config_map(pod["metadata"]["labels"][names.LABEL_JOB])
        with suppress(NotFound):
            told = await self._cluster.get(CONFIG_MAPS, name, self._namespace)
            return str(json.loads(told["data"][names.GANG_ENVIRONMENT_KEY])[names.ENV_START_DIGEST])
        given = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        return str(given[names.ENV_START_DIGEST])

    async def _gang(self, address: str) -> list[WorkerPod]:
        """By worker, the pods of the attempt whose pod has the address."""
        found = await self._cluster.list(PODS, self._namespace, fields=f"status.podIP={address.partition(':')[0]}")
        attempts = [pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in found.items]
        if not attempts:
            return []
        pods = await self._cluster.list(PODS, self._namespace, labels=f"{names.LABEL_ATTEMPT}={attempts[0]}")
        return sorted(map(worker_pod, pods.items), key=lambda pod: pod.worker)


def noting(view: View) -> Decision:
    """The whole recipe, noting which steps change the status."""
    changed: list[str] = []

    def noted(step: Step) -> Step:
        def decided(seen: View) -> Outcome:
            outcome = step.decide(seen)
            if outcome.status is not None and outcome.status != seen.status:
                assert step.name not in SILENT, f"step {step.name} changes the status: it needs kill cases"
                changed.append(step.name)
            return outcome

        return replace(step, decide=decided)

    decision = decide(view, [noted(step) for step in RECIPE])
    CHANGED.set(tuple(changed))
    return decision


async def main(namespace: str, trains: bool, point: KillPoint | Record | None) -> None:
    """Run until killed or stopped."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    real = await connect(os.environ["KUBECONFIG"])
    # The same identity takes its own lease over at once, as a container that is restarted in its pod does.
    settings = Settings(
        "killing", namespace, namespace, lease_s=30, metrics_port=0, timing=TIMING, policy=POLICY, fleet=FLEET
    )
    cluster: Cluster = Killing(real, point or Record(Path(os.devnull)))
    reconciler.decide = noting
    try:
        await run(cluster, Answers(real, namespace, trains), settings, Health(), serve, real.clock.now)
    finally:
        await real.close()


def entry(namespace: str, kubeconfig: Path, log: Path, trains: bool, point: KillPoint | Record | None) -> None:
    """The process: its output goes to the end of `log`."""
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    # For Kopf, which logs in by itself: the client library has read the variable when it was imported.
    os.environ["KUBECONFIG"] = kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(kubeconfig)
    if isinstance(point, KillPoint):
        point.count = log.with_suffix(".count")
    code = 1
    try:
        asyncio.run(main(namespace, trains, point))
        code = 0
    except LeaseLost:
        code = EXIT_LEASE_LOST
        raise
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)  # multiprocessing's way out may wait for the planner's process, which now dies with this one
