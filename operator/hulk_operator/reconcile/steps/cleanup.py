"""What must not exist any more is deleted, and what still ends is waited for, before anything new begins."""

from datetime import timedelta

from hulk_operator.api import ConditionType
from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.attempt_state import in_force, lost, seconds_left
from hulk_operator.reconcile.held_pods import is_held
from hulk_operator.reconcile.retained_pods import staying
from hulk_operator.reconcile.types import NOTHING, DeletePods, Outcome, Sweep, View
from hulk_operator.status import condition, holds


def kept_attempt(view: View) -> int:
    """The only attempt that may have children: the one in force, or the one that succeeded (its logs); 0 = none."""
    planned = holds(view.status, ConditionType.PLANNED) and not holds(view.status, ConditionType.FAILED)
    return view.status.attempt if planned else 0


def sweep(view: View) -> Outcome:
    """Delete the children of every other attempt.

    The status says first that an attempt is over, then its pods are deleted: a crash in between loses nothing. As long
    as some of them stay for the next attempt nothing is deleted: the labels do not tell yet which.
    """
    if view.status.attempt == 0 or staying(view):
        return NOTHING
    if lingering := _lingering(view):
        return Outcome((DeletePods(view.status.attempt, lingering),))
    keep = kept_attempt(view)
    stale = any(pod.attempt != keep and pod.delete_by is None for pod in view.pods)
    if view.memory.swept_to == keep and not stale:
        return NOTHING
    return Outcome((Sweep(keep),))


def _lingering(view: View) -> tuple[int, ...]:
    """Workers of a job that succeeded in whose pods something runs still: another container, or the worker itself in a
    region that was left out. Pods that are done stay for their logs.
    """
    if not holds(view.status, ConditionType.SUCCEEDED):
        return ()
    return tuple(pod.worker for pod in view.gang if (pod.others_run or not pod.ended) and pod.delete_by is None)


def drain(view: View) -> Outcome:
    """Wait for the pods of earlier attempts, while they can still end by themselves.

    A pod on a dead node, one that outlived its grace period, or one that a finalizer keeps, is not waited for; the
    planning pass does not hand out its accelerators as long as it is there. While pods stay, only those end that are
    being deleted, or soon will be: an eviction, a preemption and a taint say so before they delete. Without that wait
    the next plan would find their room taken, and a job that gets no plan keeps no pods. Pods of a deleted job whose
    names the next attempt may need are waited for until they are gone.
    """
    if in_force(view):
        return NOTHING
    if any(is_held(view, pod) and pod.attempt > view.status.attempt for pod in view.leftovers):
        return Outcome(stop=True)
    ending = [pod for pod in view.pods if pod.interrupted and not _is_over(pod)] if staying(view) else view.pods
    left_s = [left for pod in (*ending, *view.leftovers) if (left := _seconds_to_wait(view, pod)) > 0]
    return Outcome(stop=True, requeue_after_s=max(left_s)) if left_s else NOTHING


def _is_over(pod: WorkerPod) -> bool:
    """Whether a pod has ended and nobody deletes it: it holds no room."""
    return pod.ended and pod.delete_by is None


def _seconds_to_wait(view: View, pod: WorkerPod) -> float:
    node = view.nodes.get(pod.node)
    if is_held(view, pod):
        return 0.0
    if pod.node and (node is None or node.ready != "True" or pod.node in lost(view)):
        return 0.0
    if pod.delete_by is None:
        told = condition(view.status, ConditionType.PLANNED) if pod.disruption else None
        start = told.last_transition_time if told else view.now
        return seconds_left(view, start, view.timing.leftover_s)
    return (pod.delete_by + timedelta(seconds=view.timing.leftover_s) - view.now).total_seconds()
