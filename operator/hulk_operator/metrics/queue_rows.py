"""The series of jobs among others: places, shares, what their work is worth, the queue's moves."""

from collections.abc import Mapping
from datetime import datetime

from hulk_operator.api import HulkJob
from hulk_operator.inputs.utilities import deadline_s, to_utility
from hulk_operator.metrics import definitions as d
from hulk_operator.metrics.definitions import Definition, Rows
from hulk_operator.metrics.snapshot import Snapshot


def queue_rows(snapshot: Snapshot, moves: Mapping[str, int], now: datetime) -> dict[Definition, Rows]:
    """Every series of the queue."""
    named = [((job.namespace, job.metadata.name), job) for job in snapshot.jobs]
    queued = [(labels, job.status.queue) for labels, job in named if job.status.queue]
    shares = [(labels, job.status.share) for labels, job in named if job.status.share]
    return {
        d.JOB_QUEUE: [(labels, float(place.position)) for labels, place in queued],
        d.JOB_WAITING: [(labels, max(0.0, (now - place.since).total_seconds())) for labels, place in queued],
        d.JOB_SHARE: [
            ((*labels, kind), float(value))
            for labels, share in shares
            for kind, value in (("given", share.of_cluster), ("fair", share.fair))
        ],
        d.JOB_UTILITY: [(labels, _utility(job, now)) for labels, job in named],
        d.JOB_JOULES: [(labels, float(job.status.energy.joules)) for labels, job in named if job.status.energy],
        d.QUEUE_WAITING: [((), float(len(queued)))],
        d.QUEUE_MOVES: [((kind,), float(count)) for kind, count in dict(moves).items()],
    }


def _utility(job: HulkJob, now: datetime) -> float | None:
    """None before the first step is seen."""
    seen = job.status.observed
    if seen is None:
        return None
    batch, end_s = job.spec.global_batch, deadline_s(job)
    total = float(job.spec.training.num_steps * batch)
    is_late = end_s is not None and now.timestamp() > end_s
    return to_utility(job).value(min(total, float(seen.step * batch)), total, is_late)
