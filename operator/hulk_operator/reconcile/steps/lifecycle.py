"""Whether the job is Hulk's to run now: whose it is, deleted, finished, suspended, out of time."""

from hulk_operator.api import ConditionType
from hulk_operator.reconcile.attempt_state import (
    in_force,
    released,
    seconds_left,
    set_condition,
    update,
)
from hulk_operator.reconcile.held_pods import is_held, seconds_to_held
from hulk_operator.reconcile.types import NOTHING, DeleteJob, Outcome, View
from hulk_operator.status import condition, finished, holds, whole_second

_STOP = Outcome(stop=True)


def foreign(view: View) -> Outcome:
    """A job that another controller manages is not touched."""
    return NOTHING if view.job.spec.ours else _STOP


def deleting(view: View) -> Outcome:
    """A deleted job needs nothing: owner references clean up, also while the operator is down."""
    return NOTHING if view.job.metadata.deletion_timestamp is None else _STOP


def finish(view: View) -> Outcome:
    """A finished job stays as it is until its ttl is over."""
    if not finished(view.status):
        return NOTHING
    ttl_s = view.job.spec.run_policy.ttl_seconds_after_finished
    if ttl_s is None or view.status.completion_time is None:
        return _STOP
    left_s = seconds_left(view, view.status.completion_time, ttl_s)
    if left_s > 0:
        return Outcome(stop=True, requeue_after_s=left_s)
    return Outcome((DeleteJob(view.job.metadata.uid or ""),), stop=True)


def suspend(view: View) -> Outcome:
    """A suspended job releases its pods (SIGTERM: they checkpoint), and is Suspended when they are gone.

    Pods that have ended and that a finalizer of somebody else keeps are not waited for; `Held` tells of them.
    """
    if not view.job.spec.suspend:
        return NOTHING
    if in_force(view):
        message = f"attempt {view.status.attempt} is released because spec.suspend is true"
        return Outcome(status=released(view, "Suspended", "Suspended", message), stop=True, requeue_after_s=0)
    num_held = sum(is_held(view, pod) for pod in view.pods)
    if holds(view.status, ConditionType.SUSPENDED):
        return _STOP
    if num_held < len(view.pods):
        return Outcome(stop=True, requeue_after_s=seconds_to_held(view))
    message = f"all pods have ended, finalizers hold {num_held} of them" if num_held else "all pods are gone"
    status = set_condition(view, ConditionType.SUSPENDED, True, "Suspended", message)
    planned = condition(status, ConditionType.PLANNED)
    if planned and planned.reason != "Suspended":  # whatever it waited for: it does not now
        status = set_condition(view, ConditionType.PLANNED, False, "Suspended", "spec.suspend is true", status)
    return Outcome(status=update(status, queue=None, share=None), stop=True)


def resume(view: View) -> Outcome:
    """A job that is suspended no longer begins a new active time."""
    if not holds(view.status, ConditionType.SUSPENDED):
        return NOTHING
    status = set_condition(view, ConditionType.SUSPENDED, False, "Resumed", "spec.suspend is false")
    return Outcome(status=update(status, start_time=None))


def deadline(view: View) -> Outcome:
    """A job that is active for longer than activeDeadlineSeconds has failed."""
    limit_s = view.job.spec.run_policy.active_deadline_seconds
    if limit_s is None or view.status.start_time is None:
        return NOTHING
    left_s = seconds_left(view, view.status.start_time, limit_s)
    if left_s > 0:
        return Outcome(requeue_after_s=left_s)
    message = f"the job was active for more than activeDeadlineSeconds = {limit_s} s"
    return failed_for_good(view, "DeadlineExceeded", message)


def failed_for_good(view: View, reason: str, message: str, **fields: object) -> Outcome:
    """End the job: its pods are released, what is known of them stays in the status."""
    status = released(view, reason, reason, message) if condition(view.status, ConditionType.PLANNED) else view.status
    status = set_condition(view, ConditionType.FAILED, True, reason, message, status)
    status = update(status, completion_time=whole_second(view.now), queue=None, **fields)
    return Outcome(status=status, stop=True, requeue_after_s=0)
