"""What API server and kubelet refuse while a gang starts.

Each fault has a corner of the cluster of its own; all of them are under way at once, in one real operator.
What a dry run finds holds the job before anything is planned. Otherwise the gang is released as a whole with the
server's words and tried again with back-off. Either way it starts when the cause is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from faults import (
    ACCOUNTS,
    JOB,
    LIMITS,
    NAMESPACES,
    QUOTAS,
    Corner,
    Faults,
    running,
    runs_as,
    until,
)
from hulk_lab.control_plane import SECOND_SCHEDULER
from hulk_operator.cluster import DEVICE_CLASSES, EVENTS, HULK_JOBS, RESOURCE_SLICES, Object
from hulk_operator.status import condition

pytestmark = [pytest.mark.controlplane, pytest.mark.asyncio(loop_scope="module")]

FAULTS = Faults()


async def refused(corner: Corner, reason: str, words: str, cure: Callable[[], Awaitable[object]]) -> None:
    """The gang is released as a whole with the server's words, tried again, and starts when the cause is gone."""
    job = await corner.until(lambda job: job.status.attempt >= 2 and job.status.last_failure is not None)
    last = job.status.last_failure
    assert last is not None
    assert (last.reason, job.status.failures) == (reason, 0)
    assert words in last.message
    await corner.until_pods(0, attempt=1)
    await cure()
    job = await corner.until(running)
    assert len(await corner.until_pods(job.status.plan.num_workers if job.status.plan else 0)) >= 2
    assert job.status.failures == 0


async def held(corner: Corner, reason: str, words: str, cure: Callable[[], Awaitable[object]]) -> None:
    """No pod would be taken: nothing is planned or created until the cause is gone."""
    job = await corner.until(lambda job: bool((found := condition(job.status, "Planned")) and found.reason == reason))
    found = condition(job.status, "Planned")
    assert found is not None
    assert words in found.message
    assert (job.status.attempt, job.status.last_failure) == (0, None)
    assert await corner.pods() == []
    await cure()
    job = await corner.until(running)
    assert (job.status.attempt, job.status.failures) == (1, 0)


@FAULTS.take
async def a_quota_halfway(corner: Corner) -> None:
    """A ResourceQuota admits two of four pods."""
    await corner.open(4)
    await corner.cluster.create(QUOTAS, named(corner, {"spec": {"hard": {"pods": "2"}}}))

    async def in_force() -> bool:
        return bool((await corner.cluster.get(QUOTAS, "fault", corner.name)).get("status", {}).get("used"))

    await until(in_force, lambda: "the quota is not counted")
    await corner.submit(workers=4)
    raised = {"spec": {"hard": {"pods": "4"}}}
    await refused(
        corner,
        "QuotaExceeded",
        "exceeded quota: fault, requested: pods=1, used: pods=2, limited: pods=2",
        lambda: corner.cluster.patch(QUOTAS, "fault", corner.name, raised),
    )


@FAULTS.take
async def a_privileged_template(corner: Corner) -> None:
    """In a namespace of restricted PodSecurity, where an ordinary job runs as it is."""
    await corner.open(4)
    await enforce(corner, "restricted")
    await corner.submit("ordinary")
    await corner.until(running, "ordinary")
    await corner.submit(container={"securityContext": {"privileged": True}})
    await held(corner, "PodSecurity", 'violates PodSecurity "restricted:latest"', lambda: enforce(corner, "privileged"))


@FAULTS.take
async def a_limit_range(corner: Corner) -> None:
    """A LimitRange admits one cpu, the template asks for two."""
    await corner.open(2)
    limit = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    await corner.cluster.create(LIMITS, named(corner, limit))
    await corner.submit(container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}})
    await held(
        corner,
        "Forbidden",
        "maximum cpu usage per Container is 1, but limit is 2",
        lambda: corner.cluster.delete(LIMITS, "fault", corner.name),
    )


@FAULTS.take
async def a_missing_service_account(corner: Corner) -> None:
    """The template names a ServiceAccount that comes later."""
    await corner.open(2)
    await corner.submit(pod={"serviceAccountName": "fault"})
    await held(
        corner,
        "Forbidden",
        'serviceaccount "fault" not found',
        lambda: corner.cluster.create(ACCOUNTS, named(corner, {})),
    )


async def stuck(corner: Corner, reason: str, message: str, failures: int) -> None:
    """The first half of a gang runs, a container of the second cannot start until the cause is gone."""
    await corner.open(5)
    await corner.submit(workers=4, gated=True)
    pods = await corner.until_pods(4)
    await corner.open_gates(workers=(0, 1))

    async def half() -> bool:
        return [pod["status"]["phase"] for pod in await corner.pods()].count("Running") == 2

    await until(half, lambda: "the first half does not run")
    await corner.say(pods[2], {"waiting": {"reason": reason, "message": message}}, "Pending")
    job = await corner.until(lambda job: job.status.last_failure is not None)
    last = job.status.last_failure
    assert last is not None
    assert (last.attempt, last.pod, last.reason) == (1, f"{JOB}-1-2", reason)
    assert last.message == message
    await corner.until_pods(0, attempt=1)
    job = await corner.until(runs_as(2), meanwhile=corner.open_gates)
    assert job.status.failures == failures
    assert not job.status.avoided_nodes  # its pod was on no node yet


@FAULTS.take
async def a_missing_secret(corner: Corner) -> None:
    """The kubelet cannot make a container's environment: the job's own failure."""
    await stuck(corner, "CreateContainerConfigError", 'secret "fault" not found', failures=1)


@FAULTS.take
async def an_image_halfway(corner: Corner) -> None:
    """Some nodes have the image, others cannot pull it."""
    await stuck(corner, "ImagePullBackOff", 'Back-off pulling image "none"', failures=0)


@FAULTS.take
async def another_scheduler(corner: Corner) -> None:
    """The pods are bound by one of another name, which keeps to the node affinity that names their nodes."""
    await corner.open(3)
    await corner.submit(workers=3, pod={"schedulerName": SECOND_SCHEDULER})
    await corner.until(running)
    pods = await corner.until_pods(3)
    assert {pod["spec"]["schedulerName"] for pod in pods} == {SECOND_SCHEDULER}
    bound = [
        event for event in (await corner.cluster.list(EVENTS, corner.name)).items if event["reason"] == "Scheduled"
    ]
    assert {event["reportingComponent"] for event in bound} == {SECOND_SCHEDULER}


@FAULTS.take
async def a_scheduler_that_is_not_there(corner: Corner) -> None:
    """Nobody looks at the pods: the message names whom they wait for, and no node is blamed."""
    await corner.open(2)
    await corner.submit(pod={"schedulerName": "nobody"}, runPolicy={"startTimeoutSeconds": 10})
    job = await corner.until(lambda job: job.status.last_failure is not None)
    assert job.status.last_failure is not None
    assert "scheduler nobody has said nothing of it" in job.status.last_failure.message
    assert job.status.avoided_nodes == ()


@FAULTS.take
async def devices_of_resource_slices(corner: Corner) -> None:
    """No device plugin: a driver's slices offer devices, kube-scheduler allocates them; what is held is not free."""
    nodes = await corner.open(3)
    driver, resource = f"{corner.name}.example.com", f"{corner.name}.example.com/device"
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    spec = {"selectors": [selector], "extendedResourceName": resource}
    await corner.cluster.create(DEVICE_CLASSES, {"metadata": {"name": corner.name}, "spec": spec})
    for node in nodes[:2]:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"device-{number}", "attributes": {"model": {"string": "m"}}} for number in range(2)]
        body = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        await corner.cluster.create(RESOURCE_SLICES, {"metadata": {"name": node}, "spec": body})
    try:
        await corner.submit("first", workers=3, counts={"resourceName": resource})
        await corner.until(running, "first")
        await corner.submit("second", workers=2, counts={"resourceName": resource})
        job = await corner.until(lambda job: condition(job.status, "Planned") is not None, "second")
        planned = condition(job.status, "Planned")
        assert planned is not None
        assert planned.status == "False", planned.message  # one of four devices is free
        await corner.cluster.delete(HULK_JOBS, "first", corner.name)
        await corner.until(running, "second")
        pods = await corner.until_pods(2, "second")
        assert {pod["spec"]["nodeName"] for pod in pods} <= set(nodes[:2])
        assert all((pod["status"].get("extendedResourceClaimStatus") or {}).get("resourceClaimName") for pod in pods)
    finally:
        for node in nodes[:2]:
            await corner.cluster.delete(RESOURCE_SLICES, node)
        await corner.cluster.delete(DEVICE_CLASSES, corner.name)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_refused_gang_is_released_and_starts_later(outcomes: dict[str, asyncio.Task[None]], name: str) -> None:
    await outcomes[name]


def named(corner: Corner, body: Object) -> Object:
    return {"metadata": {"name": "fault", "namespace": corner.name}, **body}


async def enforce(corner: Corner, level: str) -> None:
    """The namespace's PodSecurity."""
    label = {"pod-security.kubernetes.io/enforce": level}
    await corner.cluster.patch(NAMESPACES, corner.name, None, {"metadata": {"labels": label}})
