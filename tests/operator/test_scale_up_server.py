"""A job whose nodes do not exist yet, on a real API server with kube-scheduler; a small autoscaler adds them.

It does what Cluster Autoscaler and Karpenter do: it looks for pods that kube-scheduler finds no node for, and adds a
node that fits one of them. Nodes and pods are simulated.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from fault_operator import operator
from faults import CRDS, NAMESPACES, Corner, planned_node, prepare, running, stated, until
from hulk_lab import kwok, up
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.cluster import (
    POD_TEMPLATES,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_REQUESTS,
    AlreadyExists,
    ApiCluster,
    NotFound,
    Object,
    connect,
)
from hulk_operator.status import condition, holds

pytestmark = pytest.mark.controlplane

POOL = {"pool": "gpu"}
RENTED = [{"key": "rented", "operator": "Exists", "effect": "NoSchedule"}]
NUM_WORKERS = 3
PORT = 29_431
LEASES_IN = "scale-up-test-operator"
CUTOFF = -10  # of Cluster Autoscaler: pods below are not worth a node


class Autoscaler:
    """Adds one node at a time of its pool, while a pod fits it that nobody has a node for; `added` says which."""

    def __init__(self, corner: Corner) -> None:
        self._corner = corner
        self.added: list[str] = []

    async def run(self) -> None:
        """Until cancelled."""
        for number in count(1):
            while not any(self._fits(pod) for pod in await self._unschedulable()):
                await asyncio.sleep(0.2)
            name = await self._corner.add_node(f"new-{number}", 1, 1, POOL)
            self.added.append(name)
            await self._settled()

    async def _unschedulable(self) -> list[Object]:
        found = (await self._corner.cluster.list(PODS, self._corner.name, fields="spec.nodeName=")).items
        return [pod for pod in found if _said(pod) == "Unschedulable"]

    def _fits(self, pod: Object) -> bool:
        """By what it requires: labels, region, accelerators; and by its priority, as Cluster Autoscaler's cutoff is."""
        spec = pod["spec"]
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        regions = [one["values"] for term in terms for one in term["matchExpressions"]]
        asked = spec["containers"][0]["resources"]["requests"]
        is_here = spec["nodeSelector"] == POOL and regions == [[f"{self._corner.name}-r1"]]
        return is_here and asked[self._corner.accelerator] == "1" and CUTOFF <= spec["priority"] < 0

    async def _settled(self) -> None:
        """A node that came takes a pod before another is added."""

        async def taken() -> bool:
            pods = (await self._corner.cluster.list(PODS, self._corner.name)).items
            return self.added[-1] in {pod["spec"].get("nodeName") for pod in pods}

        await until(taken, lambda: f"nobody is on {self.added[-1]}")


def _said(pod: Object) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one.get("reason", "") for one in conditions if one["type"] == "PodScheduled"), "")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(
    control_plane_lab: up.Lab, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiCluster]:
    """The API server with an operator for all namespaces, and the chart's class of placeholder pods."""
    control, log = control_plane_lab.control, tmp_path_factory.mktemp("scale-up") / "log"
    kwok.start(control)
    found = await connect(str(control.kubeconfig))
    await prepare(found)
    text = (repository / "charts/hulk/templates/operator/priorityclass.yaml").read_text()
    plain = yaml.safe_load("\n".join(line for line in text.splitlines() if "{{" not in line))
    with suppress(AlreadyExists):
        await found.create(PRIORITY_CLASSES, {**plain, "metadata": {"name": plain["metadata"]["name"]}})
    await found.create(NAMESPACES, {"metadata": {"name": LEASES_IN}})
    try:
        async with operator(control.kubeconfig, log, PORT, LEASES_IN):
            yield found
        assert "Traceback" not in log.read_text(), log.read_text()[-5000:]
    finally:
        await found.delete(NAMESPACES, LEASES_IN)
        with suppress(NotFound):
            await found.delete(PRIORITY_CLASSES, names.PLACEHOLDER_CLASS)
        with suppress(NotFound):
            await found.delete(CRDS, CRD["metadata"]["name"])
        await found.close()


@pytest_asyncio.fixture(loop_scope="module")
async def corner(cluster: ApiCluster, request: pytest.FixtureRequest) -> AsyncIterator[Corner]:
    """A corner named as its test, for restricted pods only; its node is in a region that the jobs may not use."""
    found = Corner(cluster, request.node.name.removeprefix("test_").replace("_", "-")[:40].rstrip("-"))
    await found.open(1, accelerators=NUM_WORKERS, labels=POOL)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.patch(NAMESPACES, found.name, None, {"metadata": {"labels": restricted}})
    try:
        yield found
    finally:
        await found.close()


async def submit(corner: Corner, mode: str, job: str, **policy: Any) -> None:
    """A job that may not use the region of the node that is there."""
    placement = {"allowUnknownLinks": True, "regions": [f"{corner.name}-r1"], "allowScaleUp": mode}
    pod = {"nodeSelector": POOL, "tolerations": RENTED}
    await corner.submit(job, NUM_WORKERS, placement=placement, pod=pod, runPolicy=policy)


async def placeholders(corner: Corner, job: str) -> list[Object]:
    labels = f"{names.LABEL_JOB}={job},{names.LABEL_PLACEHOLDER}"
    return list((await corner.cluster.list(PODS, corner.name, labels=labels)).items)


def asks(value: str, reason: str) -> Any:
    """Whether the job asks for nodes, and why."""

    def is_so(job: HulkJob) -> bool:
        found = condition(job.status, ConditionType.SCALING_UP)
        return found is not None and (found.status, found.reason) == (value, reason)

    return is_so


@pytest.mark.asyncio(loop_scope="module")
async def test_nodes_that_are_asked_for_come_and_the_gang_gets_them(corner: Corner) -> None:
    """By placeholders, which take the room that there is, and of which those without a node are what is added for."""
    there = await corner.add_node("own", 1, 1, POOL)
    scaler = Autoscaler(corner)
    async with asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(scaler.run())
        await submit(corner, "placeholders", "job")
        job = await corner.until(running)
        adding.cancel()
    assert len(scaler.added) == NUM_WORKERS - 1, "one found room on the node that was there"
    gang = (await corner.cluster.list(PODS, corner.name, labels=f"{names.LABEL_JOB}=job")).items
    assert await placeholders(corner, "job") == []
    assert {pod["spec"]["nodeName"] for pod in gang} == {there, *scaler.added}
    assert all(planned_node(pod) == pod["spec"]["nodeName"] for pod in gang)
    assert asks("False", "RoomFound")(job)
    assert (job.status.attempt, job.status.failures, job.status.disruptions) == (1, 0, 0)


@pytest.mark.asyncio(loop_scope="module")
async def test_it_is_given_up_in_time_and_nodes_that_come_later_are_used(corner: Corner) -> None:
    await submit(corner, "placeholders", "late", scaleUpTimeoutSeconds=3)
    await corner.until(asks("True", "Placeholders"), "late")
    assert len(await placeholders(corner, "late")) == NUM_WORKERS
    job = await corner.until(asks("False", "ScaleUpTimedOut"), "late")
    assert not holds(job.status, ConditionType.FAILED)
    lacking = (
        f"Room is lacking for 3 of 3 workers, each of {corner.accelerator} 1, on nodes with labels pool=gpu; region"
    )
    assert lacking in stated(job, ConditionType.PLANNED).message

    async def gone() -> bool:
        return not await placeholders(corner, "late")

    await until(gone, lambda: "placeholders are left")
    await corner.add_node("late", NUM_WORKERS, 1, POOL)
    await corner.until(running, "late")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_placeholder_gives_way_to_another_jobs_worker(corner: Corner) -> None:
    """What it takes counts as free, and kube-scheduler takes it away; then it asks for a node again."""
    there = await corner.add_node("own", 1, 1, POOL)
    await submit(corner, "placeholders", "large")

    async def held() -> bool:
        return there in {pod["spec"].get("nodeName") for pod in await placeholders(corner, "large")}

    await until(held, lambda: f"no placeholder is on {there}")
    pod = {"nodeSelector": POOL, "terminationGracePeriodSeconds": 1}
    await corner.submit("small", 1, placement={"regions": [f"{corner.name}-r1"]}, pod=pod)
    await corner.until(running, "small")

    async def asks_again() -> bool:
        left = await placeholders(corner, "large")
        return len(left) == NUM_WORKERS and {pod["spec"].get("nodeName") for pod in left} == {None}

    await until(asks_again, lambda: "no placeholder takes the place of the one that gave way")


KINDS = {"kind": "ProvisioningRequest", "plural": "provisioningrequests", "singular": "provisioningrequest"}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSION = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"provisioningrequests.{names.AUTOSCALING_GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": names.AUTOSCALING_GROUP,
        "names": KINDS,
        "scope": "Namespaced",
        "versions": [{**VERSION, "schema": {"openAPIV3Schema": OPEN}}],
    },
}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_provisioning_request_is_served_once_the_cluster_has_the_kind(corner: Corner) -> None:
    await submit(corner, "provisioningRequest", "job")
    job = await corner.until(asks("False", "ScaleUpUnavailable"))
    assert "install the ProvisioningRequest definition" in stated(job, ConditionType.SCALING_UP).message
    await corner.cluster.create(CRDS, CRD)
    await corner.until(asks("True", "ProvisioningRequested"))
    (request,) = (await corner.cluster.list(PROVISIONING_REQUESTS, corner.name)).items
    (template,) = (await corner.cluster.list(POD_TEMPLATES, corner.name)).items
    assert request["spec"]["podSets"] == [
        {"count": NUM_WORKERS, "podTemplateRef": {"name": template["metadata"]["name"]}}
    ]
    await corner.add_node("asked", NUM_WORKERS, 1, POOL)
    await corner.until(running)
    for kind in (PROVISIONING_REQUESTS, POD_TEMPLATES):
        assert (await corner.cluster.list(kind, corner.name)).items == ()
