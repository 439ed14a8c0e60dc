"""HulkJobs in queues of Kueue's own controller, under the product's operator: real API server, simulated nodes.

Each test has nodes with an accelerator of their own, flavors and queues for that, so that no test takes from another.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import permutations

import pytest
import pytest_asyncio
import yaml
from fault_operator import operator
from faults import NAMESPACES, prepare, running, why_not_planned
from hulk_lab import up
from hulk_operator import names
from hulk_operator.cluster import (
    HULK_JOBS,
    NODES,
    RESOURCE_FLAVORS,
    WORKLOADS,
    ApiCluster,
    connect,
)
from kueue_team import CLUSTER_QUEUES, QUEUE, TOPOLOGIES, Team, holds, says, waits

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.whole,  # building Kueue takes 5 minutes of CPU; test_kueue_pass plays its part in short
]

LEASES_IN = "kueue-test-operator"
PORT = 29_420
LEVELS = (names.NODE_REGION, names.NODE_ZONE, names.NODE_HOST_NAME)
LARGE = {"layers": 12, "hidden": 1024, "heads": 16, "sequenceLength": 512, "vocabulary": 32_000}
PREEMPTS = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(kueue_lab: up.Lab, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiCluster]:
    """The API server with Kueue's controller and an operator for all namespaces."""
    kubeconfig = kueue_lab.control.kubeconfig
    found = await connect(str(kubeconfig))
    log = tmp_path_factory.mktemp("kueue") / "operator.log"
    try:
        await prepare(found)
        await found.create(NAMESPACES, {"metadata": {"name": LEASES_IN}})
        async with operator(kubeconfig, log, PORT, LEASES_IN):
            yield found
        assert "Traceback (most recent call last)" not in log.read_text(), log.read_text()[-5000:]
    finally:
        await found.delete(NAMESPACES, LEASES_IN)
        await found.close()


@pytest_asyncio.fixture(loop_scope="module")
async def team(cluster: ApiCluster, request: pytest.FixtureRequest) -> AsyncIterator[Team]:
    """A team named as its test."""
    name = request.node.name.removeprefix("test_").translate(str.maketrans("_[", "--", "]"))[:36].rstrip("-")
    found = Team(cluster, name)
    try:
        yield found
    finally:
        await found.close()


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
async def test_what_hulk_export_prints_is_a_topology_that_jobs_run_by(team: Team, kueue_lab: up.Lab) -> None:
    """As printed, into Kueue: a flavor for each region, and all workers in one zone of one."""
    await team.open(4, regions=2)
    for number in range(4):
        node, zone = f"{team.name}-{number}", f"{team.name}-z{number % 2}"
        labels = {names.NODE_HOST_NAME: node, names.NODE_ZONE: zone}
        await team.cluster.patch(NODES, node, None, {"metadata": {"labels": labels}})
    command = ["export", "kueue", "--resource", team.accelerator, "--kubeconfig", str(kueue_lab.control.kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from hulk_operator.cli import main; main()", *command, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    topology, *flavors = yaml.safe_load_all(printed)
    await team.apply(TOPOLOGIES, topology)
    await team.queue({await team.apply(RESOURCE_FLAVORS, flavor): 2 for flavor in flavors})
    await team.submit(labels=QUEUE, annotations={names.ANNOTATION_REQUIRED_TOPOLOGY: names.NODE_ZONE})
    await team.until(running)
    assert len({int(node.rpartition("-")[2]) % 2 for node in await team.nodes_of()}) == 1


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
