"""The operator's metrics and health over HTTP: snapshots of the running parts for `hulk_operator.metrics`."""

import asyncio

from hulk_operator.api import ConditionType
from hulk_operator.handlers.operator import Parts
from hulk_operator.metrics import Snapshot, exposition, ring
from hulk_operator.metrics import serve as serve_metrics
from hulk_operator.status import finished, holds


def snapshot(parts: Parts) -> Snapshot:
    """The operator's state at this moment; of one that waits for the lease there is nothing to tell."""
    acting = parts.acting
    if acting is None:
        return Snapshot()
    jobs = tuple(job for job in parts.store.all_jobs() if job.spec.ours)
    running = {job.key for job in jobs if holds(job.status, ConditionType.PLANNED) and not finished(job.status)}
    return Snapshot(
        jobs=jobs,
        sweeps=tuple(sweep for _, sweep in parts.store.sweeps.items()),
        rings={key: ring(full.plan) for key, full in acting.planner.full_plans().items() if key in running},
        probing=acting.prober.state,
        queue_depth=acting.queue.depth,
        lease_held=parts.lease.held,
    )


async def serve(parts: Parts) -> None:
    """Answer on the metrics port until cancelled.

    Healthy while the loop turns (a part that ends, ends them all) and the API server still tells what happens; ready
    when it knows the cluster, so that it can act or begin to at once.
    """

    async def shown() -> bytes:
        return await asyncio.to_thread(exposition, snapshot(parts), parts.health, parts.now)

    runner = await serve_metrics(shown, parts.health.hears, lambda: parts.informers.synced, parts.settings.metrics_port)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
