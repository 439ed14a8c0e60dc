"""A job in one of Kueue's queues: waits for its admission, runs within it, and gives way when that ends.

    Workload              what the job does
    none                  has one made (`admitted`)
    waits                 waits, with Kueue's own words
    admitted              is planned within the admission, tells when its gang is up
    evicted, deactivated  releases its gang (which saves), and gives the quota back when its pods are gone (`report`)
    of another spec       as evicted, and is queued anew; a Workload that waits only changes

A job that its user suspends is in no queue. Hulk's own queue (`planning.dispatcher`) leaves all these jobs alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hulk_operator.api import ConditionType, HulkJobStatus
from hulk_operator.cluster import Object
from hulk_operator.inputs.placement_constraints import UnusableJobError
from hulk_operator.kueue import (
    WorkloadState,
    admission_dropped,
    differs,
    finished,
    fits,
    pods_ready,
    workload,
    wrong_priority,
)
from hulk_operator.reconcile.attempt_state import (
    EVICTED_BY_KUEUE,
    MOVED_BY_KUEUE,
    deployed,
    head,
    in_force,
    num_workers,
    released,
    seconds_left,
    set_condition,
    update,
)
from hulk_operator.reconcile.retained_pods import staying
from hulk_operator.reconcile.steps.cleanup import drain
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Dequeue, Enqueue, Outcome, TellKueue, Unqueued, View
from hulk_operator.status import condition, holds
from hulk_operator.status import finished as is_over
from hulk_operator.watched import NOT_READ

QUEUED: Final = "QueuedByKueue"
DEACTIVATED: Final = "DeactivatedByKueue"
UNAVAILABLE: Final = "KueueUnavailable"
_RETRY_S: Final = 10.0


def report(view: View) -> Outcome:
    """Tell Kueue what became of the job: over, up, gone as asked, in no queue any more."""
    state = view.kueue.workload
    if state is None:
        return NOTHING
    if is_over(view.status):
        return _told(state, finished(state, *_end(view), view.now))
    is_gone = not in_force(view) and not staying(view) and not drain(view).stop
    if not view.job.queue or (view.job.spec.suspend and is_gone):
        return Outcome((Dequeue(state),))
    if state.is_evicted and state.is_reserved and is_gone:
        return _told(state, admission_dropped(state, view.now))
    if (wanted := _wanted(view)) is not None and wrong_priority(state, wanted) and _may_try(view):
        return Outcome((Enqueue(wanted, state),))
    if not state.may_run:
        return NOTHING
    num_up = num_workers(view) if in_force(view) and deployed(view) else 0
    return _told(state, pods_ready(state, num_up, view.now))


def obey(view: View) -> Outcome:
    """Release a gang that may not run, or not where it does, and pods that wait for another attempt.

    That is neither failure nor disruption.
    """
    if not view.job.queue or view.kueue.lack or not (in_force(view) or staying(view)):
        return NOTHING
    why = _why_not(view)
    if why is None:
        return NOTHING
    reason, message = why
    view = replace(view, status=last_seen(view))
    status = released(view, reason, reason, head(f"attempt {view.status.attempt}: {message}"))
    return Outcome(status=update(status, start_time=None), stop=True, requeue_after_s=0)


def admitted(view: View) -> Outcome:
    """Wait for the admission: nothing is planned, and nothing reserved, before there is one."""
    if not view.job.queue or in_force(view):
        return NOTHING
    if view.kueue.lack:
        known = view.kueue.lack != NOT_READ
        return Outcome(status=_waits(view, UNAVAILABLE, view.kueue.lack) if known else None, stop=True)
    try:
        wanted = workload(view.job, view.may_use_class)
    except UnusableJobError as error:
        return Outcome(status=_waits(view, error.reason, error.message), stop=True)
    state = view.kueue.workload
    is_queued = state is not None and not differs(state, wanted)
    if is_queued and not waits_for_kueue(view):
        return NOTHING
    waiting, refused = _stand(view, state, wanted), _refused(view)
    if refused is None or (state is not None and is_queued and not wrong_priority(state, wanted)):
        return waiting
    status = _waits(view, refused.reason, refused.message)  # also while it is tried again
    if _may_try(view):
        return replace(waiting, status=status)
    return Outcome(status=status, stop=True, requeue_after_s=seconds_left(view, refused.time, _RETRY_S))


def waits_for_kueue(view: View) -> bool:
    """Whether no plan is of use to the job as it stands with Kueue."""
    state = view.kueue.workload
    return bool(view.job.queue) and (state is None or not state.may_run or view.kueue.placement is None)


def _stand(view: View, state: WorkloadState | None, wanted: Object) -> Outcome:
    """In the queue, as what the job asks for now."""
    if state is None:
        message = f"attempt {view.status.attempt + 1} waits in queue {view.job.queue} of Kueue"
        return Outcome((Enqueue(wanted),), _waits(view, QUEUED, message + _class_note(view)), stop=True)
    if differs(state, wanted) and state.is_reserved:
        return Outcome((Dequeue(state),), _waits(view, QUEUED, "the job changed: it is queued anew"), stop=True)
    if differs(state, wanted):
        return Outcome((Enqueue(wanted, state),), _waits(view, QUEUED, _words(state)), stop=True)
    reason, message = QUEUED if state.is_active else DEACTIVATED, _words(state) + _class_note(view)
    return Outcome(status=_waits(view, reason, message), stop=True)


def _class_note(view: View) -> str:
    name, namespace = view.job.spec.priority_class_name, view.job.namespace
    if view.may_use_class:
        return ""
    return f"; PriorityClass {name} counts for nothing: no ResourceQuota of namespace {namespace} grants it"


def _why_not(view: View) -> tuple[str, str] | None:
    """Why a gang that runs is to stop; None: it may go on."""
    state, placed = view.kueue.workload, view.kueue.placement
    if state is None:
        return EVICTED_BY_KUEUE, f"it has no Workload in queue {view.job.queue}"
    if not state.may_run:
        return (EVICTED_BY_KUEUE if state.is_active else DEACTIVATED), _words(state)
    if (wanted := _wanted(view)) is not None and differs(state, wanted):
        return EVICTED_BY_KUEUE, f"Workload {state.name} was admitted for what the job asked before"
    if placed is None or view.full is None:
        return None
    labels = {name: node.labels for name, node in view.nodes.items()}
    if fits(placed, (slot.machine for slot in view.full.plan.workers), labels):
        return None
    return MOVED_BY_KUEUE, f"Kueue gives Workload {state.name} other nodes than those of the plan"


def _wanted(view: View) -> Object | None:
    """The Workload as the job asks for it; None where its numbers fit no layout."""
    try:
        return workload(view.job, view.may_use_class)
    except UnusableJobError:
        return None


def _refused(view: View) -> Unqueued | None:
    """Why the job, as it is now, is not in its queue as it asks."""
    refused = view.memory.unqueued
    return refused if refused and refused.generation == view.job.metadata.generation else None


def _may_try(view: View) -> bool:
    """Whether Kueue's objects are to be written as the job asks: what was refused is tried again after a while."""
    refused = _refused(view)
    return refused is None or seconds_left(view, refused.time, _RETRY_S) <= 0


def _words(state: WorkloadState) -> str:
    """What Kueue says of a Workload that may not run."""
    said = [f"Workload {state.name} in queue {state.queue}"]
    if not state.is_active:
        said.append("is deactivated (spec.active is false)")
    elif state.may_run:
        said.append("is admitted to flavors that are not known")
    else:
        said.append("is not admitted")
    kinds = ("Evicted",) if state.is_evicted and state.is_reserved else ("Evicted", "QuotaReserved", "Finished")
    for kind in kinds:
        found = state.condition(kind)
        if found is not None and found["status"] == ("False" if kind == "QuotaReserved" else "True"):
            said.append(f"{found['reason']}: {found.get('message', '')}")
    return "; ".join(part for part in said if part)


def _waits(view: View, reason: str, message: str) -> HulkJobStatus:
    return update(set_condition(view, ConditionType.PLANNED, False, reason, head(message)), queue=None)


def _end(view: View) -> tuple[bool, str]:
    succeeded = holds(view.status, ConditionType.SUCCEEDED)
    found = condition(view.status, ConditionType.SUCCEEDED if succeeded else ConditionType.FAILED)
    return succeeded, found.message if found and found.message else "The HulkJob is over"


def _told(state: WorkloadState, change: Mapping[str, Any] | None) -> Outcome:
    return Outcome((TellKueue(state, change),)) if change else NOTHING
