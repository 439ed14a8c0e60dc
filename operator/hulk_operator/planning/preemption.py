"""A decision of the queue that stops others -> the same question, asked so that some jobs stop nobody.

A job whose PriorityClass never preempts, or whose pods its namespace's ResourceQuota would not admit, has its priority
where accelerators are free. Where the decision stops, shrinks or moves a job that runs, it is made again: those that
wait come after all others, and those that run do not grow.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from hulk_placement.fleet.types import Allocation, Job, Mapped, MoveKind

from hulk_operator.planning.process import Competition

_LOSSES: Final = frozenset({MoveKind.PREEMPT, MoveKind.SHRINK, MoveKind.MOVE})
_BELOW: Final = 1 << 33  # a priority has 32 bits


def within(job: Job, held: Mapped, num_pods: int) -> Job:
    """A job with no more workers than it may have pods; what it holds, it keeps."""
    most = max(job.min_workers, sum(held.values()), min(job.max_workers, num_pods))
    return replace(job, max_workers=min(job.max_workers, most))


def stops_others(found: Allocation) -> bool:
    """Whether a job that runs loses something by it."""
    return any(move.kind in _LOSSES for move in found.moves)


def without_preemption(asked: Competition, polite: Collection[str]) -> Competition:
    """The question in which some jobs take nothing from others."""
    return replace(asked, jobs=tuple(_polite(job, asked) if job.key in polite else job for job in asked.jobs))


def _polite(job: Job, asked: Competition) -> Job:
    if held := sum(asked.running.get(job.key, {}).values()):
        return replace(job, max_workers=max(job.min_workers, min(job.max_workers, held)))
    return replace(job, priority=job.priority - _BELOW)
