"""`hulk explain`: a job's running plan with the links as they are known now, and its state."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hulk_placement.topology import Topology
from rich.console import RenderableType

from hulk_operator.api import HulkJob
from hulk_operator.cli import cluster_reads, inventory, plan_screen, stored_plan, tables
from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cli.output import note
from hulk_operator.cli.report_rows import bottleneck_row, flow_rows, worker_rows
from hulk_operator.cli.reports import ExplainReport, FlowRow, PlanReport, PredictionRow
from hulk_operator.cluster import Cluster, Forbidden


async def explain_job(
    name: str, namespace: str, target: Target, details: bool
) -> tuple[dict[str, Any], RenderableType]:
    """A job's running plan with the links as they are known now, and its state."""
    async with cluster_reads.cluster_of(target) as cluster:
        job = await cluster_reads.job(cluster, namespace, name)
        stored = await stored_plan.full_plan(cluster, job)
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
    shown = tables.explained if details else plan_screen.explained
    return explained.wire(), shown(explained, job, datetime.now(UTC))


def with_observed(rows: Iterable[FlowRow], job: HulkJob) -> tuple[FlowRow, ...]:
    """Each with what all-reduces of its size class took, where there were any."""
    seen = job.status.observed.wan if job.status.observed else None
    took = {size.max_bytes: size.observed_microseconds for size in seen.all_reduces} if seen else {}
    return tuple(row.model_copy(update={"observed_microseconds": took.get(row.max_bytes)}) for row in rows)


async def _topology(cluster: Cluster, resource: str) -> Topology:
    """Nodes and links as they are known; none where the user may see his job only."""
    try:
        return (await inventory.inventory(cluster)).topology(resource)
    except Forbidden as error:
        note(f"links are not shown: {error.message}")
        return Topology(())


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
