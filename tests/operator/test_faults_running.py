"""What goes wrong while a gang runs, and what ends, interrupts or delays it on purpose.

Each fault has a corner of the cluster of its own; all of them are under way at once, in one real operator.
"""

import asyncio
from collections import Counter

import pytest
from faults import (
    JOB,
    Corner,
    Faults,
    planned_node,
    running,
    runs_as,
    stated,
    until,
    why_not_planned,
)
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.cluster import PODS, ApiResource, NotFound, Object
from hulk_operator.status import holds

pytestmark = [pytest.mark.controlplane, pytest.mark.asyncio(loop_scope="module")]

FAULTS = Faults()


@FAULTS.take
async def a_worker_fails(corner: Corner) -> None:
    """Counted and kept with exit code, node and last words; the second time is one too many."""
    await corner.open(2)
    await corner.submit(runPolicy={"backoffLimit": 1})
    job = await corner.until(running)
    (first, second) = await corner.pods()
    await corner.end(second, 3, "Traceback: no such file")
    await corner.end(first, names.EXIT_LOST_PEER, "lost a peer")
    job = await corner.until(runs_as(2))
    last = job.status.last_failure
    assert last is not None
    assert (last.attempt, last.pod, last.exit_code) == (1, f"{JOB}-1-1", 3)
    assert (last.node, last.message) == (second["spec"]["nodeName"], "Traceback: no such file")
    assert (job.status.failures, job.status.disruptions, job.status.restarts) == (1, 0, 1)
    pods = await corner.pods(attempt=2)
    assert {attempt_of(pod) for pod in pods} == {"2"}
    await corner.end(pods[0], 1, "Traceback: again")
    job = await corner.until(lambda job: holds(job.status, ConditionType.FAILED))
    assert stated(job, ConditionType.FAILED).reason == "BackoffLimitExceeded"
    assert "2 failures are more than backoffLimit = 1" in stated(job, ConditionType.FAILED).message
    await corner.until_empty()
    job = await corner.job()
    assert job.status.last_failure is not None
    assert job.status.last_failure.message == "Traceback: again"
    assert job.status.completion_time is not None


@FAULTS.take
async def a_user_error(corner: Corner) -> None:
    """A wrong configuration is not tried again."""
    await corner.open(2)
    await corner.submit()
    await corner.until(running)
    await corner.end(
        (await corner.pods())[0], names.EXIT_USER_ERROR, "ConfigurationError: globalBatch 8 does not divide"
    )
    job = await corner.until(lambda job: holds(job.status, ConditionType.FAILED))
    assert (stated(job, ConditionType.FAILED).reason, job.status.attempt) == ("UserError", 1)
    assert "globalBatch 8 does not divide" in stated(job, ConditionType.FAILED).message


@FAULTS.take
async def a_node_dies(corner: Corner) -> None:
    """No failure: the job runs on elsewhere at once, and the dead node's accelerator is not handed out."""
    await corner.open(3)
    await corner.submit()
    await corner.until(running)
    kept = (await corner.pods())[1]
    dead = kept["spec"]["nodeName"]
    await corner.cluster.patch(
        PODS, kept["metadata"]["name"], corner.name, {"metadata": {"finalizers": ["test.example.com/no-kubelet"]}}
    )
    await die(corner, dead)
    job = await corner.until(runs_as(2))
    assert (job.status.failures, job.status.disruptions, job.status.restarts) == (0, 1, 1)
    assert job.status.last_failure is not None
    assert (job.status.last_failure.reason, job.status.last_failure.node) == ("NodeLost", dead)
    left = await corner.pods(attempt=1)
    assert [pod["metadata"]["name"] for pod in left] == [kept["metadata"]["name"]]
    assert dead not in {pod["spec"]["nodeName"] for pod in await corner.pods(attempt=2)}


@FAULTS.take
async def an_eviction(corner: Corner) -> None:
    """A drain takes a worker: no failure."""
    await corner.open(2)
    await corner.submit()
    await corner.until(running)
    name = (await corner.pods())[0]["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": corner.name}}
    await corner.cluster.create(ApiResource("", "v1", f"pods/{name}/eviction", "Eviction"), body)
    job = await corner.until(runs_as(2))
    assert (job.status.failures, job.status.disruptions) == (0, 1)


@FAULTS.take
async def suspend_and_resume(corner: Corner) -> None:
    """Suspended when its pods are gone; another job has the room meanwhile; resumes by itself when it is free."""
    await corner.open(2)
    await corner.submit()
    await corner.until(running)
    await corner.submit("other")
    await corner.until(lambda job: bool(why_not_planned(job)), "other")
    await corner.change({"suspend": True})
    job = await corner.until(lambda job: holds(job.status, ConditionType.SUSPENDED))
    assert job.status.phase == "Suspended"
    await corner.until_empty()
    await corner.until(running, "other")
    await corner.change({"suspend": False})
    job = await corner.until(lambda job: why_not_planned(job).startswith("NotEnoughAccelerators"))
    for pod in await corner.pods("other"):
        await corner.end(pod, 0)
    job = await corner.until(running)
    assert (job.status.attempt, job.status.failures, job.status.disruptions) == (2, 0, 0)
    assert not holds(job.status, ConditionType.SUSPENDED)


@FAULTS.take
async def too_long(corner: Corner) -> None:
    """activeDeadlineSeconds ends a job, ttlSecondsAfterFinished removes it."""
    await corner.open(2)
    await corner.submit(runPolicy={"activeDeadlineSeconds": 3600})
    await corner.until(running)
    await corner.change({"runPolicy": {"activeDeadlineSeconds": 1}})
    job = await corner.until(lambda job: holds(job.status, ConditionType.FAILED))
    assert stated(job, ConditionType.FAILED).reason == "DeadlineExceeded"
    assert "activeDeadlineSeconds = 1 s" in stated(job, ConditionType.FAILED).message
    await corner.until_empty()
    await corner.change({"runPolicy": {"ttlSecondsAfterFinished": 1}})

    async def gone() -> bool:
        try:
            await corner.job()
        except NotFound:
            return True
        return False

    await until(gone, lambda: "the job is still there")


@FAULTS.take
async def many_jobs(corner: Corner) -> None:
    """Ten jobs on room for four: never two on one accelerator, and all of them end."""
    await corner.open(4, accelerators=2)
    jobs = [f"job-{number}" for number in range(10)]
    for job in jobs:
        await corner.submit(job)

    async def look() -> list[HulkJob]:
        pods = [pod for pod in (await corner.cluster.list(PODS, corner.name)).items if alive(pod)]
        taken = Counter(planned_node(pod) for pod in pods)
        assert max(taken.values(), default=0) <= 2, taken
        return [await corner.job(job) for job in jobs]

    async def full() -> bool:
        found = await look()
        waiting = [job for job in found if why_not_planned(job).startswith("NotEnoughAccelerators: ")]
        return len(waiting) == 6 and sum(map(running, found)) == 4

    async def all_done() -> bool:
        found = await look()
        for job in found:
            if running(job):
                await end_all(corner, job.metadata.name)
        return all(holds(job.status, ConditionType.SUCCEEDED) for job in found)

    await until(full, lambda: "not four jobs run while six wait")
    await until(all_done, lambda: "not all jobs ended")
    assert {(await corner.job(job)).status.attempt for job in jobs} == {1}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_running_job_is_counted_and_carried_on(outcomes: dict[str, asyncio.Task[None]], name: str) -> None:
    await outcomes[name]


def alive(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def attempt_of(pod: Object) -> str:
    return next(
        str(entry["value"]) for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == names.ENV_ATTEMPT
    )


async def end_all(corner: Corner, job: str) -> None:
    for pod in await corner.pods(job):
        if alive(pod):
            await corner.end(pod, 0)


async def die(corner: Corner, node: str) -> None:
    """The node controller's word for a node whose kubelet is silent."""
    await corner.node_says(node, "Unknown", "NodeStatusUnknown")
