"""SIGKILL before and after the status write of every step of the recipe that writes nothing else.

`STORIES` says by step how a job gets there. A step without API writes that no story names fails the first test, and so
does a case that is never reached.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from faults import JOB, Corner, prepare, running, runs_as, stated, worker
from hulk_lab import kwok, up
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import HULK_JOBS, NODES, PODS, NotFound, Object, connect
from hulk_operator.reconcile.recipe import KUEUE, RECIPE, SCALE_UP, STATUS_WRITE
from hulk_operator.status import holds
from kill_cases import LOOK_S, MOMENTS, Operator, Seen, events_said_once, failures, nothing_left, selected
from killing import SILENT, KillPoint

pytestmark = pytest.mark.controlplane

NUM_NODES = 4
FAREWELL = "ended attempt={} step=10 loss=2.5 checkpoint_bytes=0"


@dataclass(frozen=True, slots=True)
class Story:
    """How a job comes to the steps that change its status, and what it has counted at its end."""

    steps: tuple[str, ...]
    tell: Callable[[Corner], Awaitable[None]]
    says: str
    failures: int = 0
    ends: str = "Succeeded"
    regions: int = 1


async def trains(corner: Corner) -> None:
    """Predicted, observed, a worker crashes, the next attempt ends well."""
    await corner.submit(vocabulary=vocabulary(corner), runPolicy={"backoffLimit": 1})
    job = await corner.until(lambda job: running(job) and job.status.observed is not None)
    crashed = (await corner.pods(attempt=job.status.attempt))[1]
    await corner.end(crashed, 1, "Traceback: boom")
    await end_well(corner, await corner.until(runs_as(job.status.attempt + 1)))


async def is_suspended(corner: Corner) -> None:
    """Suspended while it runs, and resumed."""
    await corner.submit(vocabulary=vocabulary(corner))
    first = (await corner.until(running)).status.attempt
    await corner.change({"suspend": True})
    await corner.until(lambda job: holds(job.status, "Suspended"))
    await corner.change({"suspend": False})
    await end_well(corner, await corner.until(runs_as(first + 1)))


async def waits_for_a_finalizer(corner: Corner) -> None:
    """Suspended while it runs; somebody else's finalizer keeps one of its pods for a while."""
    await corner.submit(vocabulary=vocabulary(corner))
    first = (await corner.until(running)).status.attempt
    kept = (await corner.pods(attempt=first))[1]["metadata"]["name"]
    finalizers = {"metadata": {"finalizers": ["test.example.com/export"]}}
    await corner.cluster.patch(PODS, kept, corner.name, finalizers)
    await corner.change({"suspend": True})
    job = await corner.until(lambda job: holds(job.status, "Held") and holds(job.status, "Suspended"))
    assert kept in stated(job, "Held").message
    await corner.cluster.patch(PODS, kept, corner.name, {"metadata": {"finalizers": None}})
    await corner.until(lambda job: not holds(job.status, "Held"))
    await corner.change({"suspend": False})
    await end_well(corner, await corner.until(runs_as(first + 1)))


async def is_resized(corner: Corner) -> None:
    """Three workers, then two."""
    await corner.submit(workers=3, vocabulary=vocabulary(corner))
    first = (await corner.until(running)).status.attempt
    await corner.change({"workers": {"min": 2, "max": 2}})
    await end_well(corner, await corner.until(runs_as(first + 1)))


async def is_held(corner: Corner) -> None:
    """No pod of its would be taken until its template is mended."""
    mended = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "w", "image": "none"}]}
    await corner.submit(vocabulary=vocabulary(corner), container={"imagePullPolicy": "Sometimes"})
    await corner.until(lambda job: "InvalidTemplate" in reasons(job))
    await corner.change({"suspend": True, "template": {"spec": mended}})
    await corner.change({"suspend": False})
    await end_well(corner, await corner.until(runs_as(1)))


async def is_changed(corner: Corner) -> None:
    """It is to save less often while its first attempt's pods start."""
    kept = {"storage": {"url": "s3://bucket/kept"}, "everySteps": 5}
    await corner.submit(gated=True, vocabulary=vocabulary(corner), checkpoint=kept)
    await corner.until_pods(2)
    await corner.change({"checkpoint": {"everySteps": 6}})
    await end_well(corner, await corner.until(runs_as(2), meanwhile=corner.open_gates))


async def is_degraded(corner: Corner) -> None:
    """A node of its is not ready for a moment."""
    await corner.submit(vocabulary=vocabulary(corner))
    job = await corner.until(running)
    node = (await corner.pods(attempt=job.status.attempt))[0]["spec"]["nodeName"]
    await corner.node_says(node, "False", "KubeletNotReady")
    await corner.until(lambda job: holds(job.status, "Degraded"))
    await corner.node_says(node, "True", "KubeletReady")
    await corner.until(lambda job: not holds(job.status, "Degraded"))
    await end_well(corner, job)


async def loses_a_region(corner: Corner) -> None:
    """Of three workers in two regions, the one that is alone in its region loses its peers."""
    sync = {"mode": "wan", "onRegionLoss": "continue"}
    await corner.submit(workers=3, vocabulary=vocabulary(corner), sync=sync)
    job = await corner.until(lambda job: running(job) and job.status.observed is not None)
    assert job.status.plan is not None
    (lonely,) = [share.name for share in job.status.plan.regions if share.workers == 1]
    pods = await corner.pods(attempt=job.status.attempt)
    cut_off = [pod for pod in pods if await region_of(corner, pod) == lonely]
    for pod in cut_off:
        await corner.end(pod, names.EXIT_LOST_PEER, "PeerLostError: nobody of another region answers")
    job = await corner.until(lambda job: holds(job.status, "Degraded"))
    assert job.status.membership is not None
    assert (job.status.membership.without, job.status.membership.workers) == ((lonely,), 2)
    for pod in pods:
        if pod not in cut_off:
            await corner.end(pod, 0, FAREWELL.format(job.status.attempt))
    job = await corner.until(lambda job: holds(job.status, "Succeeded"))
    assert job.status.restarts == 0


async def moves(corner: Corner) -> None:
    """The link that it trains over becomes a thousand times as slow, and there is another one."""
    nodes = [f"{corner.name}-{number}" for number in range(NUM_NODES)]
    for number, node in enumerate(nodes):
        await corner.measure(node, nodes[(number + 2) % NUM_NODES], (20_000, 30_000)[number % 2], 10**8)
    await corner.submit(vocabulary=vocabulary(corner), checkpoint={"storage": {"url": "s3://bucket/kept"}})
    job = await corner.until(lambda job: running(job) and job.status.observed is not None)
    assert job.status.plan is not None
    await corner.measure(nodes[0], nodes[2], 20_000_000, 10**8)
    await corner.measure(nodes[2], nodes[0], 20_000_000, 10**8)
    job = await corner.until(runs_as(job.status.attempt + 1))
    assert job.status.replan is not None
    assert job.status.replan.verdict == "move"
    await end_well(corner, job)


async def makes_room(corner: Corner) -> None:
    """It has every node when another one comes that can use half of them; it goes on with the others."""
    worth = {"utility": {"type": "sqrt"}, "training": {"globalBatch": 8, "steps": 100_000}}
    for source, target in permutations([f"{corner.name}-{number}" for number in range(NUM_NODES)], 2):
        await corner.measure(source, target, 100, 10**9)
    shape = {"layers": 4, "hidden": 64, "heads": 1, "sequenceLength": 4096, "vocabulary": vocabulary(corner)}
    model = {"model": {"transformer": shape}}  # much to compute and little to send
    kept = {"checkpoint": {"storage": {"url": "s3://bucket/kept"}}}
    await corner.submit(counts={"min": 1, "max": NUM_NODES}, **kept, **worth, **model)
    job = await corner.until(lambda job: running(job) and job.status.observed is not None)
    assert job.status.plan is not None
    assert job.status.plan.num_workers == NUM_NODES
    await corner.submit("other", counts={"min": 1, "max": NUM_NODES // 2}, **worth, **model)
    job = await corner.until(runs_as(job.status.attempt + 1))
    assert job.status.share is not None
    assert job.status.share.workers < NUM_NODES
    await corner.until(running, "other")
    await end_well(corner, job)
    await corner.cluster.delete(HULK_JOBS, "other", corner.name)


async def is_stuck(corner: Corner) -> None:
    """A container of its first attempt cannot start."""
    await corner.submit(gated=True, vocabulary=vocabulary(corner))
    pods = await corner.until_pods(2)
    await corner.say(pods[1], {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, "Pending")
    await corner.until(lambda job: job.status.last_failure is not None)
    await end_well(corner, await corner.until(runs_as(2), meanwhile=corner.open_gates))


async def is_gated(corner: Corner) -> None:
    """A queue holds its pods for a while."""
    await corner.submit(gated=True, vocabulary=vocabulary(corner))
    await corner.until(lambda job: holds(job.status, "Gated"))
    await end_well(corner, await corner.until(running, meanwhile=corner.open_gates))


async def is_late(corner: Corner) -> None:
    """Nothing that its pods are to be beside is there until its first attempt is over."""
    near = {"labelSelector": {"matchLabels": {"near": corner.name}}, "topologyKey": "corner"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    await corner.submit(pod={"affinity": affinity}, vocabulary=vocabulary(corner), runPolicy={"startTimeoutSeconds": 1})
    await corner.until(lambda job: job.status.last_failure is not None)
    await corner.change({"runPolicy": {"startTimeoutSeconds": 600}})
    [node, *_] = (await corner.cluster.list(NODES, labels=f"corner={corner.name}")).items
    beside = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "beside", "namespace": corner.name, "labels": {"near": corner.name}},
        "spec": {"nodeName": node["metadata"]["name"], "containers": [{"name": "c", "image": "none"}]},
    }
    await corner.cluster.create(PODS, beside)
    await end_well(corner, await corner.until(runs_as(2)))


async def is_out_of_time(corner: Corner) -> None:
    """It runs for longer than it may."""
    await corner.submit(vocabulary=vocabulary(corner), runPolicy={"activeDeadlineSeconds": 2})
    await corner.until(lambda job: holds(job.status, "Failed"))


async def hangs(corner: Corner) -> None:
    """Its first attempt makes neither a step after the first one nor output."""
    await corner.submit(vocabulary=vocabulary(corner), runPolicy={"stallSeconds": 3})
    job = await corner.until(lambda job: job.status.last_failure is not None)
    await corner.change({"runPolicy": {"stallSeconds": 0}})
    await end_well(corner, await corner.until(runs_as(job.status.attempt + 1)))


STORIES = {
    "trains": Story(
        ("plan", "up", "preflight", "observe", "broken", "complete", "saved"), trains, "Succeeded", failures=1
    ),
    "is suspended": Story(("suspend", "resume"), is_suspended, "Suspended"),
    "waits for a finalizer": Story(("held",), waits_for_a_finalizer, "Finalizers"),
    "is resized": Story(("resize",), is_resized, "Resized"),
    "is held": Story(("admit",), is_held, "InvalidTemplate"),
    "is changed": Story(("changed",), is_changed, "SpecChanged"),
    "is degraded": Story(("degraded",), is_degraded, "NodeNotReady"),
    "loses a region": Story(("regions",), loses_a_region, "RegionLost", regions=2),
    "makes room": Story(("queue",), makes_room, "Shrunk"),
    "moves": Story(("replan",), moves, "Replanned", regions=2),
    "hangs": Story(("stalled",), hangs, "Stalled", failures=1),
    "is stuck": Story(("stuck",), is_stuck, "ImagePullBackOff", failures=1),
    "is gated": Story(("gated",), is_gated, "SchedulingGates"),
    "is late": Story(("start-timeout",), is_late, "StartTimeout"),
    "is out of time": Story(("deadline",), is_out_of_time, "DeadlineExceeded", ends="Failed"),
}


def test_every_step_without_writes_of_its_own_has_a_story() -> None:
    told = {step for story in STORIES.values() for step in story.steps}
    assert {step.name for step in RECIPE if not step.writes} - told - KUEUE - SCALE_UP == SILENT


@pytest.mark.timeout(1200)
async def test_killed_while_a_step_changes_the_status(
    control_plane_lab: up.Lab, forks: ForkServerContext, tmp_path: Path
) -> None:
    kwok.start(control_plane_lab.control)
    kubeconfig = control_plane_lab.control.kubeconfig
    cluster = await connect(str(kubeconfig))
    await prepare(cluster)

    async def case(number: int, point: KillPoint, log: Path, seen: Seen) -> None:
        corner = Corner(cluster, f"kill-step-{number}")
        operator = Operator(forks, corner.name, kubeconfig, log, point, trains=True)
        story = next(story for story in STORIES.values() if point.because in story.steps)
        try:
            await corner.open(NUM_NODES, regions=story.regions)
            await go_through(corner, operator, story, seen)
        finally:
            await corner.close()

    try:
        failed = await failures(selected(cases()), tmp_path, case)
    finally:
        await cluster.close()
    assert not failed, "\n\n".join(failed)


def cases() -> Iterator[tuple[str, KillPoint]]:
    """Before and after the first status write in which each step has a part."""
    for story in STORIES.values():
        for step in story.steps:
            for moment in MOMENTS:
                yield f"{step}-changes-the-status-{moment}", KillPoint(*STATUS_WRITE, 1, moment, because=step)


async def go_through(corner: Corner, operator: Operator, story: Story, seen: Seen) -> None:
    """A story with one kill in it: the job ends as it would have, and nothing is left when it is deleted."""
    operator.keep_running()
    try:
        following = asyncio.create_task(follow(corner, seen))
        telling = asyncio.create_task(story.tell(corner))
        try:
            while not telling.done():
                operator.keep_running()
                await asyncio.sleep(LOOK_S)
            await telling
            await operator.until_killed(1)
            await corner.cluster.delete(HULK_JOBS, JOB, corner.name)
            await following
        finally:
            telling.cancel()
            following.cancel()
        seen.check()
        last = seen.statuses[-1].status
        assert holds(last, story.ends), f"last seen: {last.wire()}"
        assert (last.failures, last.disruptions) == (story.failures, 0)
        if story.ends == "Succeeded":
            assert last.observed is not None
            assert last.observed.step == 10  # rank 0's last word
        await nothing_left(corner.cluster, corner.name)
        await events_said_once(corner.cluster, corner.name, {"Planned", story.says})
    finally:
        await operator.stop()


async def follow(corner: Corner, seen: Seen) -> None:
    """From the job's creation on."""
    while True:
        with suppress(NotFound):
            created = await corner.cluster.get(HULK_JOBS, JOB, corner.name)
            return await seen.follow(corner.cluster, created)
        await asyncio.sleep(LOOK_S)


async def end_well(corner: Corner, job: HulkJob) -> None:
    """Every worker of the attempt that runs ends with 0; rank 0 tells of its last step."""
    attempt = job.status.attempt
    for pod in await corner.pods(attempt=attempt):
        await corner.end(pod, 0, FAREWELL.format(attempt) if worker(pod) == 0 else "")
    await corner.until(lambda job: holds(job.status, "Succeeded"))


def reasons(job: HulkJob) -> set[str]:
    """Of its conditions."""
    return {found.reason for found in job.status.conditions}


async def region_of(corner: Corner, pod: Object) -> str:
    """Where a pod's node is."""
    node = await corner.cluster.get(NODES, pod["spec"]["nodeName"])
    return str(node["metadata"]["labels"][names.NODE_REGION])


def vocabulary(corner: Corner) -> int:
    """For a model of its own, so that no other case has calibrated it."""
    return 1000 + int(corner.name.rpartition("-")[2])
