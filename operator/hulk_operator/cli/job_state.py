"""What `hulk status` and `hulk logs` read and report; their command line is in `job_commands`."""

from datetime import UTC, datetime
from typing import Any

from hulk_placement.words import counted
from rich.console import Group, RenderableType

from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.cli import cluster_reads, tables
from hulk_operator.cli.cluster_reads import Target
from hulk_operator.cli.output import note
from hulk_operator.cli.sweep_state import sweep_lines, sweep_state
from hulk_operator.cluster import Cluster, NotFound


async def job_status(name: str | None, namespace: str | None, target: Target) -> tuple[dict[str, Any], RenderableType]:
    """The state of one job or sweep, or a line for each of a namespace or, without one, of all."""
    now = datetime.now(UTC)
    async with cluster_reads.cluster_of(target) as cluster:
        if name is not None and namespace is not None:
            return await state_of(cluster, namespace, name, now)
        return await states(cluster, namespace, now)


async def states(cluster: Cluster, namespace: str | None, now: datetime) -> tuple[dict[str, Any], RenderableType]:
    """Of all jobs and sweeps of a namespace or, without one, of all namespaces."""
    jobs, sweeps = await cluster_reads.jobs(cluster, namespace), await cluster_reads.sweeps(cluster, namespace)
    people = tables.jobs(jobs, now)
    document = {"jobs": [_state(one) for one in jobs], "sweeps": [_sweep_state(one) for one in sweeps]}
    return document, Group(people, "", sweep_lines(sweeps, now)) if sweeps else people


async def state_of(cluster: Cluster, namespace: str, name: str, now: datetime) -> tuple[dict[str, Any], RenderableType]:
    """A job's state, or that of the sweep of this name. NotFound of the job where there is neither."""
    try:
        found = await cluster_reads.job(cluster, namespace, name)
    except NotFound:
        sweep = await cluster_reads.sweep(cluster, namespace, name)
        if sweep is None:
            raise
        return _sweep_state(sweep), sweep_state(sweep, now)
    return _state(found), tables.job_state(found, now)


async def follow_logs(name: str, namespace: str, worker: int, follow: bool, tail: int | None, target: Target) -> None:
    """Print a worker's log line by line; where its pod is gone what the status kept of a failure, else NotFound."""
    async with cluster_reads.cluster_of(target) as cluster:
        job = await cluster_reads.job(cluster, namespace, name)
        container = job.spec.template.spec.containers[0].name
        if job.status.plan is not None and worker >= (num_workers := job.status.plan.num_workers):
            raise ValueError(f"{job.key} has {counted(num_workers, 'worker')}, counted from 0: there is no {worker}")
        try:
            pod = await cluster_reads.pod_name(cluster, job, worker)
            async for line in cluster.logs(namespace, pod, container=container, follow=follow, tail_lines=tail):
                print(line, flush=follow)
        except NotFound as error:
            kept = job.status.last_failure
            if kept is None:
                raise NotFound(error.status, error.reason, _gone(job, worker)) from error
            note(f"{_gone(job, worker)}; the last words of pod {kept.pod} in attempt {kept.attempt}:")
            print(kept.message)


def _state(job: HulkJob) -> dict[str, Any]:
    return {"job": job.key, "steps": job.spec.training.steps, "status": job.status.wire()}


def _sweep_state(sweep: HulkSweep) -> dict[str, Any]:
    return {"sweep": sweep.key, "status": sweep.status.wire()}


def _gone(job: HulkJob, worker: int) -> str:
    if job.status.attempt == 0:
        return f"{job.key} has no pods yet (phase {job.status.phase})"
    return f"the pod of worker {worker} is gone (phase {job.status.phase})"
