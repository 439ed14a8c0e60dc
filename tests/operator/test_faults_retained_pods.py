"""A running job is changed, by a fault or by its owner: only the pods that must go or come do.

Each has a corner of the cluster of its own; all of them are under way at once, in one real operator. What the launcher
does in a pod that stays is tested with real processes; here it is the pods' uids.
"""

import asyncio
import json
from base64 import b64decode
from typing import Any

import pytest
from faults import JOB, Corner, Faults, planned_node, running, runs_as, stated, until, why_not_planned, worker
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.cluster import CONFIG_MAPS, PODS, SERVICES, ApiResource, Object
from hulk_operator.status import holds
from hulk_placement import wire
from test_faults_running import die

pytestmark = [pytest.mark.controlplane, pytest.mark.asyncio(loop_scope="module")]

FAULTS = Faults()
LAUNCHED: dict[str, Any] = {"container": {"command": ["/opt/hulk/bin/hulk-launch", "train.py"]}}


@FAULTS.take
async def one_node_is_replaced(corner: Corner) -> None:
    """The node dies: one pod is new, on the spare node; the dead node's accelerator is not handed out."""
    await corner.open(5)
    before = await begin(corner, 4)
    lost = before[2]
    finalizers = {"metadata": {"finalizers": ["test.example.com/no-kubelet"]}}
    await corner.cluster.patch(PODS, lost["metadata"]["name"], corner.name, finalizers)
    await die(corner, lost["spec"]["nodeName"])
    job = await corner.until(runs_as(2))
    after = await whole(corner, job, 4)
    assert uids(before) - uids(after) == {lost["metadata"]["uid"]}
    assert lost["spec"]["nodeName"] not in {pod["spec"]["nodeName"] for pod in after}
    assert (job.status.failures, job.status.disruptions, job.status.restarts) == (0, 1, 1)
    assert "3 of them stayed" in stated(job, ConditionType.DEPLOYED).message


@FAULTS.take
async def one_pod_is_evicted(corner: Corner) -> None:
    """No spare node: a new pod takes the place of the one that went."""
    await corner.open(3)
    before = await begin(corner, 3)
    name = before[0]["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": corner.name}}
    await corner.cluster.create(ApiResource("", "v1", f"pods/{name}/eviction", "Eviction"), body)
    job = await corner.until(runs_as(2))
    after = await whole(corner, job, 3)
    assert uids(before) - uids(after) == {before[0]["metadata"]["uid"]}
    assert (job.status.failures, job.status.disruptions) == (0, 1)


@FAULTS.take
async def one_worker_fails(corner: Corner) -> None:
    """Its peers wait instead of failing: it alone is the cause, and it alone is replaced."""
    await corner.open(3)
    before = await begin(corner, 3)
    await corner.end(before[1], 3, "Traceback: no such file")
    job = await corner.until(runs_as(2))
    after = await whole(corner, job, 3)
    assert uids(before) - uids(after) == {before[1]["metadata"]["uid"]}
    last = job.status.last_failure
    assert last is not None
    assert (last.pod, last.exit_code, job.status.failures) == (before[1]["metadata"]["name"], 3, 1)


@FAULTS.take
async def the_job_shrinks(corner: Corner) -> None:
    """Only the pods that are too many go; neither failure nor disruption. Then it grows: only new ones come."""
    await corner.open(5)
    before = await begin(corner, 5)
    await corner.change({"workers": {"min": 3, "max": 3}})
    job = await corner.until(runs_as(2))
    fewer = await whole(corner, job, 3)
    assert uids(fewer) < uids(before)
    await corner.change({"workers": {"min": 4, "max": 4}})
    job = await corner.until(runs_as(3))
    more = await whole(corner, job, 4)
    assert uids(fewer) < uids(more)
    assert (job.status.failures, job.status.disruptions, job.status.restarts) == (0, 0, 2)


@FAULTS.take
async def a_number_that_is_still_asked_for(corner: Corner) -> None:
    """A wider range changes nothing: the plan in force is within it."""
    await corner.open(4)
    before = await begin(corner, 3)
    await corner.change({"workers": {"min": 2, "max": 4}})
    job = await corner.until(lambda job: job.status.observed_generation == job.metadata.generation)
    assert job.status.attempt == 1
    assert uids(await corner.pods()) == uids(before)


@FAULTS.take
async def another_program_shrinks(corner: Corner) -> None:
    """Ranks that are fixed in the pods: all of them are new."""
    await corner.open(3)
    await corner.submit(workers=3)
    await corner.until(running)
    before = await corner.pods()
    await corner.change({"workers": {"min": 2, "max": 2}})
    job = await corner.until(runs_as(2))
    after = await whole(corner, job, 2)
    assert not uids(before) & uids(after)


@FAULTS.take
async def no_plan_for_what_is_asked(corner: Corner) -> None:
    """A job that cannot run holds nothing: another one gets its places, and it comes back when there is room."""
    await corner.open(2)
    await begin(corner, 2)
    await corner.submit("other", workers=2)
    await corner.until(lambda job: bool(why_not_planned(job)), "other")
    await corner.change({"workers": {"min": 3, "max": 3}})
    await corner.until(running, "other")
    job = await corner.job()
    assert why_not_planned(job).startswith("NotEnoughAccelerators")
    await corner.until_empty()
    await corner.add_node("more")
    for pod in await corner.pods("other"):
        await corner.end(pod, 0)
    await whole(corner, await corner.until(runs_as(2)), 3)


@FAULTS.take
async def suspended_meanwhile(corner: Corner) -> None:
    """Pods that wait for the next plan go when the job is suspended."""
    await corner.open(2)
    before = await begin(corner, 2)
    await corner.end(before[0], 3)
    await corner.change({"suspend": True})
    await corner.until(lambda job: holds(job.status, ConditionType.SUSPENDED))
    await corner.until_empty()


@FAULTS.take
async def two_jobs_lose_a_worker_at_once(corner: Corner) -> None:
    """Each keeps its own pods, and no accelerator is ever two workers' place."""
    await corner.open(4, accelerators=2)
    await begin(corner, 3, "first")
    await begin(corner, 3, "second")
    before = {job: await corner.pods(job) for job in ("first", "second")}
    for pods in before.values():
        await corner.end(pods[2], 1)

    async def both() -> bool:
        pods = [pod for pod in (await corner.cluster.list(PODS, corner.name)).items if lives(pod)]
        for node in {planned_node(pod) for pod in pods}:
            assert len([pod for pod in pods if planned_node(pod) == node]) <= 2, node
        return all([runs_as(2)(await corner.job(job)) for job in before])

    await until(both, lambda: "not both run again")
    for job, pods in before.items():
        after = await whole(corner, await corner.job(job), 3, job)
        assert uids(pods) - uids(after) == {pods[2]["metadata"]["uid"]}


@pytest.mark.parametrize("name", FAULTS)
async def test_untouched_pods_stay(outcomes: dict[str, asyncio.Task[None]], name: str) -> None:
    await outcomes[name]


async def begin(corner: Corner, workers: int, job: str = JOB) -> list[Object]:
    """The pods of a job that runs the launcher, once they all run."""
    await corner.submit(job, workers=workers, **{key: dict(value) for key, value in LAUNCHED.items()})
    await corner.until(running, job)
    return await corner.pods(job)


async def whole(corner: Corner, job: HulkJob, num_workers: int, name: str = JOB) -> list[Object]:
    """The pods of the attempt in force, when there are no others that live: each where the plan has its worker."""
    attempt = job.status.attempt

    async def alone() -> bool:
        return all(pod["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt) for pod in await living(corner, name))

    await until(alone, lambda: f"pods of other attempts than {attempt}")
    pods = await living(corner, name)
    told = await corner.cluster.get(CONFIG_MAPS, names.gang_config_map(name), corner.name) if launched(job) else None
    record = await corner.cluster.get(CONFIG_MAPS, names.plan_config_map(name, attempt), corner.name)
    blob = record["binaryData"][names.PLAN_KEY]
    plan, _ = wire.decode(b64decode(blob))
    assert [worker(pod) for pod in pods] == list(range(num_workers))
    assert [pod["spec"]["nodeName"] for pod in pods] == [slot.machine for slot in plan.workers]
    if told is not None:
        assert told["binaryData"][names.PLAN_KEY] == blob
        assert json.loads(told["data"][names.GANG_ENVIRONMENT_KEY])[names.ENV_ATTEMPT] == str(attempt)
    service = await corner.cluster.get(SERVICES, names.service(name, attempt), corner.name)
    assert service["spec"]["selector"] == {**names.worker_labels(name, attempt, 0)}
    return pods


def launched(job: HulkJob) -> bool:
    container = job.spec.template.spec.containers[0].model_extra or {}
    return bool(container.get("command"))


async def living(corner: Corner, job: str = JOB) -> list[Object]:
    """The job's pods that neither ended nor are being deleted."""
    return [pod for pod in await corner.pods(job) if lives(pod) and "deletionTimestamp" not in pod["metadata"]]


def lives(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}
