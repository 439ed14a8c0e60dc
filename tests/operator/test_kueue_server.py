"""HulkJobs in queues of Kueue's own controller, under the product's operator: real API server, simulated nodes.

Each test has nodes with an accelerator of their own, flavors and queues for that, so that no test takes from another.
"""

from collections.abc import AsyncIterator, Callable
from itertools import permutations
from typing import Any

import pytest
import pytest_asyncio
from fault_operator import operator
from faults import JOB, NAMESPACES, Corner, planned_node, prepare, running, until, why_not_planned
from hulk_lab import kueue, kwok, up
from hulk_lab.builds import golang
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import (
    HULK_JOBS,
    NODES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    ApiCluster,
    ApiResource,
    Object,
    connect,
)
from hulk_operator.kueue import workload_name
from hulk_operator.status import finished

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.whole,  # building Kueue takes 5 minutes of CPU; test_kueue_pass plays its part in short
]

LEASES_IN = "kueue-test-operator"
PORT = 29_420
VERSION = (names.KUEUE_GROUP, names.KUEUE_VERSION)
CLUSTER_QUEUES = ApiResource(*VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
LOCAL_QUEUES = ApiResource(*VERSION, "localqueues", "LocalQueue")
TOPOLOGIES = ApiResource(*VERSION, "topologies", "Topology", namespaced=False)
LEVELS = (names.NODE_REGION, names.NODE_ZONE, names.NODE_HOST_NAME)
QUEUE = {names.LABEL_QUEUE: "team"}
LARGE = {"layers": 12, "hidden": 1024, "heads": 16, "sequenceLength": 512, "vocabulary": 32_000}
PREEMPTS = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(control_plane_lab: up.Lab, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiCluster]:
    """The API server with Kueue's controller and an operator for all namespaces."""
    part = next(part for part in golang.PARTS if part.name == "kueue")
    golang.build(part)
    kueue.start(control_plane_lab.control)
    kwok.start(control_plane_lab.control)
    kubeconfig = control_plane_lab.control.kubeconfig
    found = await connect(str(kubeconfig))
    log = tmp_path_factory.mktemp("kueue") / "operator.log"
    try:
        await prepare(found)
        await found.create(NAMESPACES, {"metadata": {"name": LEASES_IN}})
        async with operator(kubeconfig, log, PORT, LEASES_IN):
            yield found
        assert "Traceback (most recent call last)" not in log.read_text(), log.read_text()[-5000:]
    finally:
        print(log.read_text()[-20_000:])
        await found.delete(NAMESPACES, LEASES_IN)
        await found.close()
        kueue.stop(control_plane_lab.control)


class Team(Corner):
    """A corner with queues of Kueue's; what is not namespaced is named after it."""

    made: list[tuple[ApiResource, str]]

    async def flavor(self, name: str, **spec: Any) -> str:
        """A ResourceFlavor."""
        return await self._make(RESOURCE_FLAVORS, name, {"spec": spec})

    async def queue(self, flavors: dict[str, int], name: str = "team", cohort: str = "", **spec: Any) -> str:
        """A ClusterQueue with a quota of accelerators for each flavor, and a LocalQueue of it."""
        quotas = [
            {"name": flavor, "resources": [{"name": self.accelerator, "nominalQuota": quota}]}
            for flavor, quota in flavors.items()
        ]
        group = {"coveredResources": [self.accelerator], "flavors": quotas}
        of_cohort = {"cohortName": f"{self.name}-{cohort}"} if cohort else {}
        body = {"spec": {"namespaceSelector": {}, "resourceGroups": [group], **of_cohort, **spec}}
        made = await self._make(CLUSTER_QUEUES, name, body)
        local = {"metadata": {"name": name, "namespace": self.name}, "spec": {"clusterQueue": made}}
        await self.cluster.create(LOCAL_QUEUES, {"apiVersion": LOCAL_QUEUES.api_version, "kind": "LocalQueue", **local})
        return made

    async def priority(self, name: str, value: int) -> str:
        """A WorkloadPriorityClass."""
        return await self._make(WORKLOAD_PRIORITY_CLASSES, name, {"value": value})

    async def topology(self, *levels: str) -> str:
        """A Topology of node labels."""
        return await self._make(TOPOLOGIES, "levels", {"spec": {"levels": [{"nodeLabel": level} for level in levels]}})

    async def workload(self, job: str = JOB) -> Object:
        """The Workload of a job."""
        return await self.cluster.get(WORKLOADS, workload_name(await self.job(job)), self.name)

    async def until_workload(self, true: Callable[[Object], bool], job: str = JOB) -> Object:
        """Wait for something of a job's Workload."""
        found: list[Object] = []

        async def seen() -> bool:
            found[:] = [await self.workload(job)]
            return true(found[0])

        await until(seen, lambda: f"{found}")
        return found[0]

    async def activate(self, active: bool, job: str = JOB) -> None:
        """What an administrator does to stop a job, and to let it go on."""
        name = workload_name(await self.job(job))
        await self.cluster.patch(WORKLOADS, name, self.name, {"spec": {"active": active}})

    async def label(self, job: str, key: str, value: str) -> None:
        """Give a job another label."""
        await self.cluster.patch(HULK_JOBS, job, self.name, {"metadata": {"labels": {key: value}}})

    async def finish(self, job: str = JOB) -> None:
        """All workers end well."""
        found = await self.job(job)
        for pod in await self.pods(job, found.status.attempt):
            await self.end(pod, 0)
        await self.until(lambda one: finished(one.status), job)

    async def nodes_of(self, job: str = JOB) -> list[str]:
        """The node of each worker."""
        found = await self.job(job)
        return [planned_node(pod) for pod in await self.pods(job, found.status.attempt)]

    async def close(self) -> None:
        """As a corner, and what is not namespaced."""
        await super().close()
        for resource, name in reversed(self.made):
            await self.cluster.patch(resource, name, None, {"metadata": {"finalizers": None}})
            await self.cluster.delete(resource, name)

    async def _make(self, resource: ApiResource, name: str, body: Object) -> str:
        full = f"{self.name}-{name}"
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.cluster.create(resource, {**kind, "metadata": {"name": full}, **body})
        self.made.append((resource, full))
        return full


@pytest_asyncio.fixture(loop_scope="module")
async def team(cluster: ApiCluster, request: pytest.FixtureRequest) -> AsyncIterator[Team]:
    """A team named as its test."""
    name = request.node.name.removeprefix("test_").translate(str.maketrans("_[", "--", "]"))[:36].rstrip("-")
    found = Team(cluster, name)
    found.made = []
    try:
        yield found
    finally:
        await found.close()


def waits(job: HulkJob) -> bool:
    """Whether it waits for Kueue and has nothing."""
    return why_not_planned(job).startswith("QueuedByKueue")


def says(words: str) -> Callable[[HulkJob], bool]:
    """Whether it waits for Kueue, in these words."""
    return lambda job: waits(job) and words in why_not_planned(job)


def holds(body: Object, kind: str, value: str = "True") -> bool:
    """Whether a Workload's condition has that value."""
    return any(one["type"] == kind and one["status"] == value for one in body["status"].get("conditions", ()))


@pytest.mark.asyncio(loop_scope="module")
async def test_quota(team: Team) -> None:
    """Of two jobs one runs; the other begins when it is over."""
    await team.open(4)
    await team.queue({await team.flavor("any"): 2})
    await team.submit("first", labels=QUEUE)
    await team.until(running, "first")
    await team.submit("second", labels=QUEUE)
    await team.until(says("insufficient unused quota"), "second")
    await team.until_workload(lambda body: holds(body, "PodsReady"), "first")
    await team.finish("first")
    await team.until_workload(lambda body: holds(body, "Finished"), "first")
    await team.until(running, "second")


@pytest.mark.asyncio(loop_scope="module")
async def test_borrowing_in_a_cohort_and_its_return(team: Team) -> None:
    """A team borrows what the other does not use, and gives it back when that one comes."""
    await team.open(4)
    flavor = await team.flavor("any")
    await team.queue({flavor: 2}, cohort="all", preemption=PREEMPTS)
    await team.queue({flavor: 2}, "others", cohort="all", preemption=PREEMPTS)
    await team.submit("borrows", workers=4, labels=QUEUE)
    await team.until(running, "borrows")
    await team.submit("owns", labels={names.LABEL_QUEUE: "others"})
    await team.until(running, "owns")
    evicted = await team.until(waits, "borrows")
    assert "Preempted" in why_not_planned(evicted)
    assert (evicted.status.failures, evicted.status.disruptions) == (0, 0)
    await team.finish("owns")
    await team.until(running, "borrows")


@pytest.mark.asyncio(loop_scope="module")
async def test_preemption_by_priority(team: Team) -> None:
    """The more important job gets the quota when the pods of the other are gone, and that one goes on afterwards."""
    await team.open(4)  # more nodes than quota: only Kueue decides
    await team.queue({await team.flavor("any"): 2}, preemption=PREEMPTS)
    urgent = await team.priority("urgent", 1000)
    await team.submit("low", labels=QUEUE)
    first = await team.until(running, "low")
    await team.submit("high", labels={**QUEUE, names.LABEL_WORKLOAD_PRIORITY: urgent})
    await team.until(running, "high")
    assert await team.pods("low") == []
    low = await team.until(waits, "low")
    assert low.status.failures == 0
    assert (await team.workload("high"))["spec"]["priority"] == 1000
    await team.finish("high")
    again = await team.until(running, "low")
    assert again.status.attempt == first.status.attempt + 1
    requeued = next(one for one in (await team.workload("low"))["status"]["conditions"] if one["type"] == "Requeued")
    assert (requeued["status"], requeued["reason"]) == ("True", "Preempted")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_priority_that_rises_while_a_job_waits(team: Team) -> None:
    """Another class is told to Kueue at once."""
    await team.open(2)
    await team.queue({await team.flavor("any"): 2}, preemption=PREEMPTS)
    idle, urgent = await team.priority("idle", 1), await team.priority("urgent", 1000)
    await team.submit("first", labels={**QUEUE, names.LABEL_WORKLOAD_PRIORITY: idle})
    await team.until(running, "first")
    await team.submit("second", labels={**QUEUE, names.LABEL_WORKLOAD_PRIORITY: idle})
    await team.until(says("insufficient"), "second")
    await team.label("second", names.LABEL_WORKLOAD_PRIORITY, urgent)
    await team.until(running, "second")
    await team.label("first", names.LABEL_WORKLOAD_PRIORITY, "missing")
    missing = await team.until(lambda job: why_not_planned(job).startswith("PriorityClassNotFound"), "first")
    assert "missing" in why_not_planned(missing)


@pytest.mark.asyncio(loop_scope="module")
async def test_flavors_that_name_regions(team: Team) -> None:
    """The region whose flavor has quota for the whole gang gets it, with what its nodes need tolerated."""
    await team.open(4, regions=2)
    rented = {"key": "rented", "value": "yes", "effect": "NoSchedule"}
    tolerates = [{"key": "rented", "operator": "Exists", "effect": "NoSchedule"}]
    flavors = {
        await team.flavor("near", nodeLabels={names.NODE_REGION: f"{team.name}-r0"}): 1,
        await team.flavor("far", nodeLabels={names.NODE_REGION: f"{team.name}-r1"}, tolerations=tolerates): 2,
    }
    for node in (f"{team.name}-1", f"{team.name}-3"):
        await team.cluster.patch(NODES, node, None, {"spec": {"taints": [rented]}})
    await team.queue(flavors)
    await team.submit(labels=QUEUE)
    await team.until(running)
    assert sorted(await team.nodes_of()) == [f"{team.name}-1", f"{team.name}-3"]
    for pod in await team.pods():
        assert pod["spec"]["nodeSelector"] == {names.NODE_REGION: f"{team.name}-r1"}
        assert tolerates[0] in pod["spec"]["tolerations"]
        assert pod["metadata"]["labels"][names.LABEL_CLUSTER_QUEUE] == f"{team.name}-team"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("levels", [LEVELS, LEVELS[:1]], ids=["to-nodes", "to-regions"])
async def test_topology_levels(team: Team, levels: tuple[str, ...]) -> None:
    """All workers in one region, on the very nodes, or in the region, that Kueue has chosen; each counts once."""
    await team.open(6, accelerators=2, regions=3)
    for number in range(6):
        node, zone = f"{team.name}-{number}", f"{team.name}-z{number}"
        labels = {names.NODE_HOST_NAME: node, names.NODE_ZONE: zone, "team": team.name}
        await team.cluster.patch(NODES, node, None, {"metadata": {"labels": labels}})
    topology = await team.topology(*levels)
    flavor = await team.flavor("any", nodeLabels={"team": team.name}, topologyName=topology)
    await team.queue({flavor: 12})
    in_one_region = {names.ANNOTATION_REQUIRED_TOPOLOGY: names.NODE_REGION}
    for job in ("first", "second", "third"):  # of 4 accelerators each: a region's
        await team.submit(job, workers=4, labels=QUEUE, annotations=in_one_region)
        await team.until(running, job)
        chosen = await team.nodes_of(job)
        assert len({int(node.rpartition("-")[2]) % 3 for node in chosen}) == 1, chosen
        placed = (await team.workload(job))["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
        assert placed["levels"] == [levels[-1]]
    taken = [node for job in ("first", "second", "third") for node in await team.nodes_of(job)]
    assert sorted(taken) == sorted(2 * [f"{team.name}-{number}" for number in range(6)])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_node_that_fails_is_replaced_by_kueues_topology(team: Team) -> None:
    """Kueue names another node in place of one that is not ready; the gang moves there."""
    await team.open(3)
    for number in range(3):
        node = f"{team.name}-{number}"
        await team.cluster.patch(NODES, node, None, {"metadata": {"labels": {names.NODE_HOST_NAME: node, "t": "t"}}})
    topology = await team.topology(names.NODE_HOST_NAME)
    flavor = await team.flavor("any", nodeLabels={"t": "t", "corner": team.name}, topologyName=topology)
    await team.queue({flavor: 3})
    await team.submit(labels=QUEUE)
    await team.until(running)
    lost = (await team.nodes_of())[0]
    await team.node_says(lost, "False", "KubeletStopped")
    await team.until(lambda job: running(job) and job.status.attempt > 1)
    assert lost not in await team.nodes_of()


@pytest.mark.asyncio(loop_scope="module")
async def test_partial_admission(team: Team) -> None:
    """As many workers as there is quota for; what the plan does without is for others."""
    nodes = await team.open(4)
    for source, target in permutations(nodes, 2):
        await team.measure(source, target, 100, 10**10)
    await team.queue({await team.flavor("any"): 3})
    await team.submit("most", counts={"min": 1, "max": 4}, labels=QUEUE, model={"transformer": LARGE})
    job = await team.until(running, "most")
    assert job.status.plan is not None
    assert job.status.plan.num_workers == 3
    admission = (await team.workload("most"))["status"]["admission"]
    assert admission["podSetAssignments"][0]["count"] == 3
    await team.finish("most")
    await team.submit("few", counts={"min": 1, "max": 4}, training={"globalBatch": 2, "steps": 10}, labels=QUEUE)
    few = await team.until(running, "few")
    assert few.status.plan is not None
    assert few.status.plan.num_workers < 3
    await team.submit("other", workers=1, labels=QUEUE)
    await team.until(running, "other")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_drained_queue_evicts_and_queues_again(team: Team) -> None:
    """HoldAndDrain stops what runs; it goes on when the queue is open again."""
    await team.open(2)
    queue = await team.queue({await team.flavor("any"): 2})
    await team.submit(labels=QUEUE)
    await team.until(running)
    await team.cluster.patch(CLUSTER_QUEUES, queue, None, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await team.until(says("ClusterQueueStopped"))
    await team.until_pods(0)
    body = await team.until_workload(lambda body: holds(body, "QuotaReserved", "False"))
    assert "admission" not in body["status"]
    await team.cluster.patch(CLUSTER_QUEUES, queue, None, {"spec": {"stopPolicy": "None"}})
    await team.until(lambda job: running(job) and job.status.attempt == 2)


@pytest.mark.asyncio(loop_scope="module")
async def test_deactivation(team: Team) -> None:
    """spec.active of the Workload stops the job, and lets it go on."""
    await team.open(2)
    await team.queue({await team.flavor("any"): 2})
    await team.submit(labels=QUEUE)
    await team.until(running)
    await team.activate(False)
    await team.until(lambda job: why_not_planned(job).startswith("DeactivatedByKueue"))
    await team.until_pods(0)
    await team.until_workload(lambda body: holds(body, "QuotaReserved", "False"))
    await team.activate(True)
    await team.until(lambda job: running(job) and job.status.attempt == 2)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_suspended_job_gives_its_quota_back_and_is_queued_anew(team: Team) -> None:
    """Its Workload goes when its pods are gone, and the one of its return is another."""
    await team.open(2)
    await team.queue({await team.flavor("any"): 2})
    await team.submit("first", labels=QUEUE)
    await team.until(running, "first")
    before = (await team.workload("first"))["metadata"]["uid"]
    await team.submit("second", labels=QUEUE)
    await team.until(says("insufficient"), "second")
    await team.change({"suspend": True}, "first")
    await team.until(running, "second")
    await team.change({"suspend": False}, "first")
    await team.until(says("insufficient"), "first")
    assert (await team.workload("first"))["metadata"]["uid"] != before
    await team.change({"suspend": True}, "second")
    await team.until(running, "first")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_job_that_asks_for_more_is_queued_anew(team: Team) -> None:
    """One that waits keeps its Workload; one that runs gives its quota back first."""
    await team.open(3)
    await team.queue({await team.flavor("any"): 3})
    await team.submit("first", labels=QUEUE)
    await team.until(running, "first")
    await team.submit("second", labels=QUEUE)
    await team.until(says("insufficient"), "second")
    before = (await team.workload("second"))["metadata"]["uid"]
    await team.change({"workers": {"min": 1, "max": 2}}, "second")
    small = await team.until(running, "second")
    assert small.status.plan is not None
    assert small.status.plan.num_workers == 1
    assert (await team.workload("second"))["metadata"]["uid"] == before
    await team.change({"workers": {"min": 3, "max": 3}}, "first")
    await team.until(says("insufficient"), "first")
    await team.finish("second")
    large = await team.until(running, "first")
    assert large.status.plan is not None
    assert large.status.plan.num_workers == 3


@pytest.mark.asyncio(loop_scope="module")
async def test_a_workload_that_somebody_deletes_stops_its_job_which_is_queued_anew(team: Team) -> None:
    """A job without a Workload does not run."""
    await team.open(2)
    await team.queue({await team.flavor("any"): 2})
    await team.submit(labels=QUEUE)
    await team.until(running)
    before = await team.workload()
    await team.cluster.delete(WORKLOADS, before["metadata"]["name"], team.name)
    await team.until(lambda job: running(job) and job.status.attempt == 2)
    assert (await team.workload())["metadata"]["uid"] != before["metadata"]["uid"]


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_of_a_deleted_job_stays_in_its_queue(team: Team) -> None:
    """The Workload goes with the job, and another one gets the quota."""
    await team.open(2)
    await team.queue({await team.flavor("any"): 2})
    await team.submit("first", labels=QUEUE)
    await team.until(running, "first")
    await team.submit("second", labels=QUEUE)
    await team.until(waits, "second")
    await team.cluster.delete(HULK_JOBS, "first", team.name)
    await team.until(running, "second")
    assert len((await team.cluster.list(WORKLOADS, team.name)).items) == 1
