"""A job's way through a queue, pass by pass over a fake cluster in which the test is Kueue; and what is watched."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.api import ConditionType
from hulk_operator.cluster import (
    HULK_JOBS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    ApiResource,
    Change,
    ClusterError,
    Forbidden,
    Invalid,
    Listing,
    NotFound,
    Object,
    Unavailable,
)
from hulk_operator.kueue import workload_name
from hulk_operator.reconcile.recipe import KUEUE, writes
from hulk_operator.status import condition, holds
from hulk_operator.watched import NOT_READ, Store, informers
from hulk_operator.watched.informers import Informers
from hulk_operator.watched.store import News
from test_kueue_workload import condition as said
from test_reconcile_pass import KEY, World, up
from views import decision, job

FLAVOR = "spot"
NO_CLASS = "the API server has no class"


class QueueWorld(World):
    """An operator over a fake cluster, and a job in a queue of Kueue's."""

    def __init__(self, **labels: str) -> None:
        super().__init__()
        flavor = {"metadata": {"name": FLAVOR}, "spec": {}}
        self.store.kueue.flavors.put(self.cluster._store(RESOURCE_FLAVORS, flavor))
        self.store.kueue.lack = ""
        self.label(**{names.LABEL_QUEUE: "team", **labels})

    def label(self, **labels: str) -> None:
        """Give the job other labels."""
        body = self.cluster.objects["hulkjobs", "lab", "demo"]
        body["metadata"]["labels"] = labels
        self.store.jobs.put(self.cluster._store(HULK_JOBS, body))

    def workload(self) -> Object:
        """The job's Workload as the API server has it."""
        return self.cluster.objects["workloads", "lab", workload_name(self.job())]

    def kueue_says(self, *conditions: Object, **status: Any) -> None:
        """Kueue writes the status."""
        body = self.workload()
        kept = [one for one in self.conditions() if one["type"] not in {new["type"] for new in conditions}]
        body["status"] = {**body.get("status", {}), "conditions": [*kept, *conditions], **status}
        self.store.kueue.workloads.put(self.cluster._store(WORKLOADS, body))

    def admit(self, num_workers: int) -> None:
        """Kueue gives it quota."""
        assignment = {"name": "main", "count": num_workers, "flavors": {"nvidia.com/gpu": FLAVOR}}
        admission = {"clusterQueue": "shared", "podSetAssignments": [assignment]}
        yes = (said(kind, True) for kind in ("QuotaReserved", "Admitted"))
        self.kueue_says(*yes, said("Evicted", False), admission=admission)

    def conditions(self) -> list[Object]:
        """Those of the Workload."""
        found: list[Object] = self.workload().get("status", {}).get("conditions", [])
        return found

    def told(self, kind: str) -> tuple[str, str] | None:
        """A condition of the Workload, and why."""
        return next(((one["status"], one["reason"]) for one in self.conditions() if one["type"] == kind), None)

    def why(self) -> str:
        """Why the job has no plan."""
        found = condition(self.job().status, ConditionType.PLANNED)
        return found.reason if found and found.status == "False" else ""


async def test_a_job_goes_its_way_through_a_queue() -> None:
    world = QueueWorld()
    await world.passes(3)
    assert world.workload()["spec"]["podSets"][0]["count"] == 3
    assert (world.why(), world.plans.requests) == ("QueuedByKueue", [])
    world.admit(3)
    await world.passes()
    assert world.plans.requests == [KEY]
    world.plans.answer = decision()
    await world.passes(2)
    pods = [body for (plural, _, _), body in world.cluster.objects.items() if plural == "pods"]
    assert {pod["metadata"]["labels"][names.LABEL_CLUSTER_QUEUE] for pod in pods} == {"shared"}
    world.pods_become(up)
    await world.passes(2)
    assert world.told("PodsReady") == ("True", "Started")
    world.kueue_says(said("Evicted", True, "Preempted"))
    await world.passes(2)
    assert world.why() == "EvictedByKueue"
    assert world.told("QuotaReserved") == ("True", "Because")  # its pods are still there
    world.end_pods()
    await world.passes()
    assert world.told("QuotaReserved") == ("False", "Pending")
    assert "admission" not in world.workload()["status"]
    world.admit(3)
    world.plans.answer = decision(2)
    await world.passes(3)
    assert world.job().status.attempt == 2
    assert set(world.cluster.writes) <= set(writes())
    assert {step for step, write in world.cluster.writes if "workloads" in write} <= KUEUE


async def test_a_class_that_is_not_there_is_said_and_a_later_one_is_taken() -> None:
    world = QueueWorld(**{names.LABEL_WORKLOAD_PRIORITY: "urgent"})
    await world.passes(2)
    assert world.why() == "PriorityClassNotFound"
    body = {"metadata": {"name": "urgent"}, "value": 1000}
    world.cluster._store(WORKLOAD_PRIORITY_CLASSES, body)
    world._wait(10)
    await world.passes()
    assert world.workload()["spec"]["priority"] == 1000
    await world.passes()
    assert world.why() == "QueuedByKueue"


def granting(namespace: str) -> Object:
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent", "system-x"]}]}
    metadata = {"name": "grant", "namespace": namespace, "uid": namespace, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"hard": {"pods": "9"}, "scopeSelector": scope}}


@pytest.mark.parametrize(("name", "elsewhere"), [("urgent", True), ("system-x", False)])
async def test_a_class_goes_before_others_only_where_it_is_granted(name: str, elsewhere: bool) -> None:
    """Kueue goes by the number that it is told, and preempts others' jobs by it."""
    world = QueueWorld()
    priority = world.cluster._store(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    world.store.classes.put(priority)
    if elsewhere:
        world.store.quotas.put(granting("other"))
    body = world.cluster.objects["hulkjobs", "lab", "demo"]
    body["spec"]["priorityClassName"] = name
    world.store.jobs.put(world.cluster._store(HULK_JOBS, body))
    await world.passes(3)
    assert world.workload()["spec"].keys() & {"priority", "priorityClassRef"} == set()
    found = condition(world.job().status, ConditionType.PLANNED)
    assert found is not None
    assert f"PriorityClass {name} counts for nothing: no ResourceQuota of namespace lab grants it" in found.message
    looks: list[str] = []
    world.store.news = News(job=looks.append)
    world.store.quotas.put(granting("lab"))
    assert looks == [KEY]
    await world.passes(2)
    assert world.workload()["spec"]["priority"] == 1000
    assert world.workload()["spec"]["priorityClassRef"]["name"] == name


async def test_a_class_that_is_not_granted_still_puts_a_job_behind_others() -> None:
    world = QueueWorld()
    world.store.classes.put(world.cluster._store(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": -5}))
    world.store.quotas.put(granting("other"))
    body = world.cluster.objects["hulkjobs", "lab", "demo"]
    body["spec"]["priorityClassName"] = "urgent"
    world.store.jobs.put(world.cluster._store(HULK_JOBS, body))
    await world.passes(3)
    assert world.workload()["spec"]["priority"] == -5


async def test_a_class_that_goes_missing_while_a_job_waits_again_is_said_at_once() -> None:
    world = QueueWorld()
    await world.passes(3)
    world.kueue_says(said("Evicted", True, "Preempted"), said("QuotaReserved", False, "Pending"))
    await world.passes(2)
    world.label(**{names.LABEL_QUEUE: "team", names.LABEL_WORKLOAD_PRIORITY: "urgent"})
    due = await world.passes()
    assert due == 0  # no status has changed, so nothing else asks for the pass that says it
    assert await world.passes() == 10
    assert world.why() == "PriorityClassNotFound"
    world.label(**{names.LABEL_QUEUE: "team"})
    await world.passes()
    assert world.why() == "QueuedByKueue"


async def test_what_kueue_refuses_is_in_the_jobs_words() -> None:
    world = QueueWorld()
    refusal = Invalid(422, "Invalid", "spec.podSets: at most one podSet can use minCount")
    world.cluster.refuse = lambda write, _: refusal if write == "create workloads" else None
    await world.passes(2)
    assert world.why() == "Invalid"
    assert refusal.message in (condition(world.job().status, ConditionType.PLANNED) or pytest.fail("none")).message


async def test_what_kueue_has_changed_meanwhile_is_not_written_over() -> None:
    world = QueueWorld()
    await world.passes()
    world.admit(3)
    body = world.workload()
    world.cluster._store(WORKLOADS, {**body, "metadata": {**body["metadata"], "annotations": {}}})
    world.plans.answer = decision()
    await world.passes(2)
    world.pods_become(up)
    await world.passes(3)
    assert holds(world.job().status, ConditionType.RUNNING)
    assert world.told("PodsReady") is None  # until the watch has brought what it is now


class Watched(FakeCluster):
    """Kueue's kinds fail as they are told to; a watch brings nothing."""

    error: ClusterError | None = None
    broken: ClusterError | None = None

    def __init__(self) -> None:
        super().__init__()
        self.breaks = asyncio.Event()

    async def version(self, resource: ApiResource, namespace: str | None = None) -> str:
        if resource is WORKLOADS and self.broken is not None:
            raise self.broken
        return await super().version(resource, namespace)

    async def pages(
        self, resource: ApiResource, namespace: str | None = None, **options: Any
    ) -> AsyncIterator[Listing]:
        if resource is WORKLOADS and self.error is not None:
            raise self.error
        async for page in super().pages(resource, namespace, **options):
            yield page

    async def watch(self, *of: Any, **__: Any) -> AsyncIterator[Change]:
        await (self.breaks if of[0] is WORKLOADS else asyncio.Event()).wait()
        raise self.broken or AssertionError
        yield


async def test_kueues_objects_are_read_from_the_first_job_on_that_names_a_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(informers, "KUEUE_RETRY_S", 0.01)
    monkeypatch.setattr(informers, "RETRY_S", 0.01)
    cluster, store = Watched(), Store()
    looked: list[str] = []
    heard: list[str] = []
    cluster.error = NotFound(404, "NotFound", "the server could not find the requested resource")
    store.news = type(store.news)(job=looked.append)
    following = Informers(cluster, store, heard=heard.append)
    running = asyncio.ensure_future(following.run())

    async def until(words: str) -> None:
        async with asyncio.timeout(30):
            while words not in store.kueue.lack or (not words and store.kueue.lack):
                await asyncio.sleep(0.01)

    try:
        await asyncio.sleep(0.05)
        assert store.kueue.lack == NOT_READ  # nobody has asked
        plain = job().wire()
        plain["metadata"]["labels"] = {names.LABEL_QUEUE: "team"}
        store.jobs.put(plain)
        one = store.job(KEY)
        assert one is not None
        assert store.kueue.standing(one).lack == NOT_READ
        await until("install Kueue 0.15")
        assert KEY in looked
        cluster.error = Forbidden(403, "Forbidden", "cannot list")
        await until("kueue.enabled=true")
        cluster.error = None
        await until("")
        assert store.kueue.standing(one).workload is None
        assert {"workloads", "resourceflavors"} <= set(heard)  # so that a watch of them that is dead is noticed
        await asyncio.wait_for(following.connected(), 5)
        cluster.broken = Unavailable(0, "NoConnection", "broke")
        cluster.breaks.set()
        await until(NOT_READ)  # what was admitted may not be any more
        begins = asyncio.ensure_future(following.connected())  # and no term begins on it
        await asyncio.sleep(0.05)
        assert not begins.done()
        looked.clear()
        cluster.broken = None
        cluster.breaks.clear()
        await until("")
        await asyncio.wait_for(begins, 5)
        assert KEY in looked
    finally:
        running.cancel()
