"""How fast 1,000 ranks are deployed on simulated nodes: Hulk, a bare client doing only the creates, an Indexed Job.

All three in turn on one control plane, the same pods. Phases, in seconds from the moment each is told to start (for
Hulk: the commit of its plan): created (last pod seen), bound (last pod has a node), running (last pod runs). "split" is
what Hulk needs before that, from the job's creation to the plan's commit. Simulated pods start nothing and connect to
nothing: those phases are another question's (bench/starting.py).
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.api_server import Bare, Timeline, connect, watched
from bench.raw import Raw
from bench.simulated import NAMESPACE, NODE_CPUS, Process, operator, resident_mib, simulated_lab
from bench.verdicts import verdict

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SELECTOR = "hulk.dev/job=bench"
TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Shape:
    """So many pods on so many nodes, each holding so many accelerators."""

    num_nodes: int
    num_pods: int
    accelerators_per_pod: int

    @property
    def cpu_request(self) -> str:
        """What makes a node hold exactly its part of the pods."""
        return f"{1000 * NODE_CPUS // (self.num_pods // self.num_nodes)}m"

    def __str__(self) -> str:
        ranks = self.num_pods * self.accelerators_per_pod
        return f"{ranks} ranks as {self.num_pods} pods of {self.accelerators_per_pod} on {self.num_nodes} nodes"


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds from the start to the last pod's creation, binding and running."""

    created_s: float
    bound_s: float
    running_s: float
    num_replaced: int
    """Pods that were made again on the way, as when a node was taken for dead: the run measured that instead."""
    split_s: float = 0.0

    @classmethod
    def of(cls, timeline: Timeline, start: float, num_pods: int, split_s: float = 0.0) -> Phases:
        """From a complete timeline."""
        created, bound, running = (max(t.values()) - start for t in (timeline.seen, timeline.bound, timeline.running))
        return cls(created, bound, running, len(timeline.seen) - num_pods, split_s)


def job(shape: Shape) -> dict[str, Any]:
    """The HulkJob of a shape: a small model, so that every simulated node is fast enough to be of use."""
    container = {"name": "worker", "image": "bench", "resources": {"requests": {"cpu": shape.cpu_request}}}
    return {
        "apiVersion": "hulk.dev/v1alpha1",
        "kind": "HulkJob",
        "metadata": {"name": "bench", "namespace": NAMESPACE},
        "spec": {
            "workers": {
                "min": shape.num_pods,
                "max": shape.num_pods,
                "acceleratorsPerWorker": shape.accelerators_per_pod,
            },
            "model": {
                "transformer": {"layers": 4, "hidden": 256, "heads": 4, "sequenceLength": 128, "vocabulary": 256}
            },
            "training": {"globalBatch": shape.num_pods * shape.accelerators_per_pod, "steps": 1000},
            "template": {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}},
            "runPolicy": {"startTimeoutSeconds": 600},
        },
    }


def indexed_job(shape: Shape) -> dict[str, Any]:
    """Kubernetes' own way to start the same number of pods; it can neither choose nodes nor start them as one."""
    resources = {"requests": {"cpu": shape.cpu_request}, "limits": {"nvidia.com/gpu": str(shape.accelerators_per_pod)}}
    template = {
        "metadata": {"labels": {"bench": "indexed"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "worker", "image": "bench", "resources": resources}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "indexed", "namespace": NAMESPACE},
        "spec": {
            "completionMode": "Indexed",
            "completions": shape.num_pods,
            "parallelism": shape.num_pods,
            "template": template,
        },
    }


def as_created(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as its creator wrote it, under another name and owner: what the bare client creates."""
    metadata, spec = pod["metadata"], dict(pod["spec"])
    for field in ("nodeName", "preemptionPolicy", "priority", "serviceAccount"):
        spec.pop(field, None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"bare-{metadata['name']}", "namespace": NAMESPACE, "labels": {"bench": "bare"}},
        "spec": spec,
    }


async def hulk_run(bare: Bare, shape: Shape) -> tuple[Phases, list[dict[str, Any]]]:
    """Deploy by HulkJob; the phases count from the status write that commits the plan. Also the pods it made."""
    timeline, asked, start = await deployed(bare, NAMESPACE, job(shape), TIMEOUT_S)
    pods = await bare.matching(PODS, SELECTOR)
    await removed(bare)
    return Phases.of(timeline, start, shape.num_pods, start - asked), pods


async def removed(bare: Bare) -> None:
    """Delete the HulkJob that `job` describes, and its pods."""
    await bare.delete(f"{hulk_jobs(NAMESPACE)}/bench")
    await bare.delete_all(PODS, SELECTOR)


async def deployed(
    bare: Bare, namespace: str, manifest: dict[str, Any], timeout_s: float
) -> tuple[Timeline, float, float]:
    """Create a HulkJob and wait until its pods run: their timeline, when it was asked for, when its plan was there."""
    selector, num_pods = f"hulk.dev/job={manifest['metadata']['name']}", manifest["spec"]["workers"]["max"]
    async with watched(bare, namespace, selector, num_pods) as (timeline, everything_runs):
        committed = asyncio.create_task(plan_committed(bare, namespace))
        asked = time.monotonic()
        await bare.create(hulk_jobs(namespace), manifest)
        planned = await asyncio.wait_for(committed, timeout_s)
        await asyncio.wait_for(everything_runs, timeout_s)
    return timeline, asked, planned


def hulk_jobs(namespace: str) -> str:
    """The path of a namespace's HulkJobs."""
    return f"/apis/hulk.dev/v1alpha1/namespaces/{namespace}/hulkjobs"


async def plan_committed(bare: Bare, namespace: str, after: int = 0) -> float:
    """The time at which a watch shows that the namespace's one job has a plan of an attempt later than `after`."""
    async for event in bare.watch(hulk_jobs(namespace)):
        if event["object"].get("status", {}).get("plan", {}).get("attempt", 0) > after:
            return time.monotonic()
    raise RuntimeError("the watch of HulkJobs ended before a plan was committed")


async def bare_run(bare: Bare, pods: Sequence[dict[str, Any]]) -> Phases:
    """Create the same pods with nothing but HTTP requests."""
    bodies = [as_created(pod) for pod in pods]
    async with watched(bare, NAMESPACE, "bench=bare", len(bodies)) as (timeline, everything_runs):
        start = time.monotonic()
        await bare.create_all(PODS, bodies)
        await asyncio.wait_for(everything_runs, TIMEOUT_S)
    await bare.delete_all(PODS, "bench=bare")
    return Phases.of(timeline, start, len(bodies))


async def indexed_run(bare: Bare, shape: Shape) -> Phases:
    """Create one Indexed Job."""
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    async with watched(bare, NAMESPACE, "bench=indexed", shape.num_pods) as (timeline, everything_runs):
        start = time.monotonic()
        await bare.create(jobs, indexed_job(shape))
        await asyncio.wait_for(everything_runs, TIMEOUT_S)
    await bare.delete(f"{jobs}/indexed")
    await bare.delete_all(PODS, "bench=indexed")
    return Phases.of(timeline, start, shape.num_pods)


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of one shape by client, and the operator's memory while the last job's pods ran."""

    runs: dict[str, list[Phases]]
    busy_mib: float


async def measure(kubeconfig: Path, shape: Shape, num_runs: int, process: Process, raw: Raw) -> Measured:
    """`num_runs` rounds of the three, one after the other in each round."""
    runs: dict[str, list[Phases]] = {"hulk": [], "bare": [], "indexed job": []}
    busy_mib = 0.0
    async with connect(kubeconfig) as bare:
        for _ in range(num_runs):
            phases, pods = await hulk_run(bare, shape)
            busy_mib = resident_mib(process)
            runs["hulk"].append(phases)
            runs["bare"].append(await bare_run(bare, pods))
            runs["indexed job"].append(await indexed_run(bare, shape))
            for client, done in runs.items():
                raw.add(done[-1], client=client, shape=str(shape))
    return Measured(runs, busy_mib)


def valid_rounds(runs: dict[str, list[Phases]]) -> dict[str, list[Phases]]:
    """The rounds in which nobody's pods were replaced."""
    rounds = zip(*runs.values(), strict=True)
    valid = [phases for phases in rounds if not any(one.num_replaced for one in phases)]
    return {client: [phases[i] for phases in valid] for i, client in enumerate(runs)}


def bound_ratios(runs: dict[str, list[Phases]], client: str, other: str) -> list[float]:
    """Seconds to the last binding by one client over another's, round by round."""
    return [own.bound_s / its.bound_s for own, its in zip(runs[client], runs[other], strict=True)]


def table(shape: Shape, runs: dict[str, list[Phases]]) -> Table:
    """Medians, p99 and the ratio to the bare client of the same round; only valid rounds."""
    num_rounds, runs = len(runs["bare"]), valid_rounds(runs)
    view = Table("client", "split", "created", "bound", "running", "bound p99", "bound CV", "bound / bare", "ratio CV")
    view.title = f"{shape}, {len(runs['bare'])} of {num_rounds} rounds valid (seconds, medians; simulated nodes)"
    for name, phases in runs.items() if runs["bare"] else ():
        bound = [phase.bound_s for phase in phases]
        ratios = bound_ratios(runs, name, "bare")
        view.add_row(
            name,
            f"{statistics.median(p.split_s for p in phases):.2f}" if name == "hulk" else "-",
            f"{statistics.median(p.created_s for p in phases):.2f}",
            f"{statistics.median(bound):.2f}",
            f"{statistics.median(p.running_s for p in phases):.2f}",
            f"{p99(bound):.2f}",
            variation(bound),
            f"{statistics.median(ratios):.2f}",
            variation(ratios),
        )
    return view


def verdicts(shape: Shape, runs: dict[str, list[Phases]]) -> list[str]:
    """Many pods are compared with what any client has to pay; one pod per node has an aim in seconds."""
    runs = valid_rounds(runs)
    if not runs["hulk"]:
        return ["no verdict: every round had pods that were replaced"]
    to_bare, to_job = (bound_ratios(runs, "hulk", other) for other in ("bare", "indexed job"))
    if shape.num_pods == shape.num_nodes:
        slowest_s = p99([phases.bound_s for phases in runs["hulk"]])
        lines = [verdict("plan to last pod bound, p99 in seconds", slowest_s, "below", 2)]
    else:
        lines = [
            verdict("bound: Hulk / bare client", statistics.median(to_bare), "at most", 1.2),
            verdict("bound: Hulk / Indexed Job", statistics.median(to_job), "below", 1),
        ]
    return [*lines, verdict("CV of the ratio to the bare client, %", cv_percent(to_bare), "at most", 4)]


def p99(values: Sequence[float]) -> float:
    """The 99th percentile by nearest rank: the largest of fewer than 100 values.

    >>> p99([3.0, 1.0, 2.0])
    3.0
    """
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def cv_percent(values: Sequence[float]) -> float | None:
    """Coefficient of variation; None of fewer than two values."""
    return 100 * statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else None


def variation(values: Sequence[float]) -> str:
    """Coefficient of variation as text.

    >>> variation([1.0, 1.0, 1.0])
    '0.0 %'
    """
    found = cv_percent(values)
    return "-" if found is None else f"{found:.1f} %"


def main(num_runs: int = 20) -> None:
    """Measure every shape and print one table each, then the operator's memory."""
    console, raw = Console(highlight=False, width=130), Raw("deploy")
    shapes = [Shape(100, 1000, 1), Shape(10, 10, 64), Shape(50, 50, 20), Shape(100, 100, 10)]
    with simulated_lab() as lab, operator(lab) as process:
        console.print(f"operator: {resident_mib(process):.0f} MiB resident, idle (planner's process included)")
        for shape in shapes:
            measured = asyncio.run(measure(lab.control.kubeconfig, shape, num_runs, process, raw))
            console.print(table(shape, measured.runs))
            console.print("\n".join(verdicts(shape, measured.runs)))
            console.print(f"operator: {measured.busy_mib:.0f} MiB resident with {shape.num_pods} pods")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
