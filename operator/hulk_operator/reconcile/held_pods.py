"""Pods that have ended, are deleted and stay all the same, because a finalizer of somebody else keeps them.

Nothing of the job waits for them. Their accelerators are reserved until they are gone (`planning.inventory`): who put
the finalizer there may still use them.
"""

from datetime import timedelta

from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.types import View


def is_held(view: View, pod: WorkerPod) -> bool:
    """Whether only its finalizers keep a pod: it ended, never ran, or had more than its time to end."""
    if pod.delete_by is None or not pod.finalizers:
        return False
    has_ended = pod.phase in ("Succeeded", "Failed") or not pod.node
    return has_ended or view.now >= pod.delete_by + timedelta(seconds=view.timing.leftover_s)


def held_pods(view: View) -> tuple[WorkerPod, ...]:
    """Those of the job, and of a deleted one of its name."""
    return tuple(pod for pod in (*view.pods, *view.leftovers) if is_held(view, pod))


def seconds_to_held(view: View) -> float | None:
    """Until the next pod counts as held by time alone: no event tells of that. None: of no pod."""
    leftover = timedelta(seconds=view.timing.leftover_s)
    waits = [pod for pod in view.pods if pod.delete_by and pod.finalizers and not is_held(view, pod)]
    return min(((pod.delete_by + leftover - view.now).total_seconds() for pod in waits if pod.delete_by), default=None)
