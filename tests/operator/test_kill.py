"""SIGKILL before and after every API write of the recipe: a job goes its whole way, nothing leaked, lost or doubled.

One job is planned, deployed, calibrated, loses a worker to exit code 1, is started again in its other pods and a new
one, succeeds and is deleted by its ttl. The kill points are the writes of one such way without a kill: each occurrence
of each write is a case before it and one after it. A write of the recipe that this way does not make fails the test,
and so does a case that is never reached.
"""

import asyncio
import itertools
import os
import signal
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import killing
import pytest
import pytest_asyncio
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.api.crds import crds
from hulk_operator.cluster import (
    CONFIG_MAPS,
    EVENTS,
    HULK_JOBS,
    NETWORK_POLICIES,
    NODE_PROFILES,
    PODS,
    SERVICES,
    ApiCluster,
    ApiResource,
    Conflict,
    NotFound,
    Object,
    connect,
)
from hulk_operator.reconcile.recipe import writes
from hulk_operator.status import holds
from killing import KillPoint, Record

pytestmark = pytest.mark.controlplane

CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)
CHILDREN = (PODS, SERVICES, CONFIG_MAPS, NETWORK_POLICIES)
NUM_NODES = 6
NUM_WORKERS = 3
NUM_AT_ONCE = 4
CASE_S = 300.0  # a guard, not a measure: a case takes some 5 s on an idle machine
JOB = "whole-way"
LEASE_WRITE = ("lease", "patch leases")  # made every few seconds: its first is a kill point
MOMENTS = ("before", "after")


def name_of(point: KillPoint) -> str:
    """For people, and $KILL_CASES."""
    write = point.write.replace(" ", "-").replace("/", "-")
    return f"{point.step}-{write}-{point.number}-{point.moment}"


def cases(recorded: Counter[tuple[str, str]]) -> Iterator[KillPoint]:
    """Before and after each occurrence of each write that was recorded, and the lease's first."""
    for step, write in [LEASE_WRITE, *writes()]:
        for number in range(1, (1 if (step, write) == LEASE_WRITE else recorded[step, write]) + 1):
            for moment in MOMENTS:
                yield KillPoint(step, write, number, moment)


@dataclass(slots=True)
class Seen:
    """What was seen of one job on its way."""

    statuses: list[HulkJob] = field(default_factory=list)
    num_kills: int = 0

    def note(self, job: HulkJob) -> None:
        """One more look."""
        self.statuses.append(job)


class Operator:
    """The operator's process, started again whenever it was killed; only the first one has a kill point."""

    def __init__(self, forks: ForkServerContext, arguments: tuple[Any, ...], point: KillPoint | Record | None) -> None:
        self._forks = forks
        self._arguments = arguments
        self._point = point
        self._process: BaseProcess | None = None
        self.num_kills = 0

    def keep_running(self) -> None:
        """Start it when it does not run. Only a SIGKILL is a reason not to."""
        if self._process is not None:
            if self._process.exitcode is None:
                return
            assert self._process.exitcode == -signal.SIGKILL, f"operator ended by itself: {self._process.exitcode}"
            self.num_kills += 1
            self._point = None
        self._process = self._forks.Process(target=killing.entry, args=(*self._arguments, self._point))
        self._process.start()

    async def stop(self) -> int:
        """SIGTERM; answers its exit code."""
        assert self._process is not None
        self._process.terminate()
        while self._process.exitcode is None:
            await asyncio.sleep(0.05)
        return self._process.exitcode


@pytest_asyncio.fixture
async def cluster(control_plane: Path) -> AsyncIterator[ApiCluster]:
    """The API server with the CRDs."""
    connected = await connect(str(control_plane))
    try:
        for crd in crds():
            await connected.apply(CRDS, crd["metadata"]["name"], None, crd, field_manager="test")
        yield connected
    finally:
        await connected.close()


@pytest.mark.timeout(1800)  # two operators and a whole job for each of about 50 kill points
async def test_killed_anywhere_a_job_goes_its_way(
    cluster: ApiCluster, control_plane: Path, kwok_nodes: Any, forks: ForkServerContext, tmp_path: Path
) -> None:
    kwok_nodes(NUM_NODES, accelerators=64)

    def operator(number: int, log: Path, point: KillPoint | Record) -> Operator:
        return Operator(forks, (namespace_of(number), control_plane, log), point)

    recorded = await record(cluster, operator, tmp_path)
    places = asyncio.Semaphore(NUM_AT_ONCE)
    numbers = itertools.count()

    async def one(point: KillPoint) -> str:
        async with places:
            number, name, seen = next(numbers), name_of(point), Seen()
            log = tmp_path / f"{name}.log"
            try:
                async with asyncio.timeout(CASE_S):
                    await whole_way(cluster, operator(number, log, point), number, seen)
            except (AssertionError, TimeoutError):
                last = [job.status.wire() for job in seen.statuses[-1:]]
                return f"{name}: {traceback.format_exc()}\n{last}\n{log.read_text()[-3000:]}"
            return ""

    failed = [failure for failure in await asyncio.gather(*(one(point) for point in selected(recorded))) if failure]
    assert not failed, "\n\n".join(failed)


async def record(
    cluster: ApiCluster, operator: Callable[[int, Path, Record], Operator], tmp_path: Path
) -> Counter[tuple[str, str]]:
    """How often the way makes each write of the recipe, from one way without a kill; it makes all of them."""
    written = tmp_path / "written"
    async with asyncio.timeout(CASE_S):
        await whole_way(cluster, operator(999, tmp_path / "record.log", Record(written)), 999, Seen(), kills=0)
    found = Counter(tuple(line.split("\t", 1)) for line in written.read_text().splitlines())
    of_steps: Counter[tuple[str, str]] = Counter(
        {(step, write): times for (step, write), times in found.items() if step and (step, write) != LEASE_WRITE}
    )
    assert of_steps.keys() == set(writes()), "every write of the recipe is on the way, and no other one"
    return of_steps


def selected(recorded: Counter[tuple[str, str]]) -> list[KillPoint]:
    """All cases, or those whose name contains $KILL_CASES, to look at one of them."""
    return [point for point in cases(recorded) if os.environ.get("KILL_CASES", "") in name_of(point)]


def namespace_of(number: int) -> str:
    """Of one case."""
    return f"kill-{number}"


async def whole_way(cluster: ApiCluster, operator: Operator, number: int, seen: Seen, kills: int = 1) -> None:
    """One job from its creation to its deletion, with one kill or none."""
    namespace = namespace_of(number)
    await cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    operator.keep_running()
    try:
        while len((await cluster.list(NODE_PROFILES)).items) < NUM_NODES:  # there a measured speed is written down
            operator.keep_running()
            await asyncio.sleep(0.1)
        created = await cluster.create(HULK_JOBS, manifest(namespace, number))
        following = asyncio.create_task(follow(cluster, created, seen))
        try:
            while not following.done():
                operator.keep_running()
                if seen.statuses:
                    await be_the_world(cluster, seen.statuses[-1], first_running(seen))
                await asyncio.sleep(0.1)
            await following
        finally:
            following.cancel()
        check_story(seen)
        while operator.num_kills < kills:  # the last write's kill may come after the job is gone
            operator.keep_running()
            await asyncio.sleep(0.1)
        await nothing_left(cluster, namespace)
        await events_said_once(cluster, namespace)
    finally:
        code = await operator.stop()
    assert code in (0, -signal.SIGTERM), f"SIGTERM ended the operator with {code}"


async def follow(cluster: ApiCluster, job: Object, seen: Seen) -> None:
    """Every version of a job until it is deleted."""
    meta = job["metadata"]
    async for change in cluster.watch(HULK_JOBS, meta["namespace"], resource_version=meta["resourceVersion"]):
        if change.type != "BOOKMARK":
            seen.note(HulkJob.model_validate(change.object))
        if change.type == "DELETED":
            return


def manifest(namespace: str, number: int) -> Object:
    """The job; a model of its own, so that no other case has calibrated it."""
    shape = {"layers": 2, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": 256 + number}
    worker = {"name": "w", "image": "none", "command": ["hulk-launch"]}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {"name": JOB, "namespace": namespace},
        "spec": {
            "workers": {"min": NUM_WORKERS, "max": NUM_WORKERS},
            "model": {"transformer": shape},
            "training": {"globalBatch": 6, "steps": 10},
            "placement": {"allowUnknownLinks": True},
            "runPolicy": {"backoffLimit": 1, "ttlSecondsAfterFinished": 2},
            "template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [worker]}},
        },
    }


def first_running(seen: Seen) -> int:
    """The first attempt that was seen to run; 0 before that."""
    return next((job.status.attempt for job in seen.statuses if _predicted_and_running(job)), 0)


def _predicted_and_running(job: HulkJob) -> bool:
    prediction = job.status.prediction
    return holds(job.status, "Running") and prediction is not None and prediction.attempt == job.status.attempt


async def be_the_world(cluster: ApiCluster, job: HulkJob, first: int) -> None:
    """A worker of the first attempt that runs crashes; the workers of a later one end well."""
    if not _predicted_and_running(job):
        return
    attempt, namespace = job.status.attempt, job.metadata.namespace
    selector = names.worker_labels(JOB, attempt, 0) if attempt == first else names.attempt_labels(JOB, attempt)
    phase, code = ("Failed", 1) if attempt == first else ("Succeeded", 0)
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    for pod in (await cluster.list(PODS, namespace, labels=labels)).items:
        with suppress(NotFound, Conflict):
            ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": "Traceback: boom"}
            container = {"name": "w", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
            status = {"phase": phase, "containerStatuses": [{**container, "state": {"terminated": ended}}]}
            if pod["status"].get("phase") == "Running":
                name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
                await cluster.patch(
                    PODS, name, namespace, {"status": status}, subresource="status", resource_version=version
                )


def check_story(seen: Seen) -> None:
    """Attempts only grow, the failure is counted once and kept, a prediction is never edited, the end is good."""
    statuses = [job.status for job in seen.statuses]
    attempts = [status.attempt for status in statuses]
    assert attempts == sorted(attempts)
    last = statuses[-1]
    assert holds(last, "Succeeded"), f"last seen: {last.wire()}"
    assert last.failures == 1
    assert last.disruptions == 0
    assert last.last_failure is not None
    assert last.last_failure.exit_code == 1
    assert last.last_failure.message == "Traceback: boom"
    assert last.restarts == last.attempt - 1
    predictions: dict[int, Any] = {}
    for status in statuses:
        if status.prediction is not None:
            known = predictions.setdefault(status.prediction.attempt, status.prediction)
            assert status.prediction == known, "a prediction was edited"


async def nothing_left(cluster: ApiCluster, namespace: str) -> None:
    """Everything that was made for the job is gone with it."""
    labels = f"{names.LABEL_MANAGED_BY}={names.MANAGER}"
    while True:
        left = [item for kind in CHILDREN for item in (await cluster.list(kind, namespace, labels=labels)).items]
        if not left:
            return
        await asyncio.sleep(0.2)


async def events_said_once(cluster: ApiCluster, namespace: str) -> None:
    """No event says the same twice, and the story is complete."""
    events = [item for item in (await cluster.list(EVENTS, namespace)).items if item["involvedObject"]["name"] == JOB]
    said = [(item["reason"], item["message"]) for item in events]
    assert len(said) == len(set(said)), sorted(said)
    assert all(item["count"] == 1 for item in events)
    assert {"Planned", "Deployed", "Running", "Error", "Succeeded"} <= {reason for reason, _ in said}, sorted(said)
