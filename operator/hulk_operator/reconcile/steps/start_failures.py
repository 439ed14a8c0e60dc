"""A gang that does not come up: released as a whole, with the reason in the words of whoever refused it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hulk_operator.api import ConditionType
from hulk_operator.cluster import Refused
from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.attempt_state import (
    avoided,
    deployed,
    failure,
    in_force,
    node_of,
    num_workers,
    remember,
    seconds_left,
    since,
    start_failed,
)
from hulk_operator.reconcile.steps.admission import refusal_reason
from hulk_operator.reconcile.types import NOTHING, Outcome, View

STUCK_REASONS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
    }
)
"""Reasons a container waits for that time alone does not cure."""
_NEVER_THE_NODE: Final = frozenset({"CreateContainerConfigError", "InvalidImageName"})  # a Secret, the template
_NUM_NAMED = 3


def stuck(view: View) -> Outcome:
    """Release a gang of which a container cannot be started; a node that alone cannot is avoided."""
    if not in_force(view) or deployed(view):
        return NOTHING
    for pod in view.gang:
        if pod.waiting and pod.waiting.reason in STUCK_REASONS:
            last = failure(view, pod.waiting.reason, pod.waiting.message or pod.waiting.reason, pod)
            return start_failed(view, last, avoided_nodes=avoided(view, (pod.node,) if _blamed(view, pod) else ()))
    return NOTHING


def _blamed(view: View, pod: WorkerPod) -> bool:
    """Whether a container cannot start because of its node: the same ones run elsewhere."""
    if pod.waiting is None or pod.waiting.reason in _NEVER_THE_NODE:
        return False
    return any(peer.running and peer.node != pod.node for peer in view.gang)


def start_timeout(view: View) -> Outcome:
    """Release a gang that is not up in time, and avoid the nodes that held it back."""
    if not in_force(view) or deployed(view):
        return NOTHING
    limit_s = view.job.spec.run_policy.start_timeout_seconds
    left_s = seconds_left(view, since(view, ConditionType.PLANNED), limit_s)
    if left_s > 0:
        return Outcome(requeue_after_s=left_s)
    late = [pod for pod in view.gang if not pod.running and not pod.ended]
    named = "; ".join(_why_late(view, pod) for pod in late[:_NUM_NAMED])
    num_up = sum(pod.running for pod in view.gang)
    message = f"{num_up} of {num_workers(view)} pods were up after startTimeoutSeconds = {limit_s} s: {named}"
    last = failure(view, "StartTimeout", message, late[0] if late else None)
    return start_failed(view, last, avoided_nodes=avoided(view, (node_of(view, pod) for pod in late)))


def refused(view: View, errors: Sequence[Refused]) -> Outcome:
    """Release a gang of which the API server did not admit a part; it is asked again before the next plan."""
    error = errors[0]
    outcome = start_failed(view, failure(view, refusal_reason(error), error.message))
    return replace(outcome, actions=(*outcome.actions, remember(admission=None)))


def _why_late(view: View, pod: WorkerPod) -> str:
    waits = f"{pod.waiting.reason} {pod.waiting.message}".strip() if pod.waiting else pod.phase
    return f"{pod.name} for node {node_of(view, pod)}: {pod.unschedulable or waits}"
