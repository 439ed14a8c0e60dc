"""A decision of the queue -> the same question, asked so that some jobs take nothing from others.

A job whose pods its namespace's ResourceQuotas would not admit comes after all others: what it is given it cannot use.
One whose PriorityClass never preempts has its priority where accelerators are free. Where a decision stops, shrinks or
moves a job that runs, and gives such a job something, it is made again: one that runs does not grow; one that waits
gets no more than where all that runs stays as it is, and where that is nothing it comes after all others.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from typing import Final

from hulk_placement.fleet.types import Allocation, Job, Mapped, MoveKind
from hulk_placement.words import counted

from hulk_operator.planning.fleet_jobs import Contestant
from hulk_operator.planning.process import Competition

_LOSSES: Final = frozenset({MoveKind.PREEMPT, MoveKind.SHRINK, MoveKind.MOVE})
_BELOW: Final = 1 << 33  # a priority has 32 bits


def within(job: Job, held: Mapped, num_pods: int) -> Job:
    """A job with no more workers than it may have pods; what it holds, it keeps."""
    most = max(job.min_workers, sum(held.values()), min(job.max_workers, num_pods))
    return replace(job, max_workers=min(job.max_workers, most))


def not_admitted(
    contestants: Mapping[str, Contestant], jobs: Mapping[str, Job], num_pods: Mapping[str, int]
) -> dict[str, str]:
    """The jobs that may have fewer pods (`num_pods`) than they need at least, and a sentence on each."""
    return {
        key: f"it stops no other job: the ResourceQuotas of namespace {one.job.namespace} admit "
        f"{counted(num_pods[key], 'pod')} of it, and its least is {counted(jobs[key].min_workers, 'worker')}"
        for key, one in contestants.items()
        if num_pods[key] < jobs[key].min_workers
    }


def never_preempting(contestants: Mapping[str, Contestant]) -> dict[str, str]:
    """The jobs whose PriorityClass stops nobody, and a sentence on each."""
    return {
        key: f"it stops no other job: PriorityClass {one.priority.name} never preempts"
        for key, one in contestants.items()
        if not one.priority.preempts
    }


def stops_others(found: Allocation, polite: Collection[str]) -> bool:
    """Whether a job that runs loses something by it, and a polite one gets something."""
    gains = any(move.job in polite and Counter(move.after) - Counter(move.before) for move in found.moves)
    return gains and any(move.kind in _LOSSES for move in found.moves)


def undisturbed(asked: Competition) -> Competition:
    """The question in which all that runs stays as it is."""
    jobs = (replace(job, preemptible=False) if asked.running.get(job.key) else job for job in asked.jobs)
    return replace(asked, jobs=tuple(jobs))


def sharing(asked: Competition, polite: Set[str], free: Allocation) -> Competition:
    """The question in which jobs that are polite get no more than `free` gives them, which disturbs nobody."""
    late = {key for key in polite if asked.running.get(key) or not free.workers.get(key)}
    jobs = (job if job.key not in polite - late else _on(job, free.workers[job.key]) for job in asked.jobs)
    return behind(replace(asked, jobs=tuple(jobs)), late)


def _on(job: Job, machines: Mapped) -> Job:
    return replace(job, max_workers=sum(machines.values()), candidates=machines)


def behind(asked: Competition, polite: Collection[str]) -> Competition:
    """The question in which some jobs take nothing from others."""
    return replace(asked, jobs=tuple(_behind(job, asked) if job.key in polite else job for job in asked.jobs))


def _behind(job: Job, asked: Competition) -> Job:
    if held := sum(asked.running.get(job.key, {}).values()):
        return replace(job, max_workers=max(job.min_workers, min(job.max_workers, held)))
    return replace(job, priority=job.priority - _BELOW)
