"""Questions about a `View` that several steps ask, and the two ways an attempt ends: release and failure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from hulk_operator.api import AvoidedNode, ConditionType, HulkJobStatus, LastFailure
from hulk_operator.api.base import MAX_MESSAGE
from hulk_operator.api.status import MAX_AVOIDED_NODES
from hulk_operator.pods import WorkerPod, reason_of
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.reconcile.types import Outcome, Remember, View
from hulk_operator.status import condition, finished, holds, whole_second, with_condition

MAX_FAILURE_MESSAGE = 2048
# Why a plan is not in force any more; the reason of Planned=False, which the back-off reads.
ATTEMPT_FAILED = "AttemptFailed"
DISRUPTED = "Disrupted"
STOPPED = "Stopped"
START_FAILED = "StartFailed"
PLAN_LOST = "PlanLost"
WIRE_MISMATCH = "WireVersionMismatch"  # the image's runtime reads no plans of this operator
NODE_LOST = "NodeLost"  # a reason of the last failure
CHANGED = "SpecChanged"
RESIZED = "Resized"
REPLANNED = "Replanned"
EXTENDED = "Extended"
GROWN = "Grown"  # by the queue: to more workers
SHRUNK = "Shrunk"
MOVED = "Moved"
PREEMPTED_BY_PRIORITY = "PreemptedByPriority"
PREEMPTED_BY_UTILITY = "PreemptedByUtility"
EVICTED_BY_KUEUE = "EvictedByKueue"
MOVED_BY_KUEUE = "MovedByKueue"
BETWEEN = frozenset({GROWN, SHRUNK, MOVED})  # the next plan follows as soon as the pods allow it
PREEMPTED = frozenset({PREEMPTED_BY_PRIORITY, PREEMPTED_BY_UTILITY})
RECOVERED = "Recovered"
PLACEHOLDERS = "Placeholders"  # a reason of ScalingUp
REGION_LOST = "RegionLost"  # a reason of Degraded: the gang goes on


def in_force(view: View) -> bool:
    """Whether a committed plan is in force and the job goes on."""
    return holds(view.status, ConditionType.PLANNED) and not finished(view.status)


def deployed(view: View) -> bool:
    """Whether the gang of the attempt in force was up as a whole."""
    return holds(view.status, ConditionType.DEPLOYED)


def ended_well(view: View) -> frozenset[int]:
    """Workers of the attempt in force that ended well, also those whose pods were deleted since.

    A program that was told to stop before its last step, and left politely with exit code 0, has not.
    """
    seen = {worker for attempt, worker in view.memory.ended if attempt == view.status.attempt}
    whole = _made_last_step(view)
    return frozenset(seen | {pod.worker for pod in view.gang if pod.succeeded and (whole or not pod.interrupted)})


def _made_last_step(view: View) -> bool:
    """Whether the attempt in force is known to have made the last step of its plan."""
    said, seen = last_said(view), view.status.observed
    step = max(said.step if said else 0, seen.step if seen else 0)
    return view.full is not None and step >= view.full.num_steps


def num_workers(view: View) -> int:
    """Workers of the plan in force."""
    return view.status.plan.num_workers if view.status.plan else 0


def node_of(view: View, pod: WorkerPod) -> str:
    """Where a pod runs, or is planned to; empty when the plan cannot be read."""
    return pod.node or (view.full.plan.workers[pod.worker].machine if view.full else "")


def last_said(view: View) -> Farewell | None:
    """How the last attempt said that it ended; None while it runs, or when it said nothing."""
    return view.farewell if view.farewell and view.farewell.attempt == view.status.attempt else None


def made_steps(view: View) -> bool:
    """Whether the attempt in force is known to have made a step."""
    attempt, heard, startup = view.status.attempt, view.memory.hearing, view.status.startup
    polled = heard is not None and heard.attempt == attempt and heard.step > 0
    return polled or last_said(view) is not None or (startup is not None and startup.attempt == attempt)


def silent(view: View) -> frozenset[str]:
    """Nodes of the attempt in force that do not answer at the moment."""
    heard = view.memory.hearing
    return frozenset(heard.silent) if heard and heard.attempt == view.status.attempt else frozenset()


def lost(view: View) -> dict[str, float]:
    """Nodes of the last attempt that are lost by what is heard of them, and for how many seconds they were silent."""
    heard = view.memory.hearing
    if heard is None or heard.attempt != view.status.attempt:
        return {}
    return heard.lost(view.timing.silent_s)


def avoided(view: View, nodes: Iterable[str]) -> tuple[AvoidedNode, ...]:
    """The nodes that are avoided still, and these for a while; the longest ones when there are too many."""
    until = whole_second(view.now + timedelta(seconds=view.timing.avoid_node_s))
    still = {node.name: node.until for node in view.status.avoided_nodes if node.until > view.now}
    still |= {node: until for node in nodes if node}
    latest = sorted(still.items(), key=lambda entry: (entry[1], entry[0]), reverse=True)[:MAX_AVOIDED_NODES]
    return tuple(AvoidedNode(name=name, until=end) for name, end in sorted(latest))


def since(view: View, kind: ConditionType) -> datetime:
    """When a condition that is set took its value."""
    found = condition(view.status, kind)
    assert found is not None, f"{view.job.key}: {kind} was never set"
    return found.last_transition_time


def seconds_left(view: View, start: datetime, duration_s: float) -> float:
    """Until `duration_s` after `start`; zero or less when that is over."""
    return (start + timedelta(seconds=duration_s) - view.now).total_seconds()


def set_condition(
    view: View, kind: ConditionType, value: bool, reason: str, message: str, status: HulkJobStatus | None = None
) -> HulkJobStatus:
    """`with_condition` on the view's status, or on a later one."""
    return with_condition(status or view.status, kind, value, reason, message, view.now, view.job.metadata.generation)


def update(status: HulkJobStatus, **fields: Any) -> HulkJobStatus:
    """The status with some fields replaced."""
    return status.model_copy(update=fields)


def released(view: View, why: str, reason: str, message: str) -> HulkJobStatus:
    """The status without a plan in force; the sweep of a later pass deletes the pods."""
    status = set_condition(view, ConditionType.PLANNED, False, why, message)
    if holds(status, ConditionType.DEGRADED):
        status = set_condition(view, ConditionType.DEGRADED, False, RECOVERED, message, status)
    if holds(status, ConditionType.GATED):
        status = set_condition(view, ConditionType.GATED, False, reason, message, status)
    for kind in (ConditionType.DEPLOYED, ConditionType.RUNNING):
        if condition(status, kind) is not None:
            status = set_condition(view, kind, False, reason, message, status)
    return update(status, membership=None)


def failure(
    view: View, reason: str, message: str, pod: WorkerPod | None = None, exit_code: int | None = None
) -> LastFailure:
    """What is kept of an attempt after its pods are gone."""
    return LastFailure(
        attempt=view.status.attempt,
        pod=pod.name if pod else "",
        node=pod.node if pod else "",
        exit_code=exit_code,
        reason=reason_of(reason),
        message=tail(message, MAX_FAILURE_MESSAGE),
        time=whole_second(view.now),
    )


def start_failed(view: View, last: LastFailure, counted: str = "", **fields: Any) -> Outcome:
    """Release a gang that could not start; it is planned again after a back-off that grows."""
    message = head(f"attempt {last.attempt} was released: {last.message}", MAX_MESSAGE - len(counted)) + counted
    status = update(released(view, START_FAILED, last.reason, message), last_failure=last, **fields)
    return Outcome((count_unstable(view),), status, stop=True, requeue_after_s=0)


def count_unstable(view: View) -> Remember:
    """Count one more attempt that never ran."""
    return remember(unstable=view.memory.unstable + 1)


def remember(**fields: Any) -> Remember:
    """Replace fields of the job's memory."""
    checked: Mapping[str, Any] = fields
    return Remember(checked)


def tail(text: str, length: int) -> str:
    """The end of a text: the last log lines say the most."""
    return text if len(text) <= length else "..." + text[3 - length :]


def head(text: str, length: int = MAX_MESSAGE) -> str:
    """The beginning of a text: as much as a condition's message holds, or another field's."""
    return text if len(text) <= length else text[: length - 3] + "..."
