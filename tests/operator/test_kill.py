"""SIGKILL before and after every API write of the recipe: a job goes its whole way, nothing leaked, lost or doubled.

One job is planned, deployed, calibrated, loses a worker to exit code 1, is started again in its other pods and a new
one, succeeds and is deleted by its ttl. The kill points are the writes of one such way without a kill: each occurrence
of each write is a case before it and one after it. A write of the recipe that this way does not make fails the test,
and so does a case that is never reached; what concerns Kueue is in `test_kueue_kill`. Each case has as many nodes of
its own as workers, with one accelerator each: so there are links between them, and every way has the same number of
writes.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import pytest_asyncio
from faults import CRDS, JOB, Corner
from hulk_lab import kwok, up
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.api.crds import crds
from hulk_operator.cluster import HULK_JOBS, NODE_PROFILES, PODS, ApiCluster, Conflict, NotFound, connect
from hulk_operator.reconcile.recipe import KUEUE, POD_GROUPS, writes
from hulk_operator.status import holds
from kill_cases import CASE_S, LOOK_S, MOMENTS, Operator, Seen, events_said_once, failures, nothing_left, selected
from killing import KillPoint, Record

pytestmark = pytest.mark.controlplane

NUM_WORKERS = 3
LEASE_WRITE = ("lease", "patch leases")  # made every few seconds: its first is a kill point


def name_of(point: KillPoint) -> str:
    """For people, and $KILL_CASES."""
    write = point.write.replace(" ", "-").replace("/", "-")
    return f"{point.step}-{write}-{point.number}-{point.moment}"


def cases(recorded: Counter[tuple[str, str]]) -> Iterator[tuple[str, KillPoint]]:
    """Before and after each occurrence of each write that was recorded, and the lease's first."""
    for step, write in [LEASE_WRITE, *writes()]:
        for number in range(1, (1 if (step, write) == LEASE_WRITE else recorded[step, write]) + 1):
            for moment in MOMENTS:
                point = KillPoint(step, write, number, moment)
                yield name_of(point), point


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
    cluster: ApiCluster, control_plane_lab: up.Lab, control_plane: Path, forks: ForkServerContext, tmp_path: Path
) -> None:
    kwok.start(control_plane_lab.control)

    async def way(number: int, point: KillPoint | Record, log: Path, seen: Seen, kills: int = 1) -> Operator:
        corner = Corner(cluster, f"kill-{number}")
        operator = Operator(forks, corner.name, control_plane, log, point)
        try:
            await corner.open(NUM_WORKERS)
            await whole_way(corner, operator, number, seen, kills)
        finally:
            await corner.close()
        return operator

    async def case(number: int, point: KillPoint, log: Path, seen: Seen) -> None:
        await way(number, point, log, seen)

    async def record() -> Counter[tuple[str, str]]:
        """The writes of one way by one process: a successor would look at everything again."""
        for number in range(999, 990, -1):
            written = tmp_path / f"written-{number}"
            async with asyncio.timeout(CASE_S):
                operator = await way(number, Record(written), tmp_path / "record.log", Seen(), kills=0)
            if not operator.num_leases_lost:
                return counted(written)
        raise AssertionError("the API server is too slow for any operator to keep its lease")

    recorded = await record()
    failed = await failures(selected(cases(recorded)), tmp_path, case)
    assert not failed, "\n\n".join(failed)


def counted(written: Path) -> Counter[tuple[str, str]]:
    """How often the way makes each write of the recipe, from one way without a kill; it makes all of them."""
    found = Counter(tuple(line.split("\t")) for line in written.read_text().splitlines())
    of_steps: Counter[tuple[str, str]] = Counter(
        {(step, write): times for (step, write), times in found.items() if step and (step, write) != LEASE_WRITE}
    )
    on_the_way = {(step, write) for step, write in writes() if step not in KUEUE} - POD_GROUPS
    assert of_steps.keys() == on_the_way, "every write of the recipe is on the way, and no other one"
    return of_steps


async def whole_way(corner: Corner, operator: Operator, number: int, seen: Seen, kills: int) -> None:
    """One job from its creation to its deletion, with one kill or none."""
    cluster = corner.cluster
    operator.keep_running()
    try:
        while await num_profiles(corner) < NUM_WORKERS:  # there speeds and links are written down
            operator.keep_running()
            await asyncio.sleep(LOOK_S)
        await submit(corner, number)
        created = await cluster.get(HULK_JOBS, JOB, corner.name)
        following = asyncio.create_task(seen.follow(cluster, created))
        try:
            while not following.done():
                operator.keep_running()
                if seen.statuses:
                    await be_the_world(cluster, seen.statuses[-1], first_running(seen))
                await asyncio.sleep(LOOK_S)
            await following
        finally:
            following.cancel()
        check_story(seen)
        await operator.until_killed(kills)
        await nothing_left(cluster, corner.name)
        await events_said_once(cluster, corner.name, {"Planned", "Deployed", "Running", "Error", "Succeeded"})
    finally:
        await operator.stop()


async def num_profiles(corner: Corner) -> int:
    """How many of the corner's nodes have a NodeProfile."""
    profiles = (await corner.cluster.list(NODE_PROFILES)).items
    return sum(profile["metadata"]["name"].startswith(f"{corner.name}-") for profile in profiles)


async def submit(corner: Corner, number: int) -> None:
    """The job; a model of its own, so that no other case has calibrated it."""
    await corner.submit(
        workers=NUM_WORKERS,
        vocabulary=256 + number,
        container={"command": ["hulk-launch"]},
        runPolicy={"backoffLimit": 1, "ttlSecondsAfterFinished": 2},
    )


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
    """The failure is counted once and kept, and the end is good."""
    seen.check()
    last = seen.statuses[-1].status
    assert holds(last, "Succeeded"), f"last seen: {last.wire()}"
    assert last.failures == 1
    assert last.disruptions == 0
    assert last.last_failure is not None
    assert last.last_failure.exit_code == 1
    assert last.last_failure.message == "Traceback: boom"
