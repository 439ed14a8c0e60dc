"""HulkJobs as the fleet's policy sees them: work done and left, what a move costs, who may be moved."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hulk_placement.fleet.types import Job, Observed
from hulk_placement.plan import Plan
from hulk_placement.workload import Workload

from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.inputs.priority import NO_CLASS, PriorityClass
from hulk_operator.inputs.utilities import is_declared, to_utility, watts_per_worker
from hulk_operator.planning.replan_review import restart_of
from hulk_operator.pods import stays
from hulk_operator.reconcile.attempt_state import BETWEEN, PREEMPTED
from hulk_operator.reconcile.retained_pods import waiting
from hulk_operator.status import condition, finished, holds

NO_SAVE_SHARE: Final = 0.5  # of the steps between two checkpoints, where a program is not known to save when it stops


@dataclass(frozen=True, slots=True)
class Contestant:
    """A job that has accelerators or wants some. `plan`: what it runs by, or ran by where it is between two plans.

    `priority`: the class of its pods.
    """

    job: HulkJob
    workload: Workload
    plan: Plan | None = None
    priority: PriorityClass = NO_CLASS

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.job.key

    @property
    def mapping(self) -> dict[str, int]:
        """Workers by machine; empty while it has none."""
        return mapping_of(self.plan) if self.plan else {}


def mapping_of(plan: Plan) -> dict[str, int]:
    """How many of a plan's workers each machine has."""
    return dict(Counter(slot.machine for slot in plan.workers))


def is_contestant(job: HulkJob) -> bool:
    """Whether the job takes part at all; of one in a queue of Kueue's, Kueue decides."""
    wanted = job.spec.ours and not job.spec.suspend and not finished(job.status) and not job.queue
    return wanted and job.metadata.deletion_timestamp is None


def is_between(job: HulkJob) -> bool:
    """Whether its next plan follows the last one at once: the queue released it for that, or its pods stay."""
    planned = condition(job.status, ConditionType.PLANNED)
    moves = planned is not None and planned.status == "False" and planned.reason in BETWEEN
    return moves or waiting(job, job.status)


def is_stopped(job: HulkJob) -> bool:
    """Whether the queue has stopped it for others; its pods may still be there."""
    planned = condition(job.status, ConditionType.PLANNED)
    return planned is not None and planned.status == "False" and planned.reason in PREEMPTED


def is_movable(job: HulkJob) -> bool:
    """Whether its gang may be stopped: it is up as a whole, and what it has done is kept."""
    return job.spec.checkpoint is not None and holds(job.status, ConditionType.DEPLOYED) and not job.status.membership


def is_concerned(job: HulkJob) -> bool:
    """Whether the queue has something to decide about the job beyond who came first."""
    return is_declared(job) or is_movable(job) or job.status.share is not None


def fleet_job(one: Contestant, now: datetime) -> Job:
    """The policy's job; ValueError where its numbers contradict each other."""
    job, workload = one.job, one.workload
    batch = float(workload.global_batch)
    least, most = _num_workers(one)
    between = is_between(job)
    created = job.metadata.creation_timestamp
    return Job(
        key=job.key,
        utility=to_utility(job),
        total_work=job.spec.training.num_steps * batch,
        namespace=job.namespace,
        priority=workload.priority,
        min_workers=least,
        max_workers=most,
        accelerators_per_worker=workload.accelerators_per_worker,
        memory_bytes_per_worker=_memory_bytes(workload),
        candidates=workload.candidates,
        arrived_s=created.timestamp() if created else now.timestamp(),
        work_per_step=batch,
        work_done=min(_steps_done(job), job.spec.training.num_steps - 1) * batch,
        restart_s=0.0 if one.plan is None or between else restart_s(job),
        preemptible=between or is_movable(job),
        moved_s=-float("inf") if one.plan is None or between else _since_s(job, now),
        watts_per_worker=watts_per_worker(job),
        allow_unknown_links=workload.allow_unknown_links,
        workload=workload,
    )


def restart_s(job: HulkJob) -> float:
    """Seconds that a stop and another start cost: as long as the last start took, and steps that are made again.

    Programs that Hulk's launcher runs save before they stop. Of others half the steps between two checkpoints are lost.
    """
    restart, seen, kept = restart_of(job), job.status.observed, job.spec.checkpoint
    seconds = restart.stop_s + restart.image_s + restart.start_s + restart.rendezvous_s + restart.first_step_s
    if stays(job) or kept is None or seen is None or seen.step_microseconds is None:
        return seconds
    return seconds + NO_SAVE_SHARE * kept.every_steps * seen.step_microseconds / 1e6


def observed_steps(contestants: Mapping[str, Contestant]) -> dict[str, Observed]:
    """What the steps of jobs that train take where they are; it stands before every prediction."""
    found = {}
    for key, one in contestants.items():
        seen = one.job.status.observed
        if one.plan is not None and seen is not None and seen.step_microseconds:
            found[key] = Observed(one.mapping, seen.step_microseconds / 1e6)
    return found


def _num_workers(one: Contestant) -> tuple[int, int]:
    """Fewest and most workers; exactly as many as it has, or the fewest, where stages make other numbers impossible."""
    workload, running = one.workload, sum(one.mapping.values())
    if (workload.pipeline, workload.shard, workload.tensor) != (1, 1, 1):
        fixed = running or workload.min_workers
        return fixed, fixed
    share = one.job.status.share
    if is_between(one.job) and one.plan is None and share is not None and share.workers:
        return share.workers, share.workers
    if running and not is_movable(one.job) and not is_between(one.job):
        return running, running
    most = max(1, workload.global_batch // workload.accelerators_per_worker)
    return workload.min_workers, max(workload.min_workers, min(workload.max_workers, most))


def _memory_bytes(workload: Workload) -> int:
    """What the tensors of a worker need at least; 0 where stages, shards or tensor ranks may divide the model."""
    is_whole = (workload.pipeline, workload.shard, workload.tensor) == (1, 1, 1)
    if not is_whole or workload.stages_if_needed or workload.shards_if_needed:
        return 0
    return workload.replica_bytes(workload.micro_batch or 1) * workload.accelerators_per_worker


def _steps_done(job: HulkJob) -> int:
    seen, kept = job.status.observed, job.status.checkpoint
    return max(seen.step if seen else 0, kept.step if kept else 0)


def _since_s(job: HulkJob, now: datetime) -> float:
    """When it last started; now, where it has not yet. What lies ahead stays ahead: `decide` lets it pin nobody."""
    deployed = condition(job.status, ConditionType.DEPLOYED)
    up = deployed is not None and deployed.status == "True"
    return (deployed.last_transition_time if up and deployed else now).timestamp()
