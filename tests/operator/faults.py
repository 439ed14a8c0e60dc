"""A corner of a real cluster per fault: a namespace, simulated nodes with an accelerator of their own, and its jobs.

No two corners compete for anything, so many faults go through one operator at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from hulk_lab import kwok
from hulk_operator import names
from hulk_operator.api import Condition, ConditionType, HulkJob
from hulk_operator.api.crds import crds
from hulk_operator.cluster import (
    CONFIG_MAPS,
    HULK_JOBS,
    NETWORK_POLICIES,
    NODE_PROFILES,
    NODES,
    PODS,
    SERVICES,
    ApiCluster,
    ApiResource,
    NotFound,
    Object,
    Unavailable,
)
from hulk_operator.status import condition, holds

CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)
QUOTAS = ApiResource("", "v1", "resourcequotas", "ResourceQuota")
LIMITS = ApiResource("", "v1", "limitranges", "LimitRange")
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
CHILDREN = (PODS, SERVICES, CONFIG_MAPS, NETWORK_POLICIES)
METRICS_PORT = 29_400
WAIT_S = 240.0
LOOK_S = 0.25
JOB = "job"
Labels = Mapping[str, str]
GATE = {"name": "test.example.com/hold"}


async def prepare(cluster: ApiCluster) -> None:
    """Apply the CRDs and wait until they are served."""
    for crd in crds():
        await cluster.apply(CRDS, crd["metadata"]["name"], None, crd, field_manager="test")

    async def served() -> bool:
        try:
            await asyncio.gather(cluster.list(HULK_JOBS), cluster.list(NODE_PROFILES))
        except NotFound:
            return False
        return True

    await until(served, lambda: "the CRDs are not served")


async def until(true: Callable[[], Awaitable[bool]], otherwise: Callable[[], str], wait_s: float = WAIT_S) -> None:
    """Wait for a condition; AssertionError with the last thing that was seen."""
    try:
        async with asyncio.timeout(wait_s):
            while not await true():
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"not within {wait_s:g} s: {otherwise()}") from None


@dataclass(slots=True)
class Corner:
    """One fault's part of the cluster; `name` is its namespace and the beginning of its nodes' names."""

    cluster: ApiCluster
    name: str

    @property
    def accelerator(self) -> str:
        """The resource that only this corner's nodes offer."""
        return f"{self.name}.example.com/accelerator"

    async def open(
        self, num_nodes: int, accelerators: int = 1, regions: int = 1, labels: Labels = MappingProxyType({})
    ) -> list[str]:
        """Namespace and ready nodes, in turns from regions `<name>-r0`, `<name>-r1`, ..."""
        await self.cluster.create(NAMESPACES, {"metadata": {"name": self.name}})
        made = (self.add_node(str(index), accelerators, index % regions, labels) for index in range(num_nodes))
        return list(await asyncio.gather(*made))

    async def add_node(
        self, suffix: str, accelerators: int = 1, region: int = 0, labels: Labels = MappingProxyType({})
    ) -> str:
        """One more ready node; its name."""
        name = f"{self.name}-{suffix}"
        await self.cluster.create(NODES, self._node(name, f"{self.name}-r{region}", accelerators, labels))

        async def usable() -> bool:
            return _usable(await self.cluster.get(NODES, name))

        await until(usable, lambda: f"node {name} is not ready")
        return name

    async def close(self) -> None:
        """Delete everything of the corner, as far as it was made."""
        await self.cluster.delete_all(HULK_JOBS, self.name, labels="")
        for pod in (await self.cluster.list(PODS, self.name)).items:
            with suppress(NotFound):
                await self.cluster.patch(PODS, pod["metadata"]["name"], self.name, {"metadata": {"finalizers": None}})
        await self.cluster.delete_all(NODES, "", labels=f"corner={self.name}")
        with suppress(NotFound):
            await self.cluster.delete(NAMESPACES, self.name)

    async def submit(
        self,
        job: str = JOB,
        workers: int = 2,
        *,
        gated: bool = False,
        vocabulary: int = 256,
        labels: Labels = MappingProxyType({}),
        **spec: Any,
    ) -> None:
        """Create a job with labels; `pod` in `spec` adds to its template's spec, `container` to the worker container,
        `annotations` to the template's metadata.
        """
        container = {"name": "w", "image": "none", **spec.pop("container", {})}
        pod = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec.pop("pod", {})}
        counts = {"min": workers, "max": workers, **spec.pop("counts", {})}
        template = {"metadata": {"annotations": spec.pop("annotations", {})}, "spec": pod}
        if gated:
            pod["schedulingGates"] = [GATE]
        shape = {"layers": 2, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": vocabulary}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.JOB_KIND,
            "metadata": {"name": job, "namespace": self.name, "labels": dict(labels)},
            "spec": {
                "workers": {"resourceName": self.accelerator, **counts},
                "model": {"transformer": shape},
                "training": {"globalBatch": max(workers, 8), "steps": 10},
                "placement": {"allowUnknownLinks": True},
                "template": template,
                **spec,
            },
        }
        await self.cluster.create(HULK_JOBS, body)

    async def change(self, spec: Object, job: str = JOB) -> None:
        """Change a job's spec."""
        await self.cluster.patch(HULK_JOBS, job, self.name, {"spec": spec})

    async def job(self, job: str = JOB) -> HulkJob:
        """The job as it is now."""
        return HulkJob.model_validate(await self.cluster.get(HULK_JOBS, job, self.name))

    async def until(
        self,
        true: Callable[[HulkJob], bool],
        job: str = JOB,
        meanwhile: Callable[[str], Awaitable[object]] | None = None,
        wait_s: float = WAIT_S,
    ) -> HulkJob:
        """Wait for something of a job; `meanwhile` runs before each look."""
        found: list[HulkJob] = []

        async def seen() -> bool:
            with suppress(Unavailable):  # while the API server is down
                if meanwhile:
                    await meanwhile(job)
                found[:] = [await self.job(job)]
            return bool(found) and true(found[0])

        await until(seen, lambda: f"{self.name}/{job}: {[one.status.wire() for one in found]}", wait_s)
        return found[0]

    async def pods(self, job: str = JOB, attempt: int | None = None) -> list[Object]:
        """The job's pods by worker, of one attempt or of all."""
        labels = f"{names.LABEL_JOB}={job}" + (f",{names.LABEL_ATTEMPT}={attempt}" if attempt else "")
        found = (await self.cluster.list(PODS, self.name, labels=labels)).items
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][names.LABEL_WORKER]))

    async def until_pods(self, num_pods: int, job: str = JOB, attempt: int | None = None) -> list[Object]:
        """Wait until the job has that many pods."""
        found: list[Object] = []

        async def seen() -> bool:
            found[:] = await self.pods(job, attempt)
            return len(found) == num_pods

        await until(seen, lambda: f"{len(found)} pods of {self.name}/{job}, not {num_pods}")
        return found

    async def until_empty(self, job: str = JOB) -> None:
        """Wait until nothing is left of a job."""
        left: list[Object] = []

        async def gone() -> bool:
            labels = f"{names.LABEL_JOB}={job}"
            left[:] = [
                item for kind in CHILDREN for item in (await self.cluster.list(kind, self.name, labels=labels)).items
            ]
            return not left

        await until(gone, lambda: f"left of {job}: {[item['metadata']['name'] for item in left]}")

    async def open_gates(self, job: str = JOB, workers: Iterable[int] | None = None) -> None:
        """Let kube-scheduler have the job's pods, of some workers or of all."""
        for pod in await self.pods(job):
            if pod["spec"].get("schedulingGates") and (workers is None or worker(pod) in workers):
                with suppress(NotFound):
                    await self.cluster.patch(
                        PODS, pod["metadata"]["name"], self.name, {"spec": {"schedulingGates": None}}
                    )

    async def say(self, pod: Object, state: Object, phase: str) -> None:
        """Write a pod's status as a kubelet would."""
        container = {"name": "w", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        status = {"status": {"phase": phase, "containerStatuses": [container]}}
        await self.cluster.patch(PODS, pod["metadata"]["name"], self.name, status, subresource="status")

    async def end(self, pod: Object, code: int, message: str = "") -> None:
        """The worker ends with an exit code."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message, "finishedAt": now()}
        await self.say(pod, {"terminated": ended}, "Failed" if code else "Succeeded")

    async def node_says(self, node: str, ready: str, reason: str) -> None:
        """A node's Ready condition, which kwok lets go of first."""
        await self.cluster.patch(NODES, node, None, {"metadata": {"annotations": {kwok.ANNOTATION: None}}})

        async def said() -> bool:
            status = (await self.cluster.get(NODES, node))["status"]
            others = [entry for entry in status["conditions"] if entry["type"] != "Ready"]
            before = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
            now_so = {**before, "status": ready, "reason": reason, "message": reason}
            change = {"status": {"conditions": [*others, now_so]}}
            await self.cluster.patch(NODES, node, None, change, subresource="status")
            return bool(before["status"] == ready)

        await until(said, lambda: f"{node} does not say that Ready is {ready}")

    async def measure(self, source: str, target: str, rtt_us: int, rate: int, age_s: float = 0.0) -> None:
        """Write a link as the agent of `source` would."""
        time = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        link = {"target": target, "underLoad": False, "time": time, "bandwidthTime": time, "samples": 9, "streams": 4}
        figures = {"rttP50Microseconds": rtt_us, "rttP95Microseconds": rtt_us, "bandwidthBytesPerSecond": rate}
        body = {"metadata": {"name": source}, "status": {"links": [{**link, **figures}]}}

        async def written() -> bool:
            try:  # the operator makes the profile
                await self.cluster.get(NODE_PROFILES, source)
            except NotFound:
                return False
            await self.cluster.apply(
                NODE_PROFILES, source, None, body, field_manager="hulk-agent", subresource="status"
            )
            return True

        await until(written, lambda: f"no NodeProfile {source}")

    def _node(self, name: str, region: str, accelerators: int, labels: Labels) -> Object:
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110", self.accelerator: str(accelerators)}
        found = {"corner": self.name, names.NODE_REGION: region, f"{self.accelerator}.product": "lab-kwok", **labels}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {kwok.ANNOTATION: "fake"}, "labels": found},
            "status": {"capacity": resources, "allocatable": resources},
        }


def _usable(node: Object) -> bool:
    ready = any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in node["status"].get("conditions", ())
    )
    return ready and not node["spec"].get("taints")


def worker(pod: Object) -> int:
    """Which worker a pod is."""
    return int(pod["metadata"]["labels"][names.LABEL_WORKER])


def planned_node(pod: Object) -> str:
    """The node that a pod is pinned to."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    node: str = term["matchFields"][0]["values"][0]
    return node


def why_not_planned(job: HulkJob) -> str:
    """`Reason: message` of a job that has no plan; empty before that is said, and while it has one."""
    found = condition(job.status, ConditionType.PLANNED)
    return f"{found.reason}: {found.message}" if found is not None and found.status == "False" else ""


def running(job: HulkJob) -> bool:
    """Whether the job's gang is up."""
    return holds(job.status, ConditionType.RUNNING)


def runs_as(attempt: int) -> Callable[[HulkJob], bool]:
    """Whether the job's gang is up, in that attempt or a later one."""
    return lambda job: running(job) and job.status.attempt >= attempt


def stated(job: HulkJob, kind: ConditionType) -> Condition:
    """A condition that must be there."""
    found = condition(job.status, kind)
    assert found is not None, f"{job.key} has no condition {kind}: {job.status.wire()}"
    return found


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Fault = Callable[[Corner], Coroutine[Any, Any, None]]


class Faults(dict[str, Fault]):
    """The faults of a module, by name; the fixture `outcomes` sets them off."""

    def take(self, function: Fault) -> Fault:
        """Take a fault in."""
        self[function.__name__] = function
        return function
