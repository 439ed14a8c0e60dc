"""What cannot be planned, and what changes between plan and start, on a real API server.

Each fault has a corner of the cluster of its own; all of them are under way at once, in one real operator.
A job waits with a reason and starts by itself when the cause is gone; a gang that does not come up is released as a
whole and planned again elsewhere.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from faults import (
    JOB,
    METRICS_PORT,
    Corner,
    Faults,
    planned_node,
    running,
    runs_as,
    until,
    why_not_planned,
)
from hulk_operator.api import HulkJob
from hulk_operator.cluster import EVENTS, HULK_JOBS, NODES, PODS, Conflict, NotFound

pytestmark = [pytest.mark.controlplane, pytest.mark.asyncio(loop_scope="module")]

FAULTS = Faults()


@FAULTS.take
async def no_room(corner: Corner) -> None:
    """More workers than free accelerators; starts when a foreign pod gives one back."""
    nodes = await corner.open(2)
    await occupy(corner, nodes[0])
    await corner.submit(workers=2)
    job = await corner.until(lambda job: bool(why_not_planned(job)))
    assert why_not_planned(job).startswith("NotEnoughAccelerators: ")
    assert numbers(why_not_planned(job)) >= {"1", "2"}
    assert not await corner.pods()
    await corner.cluster.delete(PODS, "foreign", corner.name)
    job = await corner.until(running)
    assert job.status.attempt == 1


@FAULTS.take
async def no_memory(corner: Corner) -> None:
    """A model larger than any accelerator's memory."""
    await corner.open(2, labels={f"{corner.accelerator}.memory": "1024"})
    shape = {"layers": 48, "hidden": 6400, "heads": 64, "sequenceLength": 1024, "vocabulary": 50257}
    await corner.submit(model={"transformer": shape})
    job = await corner.until(lambda job: bool(why_not_planned(job)))
    assert why_not_planned(job).startswith("NoMemory: ")
    assert "accelerators of 1.00 GiB" in why_not_planned(job)


@FAULTS.take
async def a_larger_node_comes(corner: Corner) -> None:
    """No node has enough accelerators for one worker, until one joins."""
    await corner.open(1, accelerators=1)
    await corner.submit(workers=1, counts={"acceleratorsPerWorker": 4})
    job = await corner.until(lambda job: bool(why_not_planned(job)))
    assert why_not_planned(job).startswith("NotEnoughAccelerators: ")
    late = await corner.add_node("late", 4)
    await corner.until(running)
    assert [pod["spec"]["nodeName"] for pod in await corner.pods()] == [late]


@FAULTS.take
async def only_unknown_links(corner: Corner) -> None:
    """Nothing is known between the regions; then agents measure, long ago: stale figures are usable, with their age."""
    one, other = await corner.open(2, regions=2)
    await corner.submit(placement={"allowUnknownLinks": False})
    job = await corner.until(lambda job: bool(why_not_planned(job)))
    assert why_not_planned(job).startswith("OnlyUnknownLinks: ")
    assert f"{corner.name}-r0 to {corner.name}-r1" in why_not_planned(job)
    await corner.measure(one, other, 80_000, 10_000_000, age_s=86_400)
    await corner.measure(other, one, 80_000, 10_000_000, age_s=86_400)
    job = await corner.until(running)
    assert job.status.plan is not None
    assert job.status.plan.bottleneck is not None
    assert job.status.plan.bottleneck.rtt_microseconds == 80_000
    assert 86_400 <= await shown_age_s(f"{corner.name}-r0", f"{corner.name}-r1") < 87_400


@FAULTS.take
async def an_agent_lies(corner: Corner) -> None:
    """Impossible figures are no figures: the job waits as if nothing was measured, and the lie is told."""
    one, other = await corner.open(2, regions=2)
    await corner.measure(one, other, -80_000, 10_000_000)
    await corner.measure(other, one, 80_000, 10**15)
    await corner.submit(placement={"allowUnknownLinks": False})
    job = await corner.until(lambda job: bool(why_not_planned(job)))
    assert why_not_planned(job).startswith("OnlyUnknownLinks: ")

    async def told() -> bool:
        events = (await corner.cluster.list(EVENTS, "default", fields="involvedObject.kind=NodeProfile")).items
        found = {event["reason"] for event in events if event["involvedObject"]["name"] in (one, other)}
        return found == {"ImpossibleRtt", "ImpossibleBandwidth"}

    await until(told, lambda: "the lies are not told")
    await corner.measure(one, other, 80_000, 10_000_000)
    await corner.measure(other, one, 80_000, 10_000_000)
    await corner.until(running)


@FAULTS.take
async def a_foreign_manager(corner: Corner) -> None:
    """A job of another controller is not touched, while one beside it runs."""
    await corner.open(4)
    await corner.submit("foreign", managedBy="kueue.x-k8s.io/multikueue")
    await corner.submit()
    await corner.until(running)
    assert "status" not in await corner.cluster.get(HULK_JOBS, "foreign", corner.name)
    assert not await corner.pods("foreign")


# What changes between plan and start


async def close_node(corner: Corner, change: Callable[[str], Awaitable[object]], reason: str, words: str) -> None:
    """A node of the plan takes no pods any more before its own is bound: released long before the start timeout."""
    await corner.open(6)
    await corner.submit(gated=True)
    bad = planned_node((await corner.until_pods(2))[1])
    await corner.open_gates(workers=[0])
    await change(bad)
    await corner.open_gates()
    job = await corner.until(lambda job: job.status.last_failure is not None)
    last = job.status.last_failure
    assert last is not None
    assert (last.attempt, last.reason) == (1, reason)
    assert words in last.message
    assert job.status.avoided_nodes == ()
    job = await goes_elsewhere(corner, bad)
    assert job.status.disruptions == 1


async def goes_elsewhere(corner: Corner, bad: str) -> HulkJob:
    """The job runs as another attempt, without a node, and nothing is left of the first one."""
    job = await corner.until(runs_as(2), meanwhile=corner.open_gates)
    assert bad not in {pod["spec"]["nodeName"] for pod in await corner.pods(attempt=job.status.attempt)}
    assert not await corner.pods(attempt=1)
    assert job.status.failures == 0
    return job


@FAULTS.take
async def a_node_is_cordoned(corner: Corner) -> None:
    """By an administrator, before its pod is bound."""
    cordon = {"spec": {"unschedulable": True}}
    await close_node(
        corner, lambda node: corner.cluster.patch(NODES, node, None, cordon), "NodeUnschedulable", "cordoned"
    )


@FAULTS.take
async def a_node_is_tainted(corner: Corner) -> None:
    """By someone who wants it for himself."""
    taint = {"spec": {"taints": [{"key": "mine", "value": "yes", "effect": "NoSchedule"}]}}
    words = "the taint mine=yes:NoSchedule"
    await close_node(corner, lambda node: corner.cluster.patch(NODES, node, None, taint), "NodeUnschedulable", words)


@FAULTS.take
async def a_node_is_deleted(corner: Corner) -> None:
    """Before its pod is bound."""
    await close_node(corner, lambda node: corner.cluster.delete(NODES, node), "NodeLost", "was deleted")


@FAULTS.take
async def a_node_is_filled(corner: Corner) -> None:
    """Someone else's pod takes the accelerator that was planned: its end may be near, so the start timeout decides."""
    words = f"Insufficient {corner.accelerator}"
    await corner.open(6)
    await corner.submit(gated=True)
    bad = planned_node((await corner.until_pods(2))[1])
    await occupy(corner, bad)
    await corner.open_gates()

    async def held_back() -> bool:
        first, second = await corner.pods()
        said = [entry["message"] for entry in second["status"]["conditions"] if entry["type"] == "PodScheduled"]
        return first["status"]["phase"] == "Running" and any(words in message for message in said)

    await until(held_back, lambda: f"{corner.name}: kube-scheduler does not say {words}")
    await corner.change({"runPolicy": {"startTimeoutSeconds": 3}})
    job = await corner.until(lambda job: job.status.last_failure is not None)
    await corner.change({"runPolicy": {"startTimeoutSeconds": 300}})
    last = job.status.last_failure
    assert last is not None
    assert (last.attempt, last.reason) == (1, "StartTimeout")
    assert words in last.message
    assert "1 of 2 pods were up after startTimeoutSeconds = 3 s" in last.message
    assert [node.name for node in job.status.avoided_nodes] == [bad]
    await goes_elsewhere(corner, bad)


@FAULTS.take
async def deleted_while_starting(corner: Corner) -> None:
    """Nothing is left of it, and a new job of the same name begins anew."""
    await corner.open(2)
    await corner.submit(gated=True)
    await corner.until_pods(2)
    await corner.cluster.delete(HULK_JOBS, JOB, corner.name)
    await corner.until_empty()
    await corner.submit()
    job = await corner.until(running)
    assert (job.status.attempt, job.status.restarts) == (1, 0)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_job_that_cannot_be_placed_waits_with_a_reason(
    outcomes: dict[str, asyncio.Task[None]], name: str
) -> None:
    await outcomes[name]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))


async def occupy(corner: Corner, node: str) -> None:
    """Someone else's pod takes a node's accelerator."""
    amount = {corner.accelerator: "1"}
    container = {"name": "c", "image": "none", "resources": {"requests": amount, "limits": amount}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign", "namespace": corner.name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }

    async def created() -> bool:
        try:
            await corner.cluster.create(PODS, body)
        except (NotFound, Conflict):  # the namespace's service account is a moment late
            return False
        return True

    await until(created, lambda: "no foreign pod")


async def shown_age_s(source: str, target: str) -> float:
    """The age of a region link as the operator's metrics show it."""
    label = f'hulk_link_age_seconds{{scope="region",source="{source}",target="{target}"}} '
    found: list[float] = []

    async def shown() -> bool:
        async with aiohttp.ClientSession() as session:
            text = await (await session.get(f"http://127.0.0.1:{METRICS_PORT}/metrics")).text()
        found[:] = [float(line.removeprefix(label)) for line in text.splitlines() if line.startswith(label)]
        return bool(found)

    await until(shown, lambda: f"no {label}")
    return found[0]
