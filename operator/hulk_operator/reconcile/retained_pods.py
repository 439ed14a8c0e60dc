"""Which pods of a job outlive an attempt, and which worker of the next plan each of them becomes.

Pods that run Hulk's launcher can stay (`pods.stays`). When an attempt is released they wait for the next plan, which
counts their places as free for this job alone; `deploy` labels those it has a worker for, and the sweep takes the rest.
A job that gets no plan keeps no pods: its accelerators are for others.

With pods on nodes a, a and b that were workers 0, 1 and 2, a plan for b, a and c takes over two of them:

    worker 0 on b: the pod of worker 2        worker 1 on a: the pod of worker 0        worker 2 on c: a new pod
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from hulk_placement.plan import Plan

from hulk_operator.api import ConditionType, HulkJob, HulkJobStatus
from hulk_operator.pods import WorkerPod, stays
from hulk_operator.reconcile.attempt_state import (
    ATTEMPT_FAILED,
    BETWEEN,
    DISRUPTED,
    PLAN_LOST,
    REPLANNED,
    RESIZED,
    STOPPED,
    deployed,
    in_force,
)
from hulk_operator.reconcile.spec_digest import is_changed
from hulk_operator.reconcile.types import View
from hulk_operator.status import condition
from hulk_operator.watched import NodeState

KEEPING: Final = frozenset({ATTEMPT_FAILED, DISRUPTED, PLAN_LOST, REPLANNED, RESIZED, STOPPED}) | BETWEEN
"""Why an attempt was released whose other pods are as good as before; not so where a gang could not start."""


def waiting(job: HulkJob, status: HulkJobStatus) -> bool:
    """Whether an attempt is over and its pods wait for the next plan, which is made of the same spec."""
    planned = condition(status, ConditionType.PLANNED)
    released = planned is not None and planned.status == "False" and planned.reason in KEEPING
    return released and stays(job) and not job.spec.suspend and not is_changed(job, status)


def usable(
    job: HulkJob, pods: Iterable[WorkerPod], nodes: Mapping[str, NodeState], now: datetime
) -> tuple[WorkerPod, ...]:
    """The job's pods in which another attempt's ranks can be started, the earliest attempt's first."""
    if not stays(job):
        return ()
    avoided = {node.name for node in job.status.avoided_nodes if node.until > now}
    fit = (
        pod
        for pod in pods
        if pod.job_uid == job.metadata.uid
        and pod.node not in avoided
        and (node := nodes.get(pod.node)) is not None
        and node.ready == "True"
        and not pod.ended
        and pod.delete_by is None
        and pod.disruption is None
    )
    return tuple(sorted(fit, key=lambda pod: (pod.attempt, pod.worker)))


def taken_over(plan: Plan, pods: Iterable[WorkerPod], fit: Iterable[WorkerPod]) -> dict[int, WorkerPod]:
    """By worker, the usable pods (`fit`) of earlier attempts that the plan goes on with.

    `pods` are all of the job's: a worker that has a pod of the plan's attempt needs none.
    """
    there = {pod.worker for pod in pods if pod.attempt == plan.attempt}
    free: dict[str, list[WorkerPod]] = defaultdict(list)
    for pod in fit:
        if pod.attempt != plan.attempt:
            free[pod.node].append(pod)
    return {
        worker: free[slot.machine].pop(0)
        for worker, slot in enumerate(plan.workers)
        if worker not in there and free[slot.machine]
    }


def to_take_over(view: View) -> dict[int, WorkerPod]:
    """By worker, the pods that the plan in force has yet to take over."""
    if not in_force(view) or deployed(view) or view.full is None:
        return {}
    return taken_over(view.full.plan, view.pods, usable(view.job, view.pods, view.nodes, view.now))


def staying(view: View) -> tuple[WorkerPod, ...]:
    """Pods of earlier attempts that must not be deleted now."""
    if waiting(view.job, view.status):
        return usable(view.job, view.pods, view.nodes, view.now)
    if in_force(view) and not deployed(view) and view.full is None:  # its plan was never written: another follows
        return tuple(
            pod for pod in usable(view.job, view.pods, view.nodes, view.now) if pod.attempt != view.status.attempt
        )
    return tuple(to_take_over(view).values())
