"""A corner of a cluster with queues of Kueue's, which only its own nodes' accelerators have quota in."""

from collections.abc import Callable
from typing import Any, Final

from faults import JOB, Corner, planned_node, until, why_not_planned
from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import (
    HULK_JOBS,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    ApiCluster,
    ApiResource,
    Object,
)
from hulk_operator.kueue import workload_name
from hulk_operator.status import finished

VERSION: Final = (names.KUEUE_GROUP, names.KUEUE_VERSION)
CLUSTER_QUEUES: Final = ApiResource(*VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
LOCAL_QUEUES: Final = ApiResource(*VERSION, "localqueues", "LocalQueue")
TOPOLOGIES: Final = ApiResource(*VERSION, "topologies", "Topology", namespaced=False)
QUEUE: Final = {names.LABEL_QUEUE: "team"}


class Team(Corner):
    """A corner with queues of Kueue's; what is not namespaced is named after it."""

    def __init__(self, cluster: ApiCluster, name: str) -> None:
        super().__init__(cluster, name)
        self.made: list[tuple[ApiResource, str]] = []

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

    async def apply(self, resource: ApiResource, body: Object) -> str:
        """An object that is not namespaced, under its own name."""
        await self.cluster.create(resource, body)
        self.made.append((resource, body["metadata"]["name"]))
        return self.made[-1][1]

    async def _make(self, resource: ApiResource, name: str, body: Object) -> str:
        full = f"{self.name}-{name}"
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self.apply(resource, {**kind, "metadata": {"name": full}, **body})


def waits(job: HulkJob) -> bool:
    """Whether it waits for Kueue and has nothing."""
    return why_not_planned(job).startswith("QueuedByKueue")


def says(words: str) -> Callable[[HulkJob], bool]:
    """Whether it waits for Kueue, in these words."""
    return lambda job: waits(job) and words in why_not_planned(job)


def holds(body: Object, kind: str, value: str = "True") -> bool:
    """Whether a Workload's condition has that value."""
    return any(one["type"] == kind and one["status"] == value for one in body["status"].get("conditions", ()))
