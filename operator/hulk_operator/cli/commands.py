"""What each command reads and reports; the text of the command line is in `app`."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hulk_placement.topology import Topology
from rich.console import Group, RenderableType

from hulk_operator.api import HulkJob, HulkSweep, HulkTopologySpec
from hulk_operator.cli import brief, live, tables
from hulk_operator.cli.files import Documents
from hulk_operator.cli.live import Target
from hulk_operator.cli.output import note
from hulk_operator.cli.planning import bottleneck_row, flow_rows, plan_from_files, worker_rows
from hulk_operator.cli.reports import ExplainReport, FlowRow, PlanReport, PlanReports, PredictionRow, TopologyReport
from hulk_operator.cli.sweep_state import sweep_lines, sweep_state
from hulk_operator.cli.topology import topology_report
from hulk_operator.cluster import Cluster, Forbidden, NotFound


async def plans_of(documents: Documents, target: Target, topology: Topology | None = None) -> PlanReports:
    """Plans from files alone where there is a topology, or one that declares nodes, else from the cluster."""
    if topology is not None:
        return PlanReports(jobs=plan_from_files(documents.jobs, HulkTopologySpec(), documents.texts, topology))
    if documents.topology is not None and documents.topology.nodes:
        return PlanReports(jobs=plan_from_files(documents.jobs, documents.topology, documents.texts))
    async with live.cluster_of(target) as cluster:
        found = await live.plan_from_cluster(cluster, documents.jobs, documents.texts, documents.topology)
    return PlanReports(jobs=found)


async def job_status(name: str | None, namespace: str | None, target: Target) -> tuple[dict[str, Any], RenderableType]:
    """The state of one job or sweep, or a line for each of a namespace or, without one, of all."""
    now = datetime.now(UTC)
    async with live.cluster_of(target) as cluster:
        if name is not None and namespace is not None:
            return await state_of(cluster, namespace, name, now)
        return await states(cluster, namespace, now)


async def states(cluster: Cluster, namespace: str | None, now: datetime) -> tuple[dict[str, Any], RenderableType]:
    """Of all jobs and sweeps of a namespace or, without one, of all namespaces."""
    jobs, sweeps = await live.jobs(cluster, namespace), await live.sweeps(cluster, namespace)
    people = tables.jobs(jobs, now)
    document = {"jobs": [_state(one) for one in jobs], "sweeps": [_sweep_state(one) for one in sweeps]}
    return document, Group(people, "", sweep_lines(sweeps, now)) if sweeps else people


async def state_of(cluster: Cluster, namespace: str, name: str, now: datetime) -> tuple[dict[str, Any], RenderableType]:
    """A job's state, or that of the sweep of this name. NotFound of the job where there is neither."""
    try:
        found = await live.job(cluster, namespace, name)
    except NotFound:
        sweep = await live.sweep(cluster, namespace, name)
        if sweep is None:
            raise
        return _sweep_state(sweep), sweep_state(sweep, now)
    return _state(found), tables.job_state(found, now)


async def explain_job(
    name: str, namespace: str, target: Target, details: bool
) -> tuple[dict[str, Any], RenderableType]:
    """A job's running plan with the links as they are known now, and its state."""
    async with live.cluster_of(target) as cluster:
        job = await live.job(cluster, namespace, name)
        stored = await live.full_plan(cluster, job)
        topology = await _topology(cluster, job.spec.workers.resource_name)
    report = None
    if stored is not None and job.status.plan is not None:
        plan, why = stored
        known = {machine.name for machine in topology.machines}
        worst = job.status.plan.bottleneck
        report = PlanReport(
            job=job.key,
            planned=True,
            attempt=plan.attempt,
            algorithm=plan.algorithm,
            num_buckets=plan.num_buckets,
            prediction=_prediction(job),
            bottleneck=bottleneck_row(topology, worst.source, worst.target)
            if worst and {worst.source, worst.target} <= known
            else None,
            optimality_gap=job.status.plan.optimality_gap,
            optimality_num_workers=plan.gap_num_workers,
            workers=worker_rows(plan, topology),
            flows=with_observed(flow_rows(plan), job),
            why=why,
        )
    explained = ExplainReport(job=job.key, steps=job.spec.training.steps, plan=report, status=job.status)
    shown = tables.explained if details else brief.explained
    return explained.wire(), shown(explained, job, datetime.now(UTC))


def with_observed(rows: Iterable[FlowRow], job: HulkJob) -> tuple[FlowRow, ...]:
    """Each with what all-reduces of its size class took, where there were any."""
    seen = job.status.observed.wan if job.status.observed else None
    took = {size.max_bytes: size.observed_microseconds for size in seen.all_reduces} if seen else {}
    return tuple(row.model_copy(update={"observed_microseconds": took.get(row.max_bytes)}) for row in rows)


async def follow_logs(name: str, namespace: str, worker: int, follow: bool, tail: int | None, target: Target) -> None:
    """Print a worker's log line by line; where its pod is gone what the status kept of a failure, else NotFound."""
    async with live.cluster_of(target) as cluster:
        job = await live.job(cluster, namespace, name)
        container = job.spec.template.spec.containers[0].name
        if job.status.plan is not None and worker >= (num_workers := job.status.plan.num_workers):
            raise ValueError(f"{job.key} has {num_workers} workers, counted from 0: there is no {worker}")
        try:
            pod = await live.pod_name(cluster, job, worker)
            async for line in cluster.logs(namespace, pod, container=container, follow=follow, tail_lines=tail):
                print(line, flush=follow)
        except NotFound as error:
            kept = job.status.last_failure
            if kept is None:
                raise NotFound(error.status, error.reason, _gone(job, worker)) from error
            note(f"{_gone(job, worker)}; the last words of pod {kept.pod} in attempt {kept.attempt}:")
            print(kept.message)


async def measured_topology(resource: str, target: Target) -> TopologyReport:
    """The matrix as the cluster's agents measured it."""
    async with live.cluster_of(target) as cluster:
        seen = await live.inventory(cluster)
    return topology_report(seen.topology(resource).machines, seen.accepted, seen.declared.links, seen.now)


async def _topology(cluster: Cluster, resource: str) -> Topology:
    """Nodes and links as they are known; none where the user may see his job only."""
    try:
        return (await live.inventory(cluster)).topology(resource)
    except Forbidden as error:
        note(f"links are not shown: {error.message}")
        return Topology(())


def _state(job: HulkJob) -> dict[str, Any]:
    return {"job": job.key, "steps": job.spec.training.steps, "status": job.status.wire()}


def _sweep_state(sweep: HulkSweep) -> dict[str, Any]:
    return {"sweep": sweep.key, "status": sweep.status.wire()}


def _prediction(job: HulkJob) -> PredictionRow | None:
    found = job.status.prediction
    if found is None:
        return None
    return PredictionRow(
        step_microseconds=found.step_microseconds,
        compute_microseconds=found.compute_microseconds,
        bubble_microseconds=found.bubble_microseconds or None,
        communication_microseconds=found.communication_microseconds,
        memory_bytes=found.memory_bytes or None,
        calibrated=found.calibrated,
    )


def _gone(job: HulkJob, worker: int) -> str:
    if job.status.attempt == 0:
        return f"{job.key} has no pods yet (phase {job.status.phase})"
    return f"the pod of worker {worker} is gone (phase {job.status.phase})"
