"""A job that lacks room asks for nodes, as far as `placement.allowScaleUp` lets it, and ends that in time.

The condition ScalingUp is True while it asks; its time is when that began. Nodes that come are told by the watch, and
the job is planned on them like on any others: placeholders hold them, and count as free. They are gone before the
gang's pods are made, so that neither a quota nor a kubelet counts both.
"""

from typing import Final

from hulk_placement.words import counted

from hulk_operator import names
from hulk_operator import pods as manifests
from hulk_operator.api import Condition, ConditionType
from hulk_operator.inputs.shortage import Shortage
from hulk_operator.reconcile.attempt_state import (
    PLACEHOLDERS,
    deployed,
    head,
    in_force,
    remember,
    seconds_left,
    set_condition,
    since,
)
from hulk_operator.reconcile.steps.kueue import waits_for_kueue
from hulk_operator.reconcile.types import (
    NOTHING,
    Action,
    CreatePlaceholders,
    EndScaleUp,
    NodeRequest,
    Outcome,
    RequestNodes,
    Unplanned,
    View,
)
from hulk_operator.status import condition, finished

TIMED_OUT: Final = "ScaleUpTimedOut"
_FINAL: Final = frozenset({TIMED_OUT, "ProvisioningFailed", "BookingExpired", "CapacityRevoked"})
"""Why a job asks no more until its spec changes, or another attempt of it needs nodes."""


def end(view: View) -> Outcome:
    """Delete what asks for nodes once it has no use, or was there for long enough."""
    known, asked = condition(view.status, ConditionType.SCALING_UP), _asked(view)
    is_asking = known is not None and known.status == "True"
    if not is_asking and known is not None and known.reason in _FINAL and in_force(view):
        again = set_condition(view, ConditionType.SCALING_UP, False, *_planned(view))  # another attempt may ask
        return Outcome((remember(node_request=None),), again)
    if not is_asking and (asked is None or asked.state != "asked"):
        return Outcome((EndScaleUp(),)) if _live(view) else NOTHING
    over = _over(view, known if is_asking else None, asked)
    if over is None:
        return Outcome(requeue_after_s=_seconds_left(view)) if is_asking else NOTHING
    status = set_condition(view, ConditionType.SCALING_UP, False, over[0], over[1]) if is_asking else None
    return Outcome((EndScaleUp(_request_name(view, known if is_asking else None)),), status)


def ask(view: View) -> Outcome:
    """Ask for the nodes that the planning pass finds lacking, or go on asking until there is a plan."""
    decision, known = view.decision, condition(view.status, ConditionType.SCALING_UP)
    if in_force(view) or view.job.spec.placement.allow_scale_up == "none":
        return NOTHING
    if not isinstance(decision, Unplanned) or decision.generation != view.job.metadata.generation:
        return NOTHING
    is_asking = known is not None and known.status == "True"
    if known and not is_asking and _is_final(view, known):
        return NOTHING
    if decision.shortage is None and not is_asking:
        return NOTHING
    return _ask(view, decision.shortage)


def cleared(view: View) -> Outcome:
    """Wait for placeholders that still end; not for one on a dead node."""
    if not in_force(view) or deployed(view) or not view.placeholders:
        return NOTHING
    left_s = seconds_left(view, since(view, ConditionType.PLANNED), view.timing.leftover_s)
    return Outcome(stop=True, requeue_after_s=left_s) if left_s > 0 else NOTHING


def _ask(view: View, lack: Shortage | None) -> Outcome:
    asked = _asked(view)
    if asked is not None and asked.state == "refused":
        status = set_condition(view, ConditionType.SCALING_UP, False, asked.reason, head(asked.message))
        left_s = seconds_left(view, asked.time, view.timing.retry_node_request_s)
        if left_s > 0:
            return Outcome(status=status, requeue_after_s=left_s)
        return Outcome((_action(view, lack),), status, requeue_after_s=0) if lack else Outcome(status=status)
    if any(one.generation != view.job.metadata.generation or one.ended for one in view.placeholders):
        return Outcome((EndScaleUp(),)) if _live(view) else NOTHING  # made anew when they are gone
    actions: tuple[Action, ...] = (_action(view, lack),) if lack and _is_due(view, asked, lack) else ()
    if asked is None:  # the condition says that it asks once that is known to be admitted
        return Outcome(actions, requeue_after_s=0 if actions else None)
    status = set_condition(view, ConditionType.SCALING_UP, True, asked.reason, head(_message(view, asked)))
    return Outcome(actions, status, requeue_after_s=view.timing.node_request_s if _requests(view) else None)


def _is_due(view: View, asked: NodeRequest | None, lack: Shortage) -> bool:
    """Whether something is to be made, or read again."""
    if asked is None or not _requests(view):
        return asked is None or bool(_missing(view, lack))
    return seconds_left(view, asked.time, view.timing.node_request_s) <= 0


def _action(view: View, lack: Shortage) -> Action:
    """What asks for nodes must not take, for good, room that the job itself may not use."""
    job, settings = view.admitted_job, view.scale_up
    avoided = {node.name for node in view.status.avoided_nodes if node.until > view.now} | {*lack.untrusted}
    if _requests(view):
        return RequestNodes(*manifests.provisioning_request(job, lack, avoided, settings))
    missing = _missing(view, lack)
    return CreatePlaceholders(manifests.placeholders(job, lack, missing, avoided, settings.placeholder_image))


def _missing(view: View, lack: Shortage) -> tuple[int, ...]:
    """As many as the whole gang needs: the first ones take what room there is, so that the others lack theirs."""
    there = {one.number for one in view.placeholders}
    return tuple(number for number in range(lack.num_workers) if number not in there)


def _message(view: View, asked: NodeRequest) -> str:
    limit = f"until scaleUpTimeoutSeconds = {view.job.spec.run_policy.scale_up_timeout_seconds} s are over"
    if asked.message:
        return f"{asked.message}; {limit}"
    num, num_bound = len(view.placeholders), sum(bool(one.node) for one in view.placeholders)
    return f"{counted(num, 'placeholder pod')} ask{'s' if num == 1 else ''} for room, {num_bound} found a node; {limit}"


def _over(view: View, known: Condition | None, asked: NodeRequest | None) -> tuple[str, str] | None:
    """Why nodes are asked for no more; None: they are. `known`: the condition, where it is True."""
    if finished(view.status):
        return "JobOver", "the job is over"
    if view.job.spec.suspend:
        return "Suspended", "spec.suspend is true"
    if in_force(view):
        return _planned(view)
    is_same = known is None or known.observed_generation == view.job.metadata.generation
    if view.job.spec.placement.allow_scale_up == "none" or not is_same:
        return "JobChanged", "the job has changed"
    if waits_for_kueue(view):
        return "QueuedByKueue", "Kueue does not admit the job"
    if asked is not None and asked.state == "over":
        return asked.reason, head(asked.message)
    if known is not None and _seconds_left(view) <= 0:
        limit_s = view.job.spec.run_policy.scale_up_timeout_seconds
        return TIMED_OUT, (
            f"no plan within scaleUpTimeoutSeconds = {limit_s} s; the job asks for no more nodes, and is planned when "
            "there is room"
        )
    return None


def _planned(view: View) -> tuple[str, str]:
    return "RoomFound", f"attempt {view.status.attempt} has a plan"


def _request_name(view: View, known: Condition | None) -> str:
    """The ProvisioningRequest that may be there; empty where pods ask. `known`: the condition, where it is True."""
    if known is None:
        generation, is_request = view.job.metadata.generation, _requests(view)
    else:
        generation, is_request = known.observed_generation, known.reason != PLACEHOLDERS
    return names.provisioning_request(view.job.metadata.name, generation) if is_request else ""


def _seconds_left(view: View) -> float:
    limit_s = view.job.spec.run_policy.scale_up_timeout_seconds
    return seconds_left(view, since(view, ConditionType.SCALING_UP), limit_s)


def _asked(view: View) -> NodeRequest | None:
    """What is known of what was asked for the job as it is."""
    known = view.memory.node_request
    return known if known is not None and known.generation == view.job.metadata.generation else None


def _is_final(view: View, known: Condition) -> bool:
    """Whether the job has asked for nodes in vain since its spec changed and since it had a plan."""
    return known.reason in _FINAL and known.observed_generation == view.job.metadata.generation


def _live(view: View) -> bool:
    return any(one.deleting_since is None for one in view.placeholders)


def _requests(view: View) -> bool:
    return view.job.spec.placement.allow_scale_up == "provisioningRequest"
