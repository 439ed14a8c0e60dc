"""A gang that does not come up: released as a whole, with the reason in the words of whoever refused it.

Whose fault it is decides what follows:

    the job's own   an image, a Secret, a ConfigMap, a command that cannot be had: a failure, counted by backoffLimit
    a node's        the same container runs elsewhere: the node is avoided
    a registry's    it does not answer: tried again, `MAX_REGISTRY_STARTS` times in a row
    the cluster's   quotas, scheduling: tried again for as long as it takes
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from hulk_operator.api import ConditionType, LastFailure
from hulk_operator.cluster import Refused
from hulk_operator.pods import Reason, WorkerPod
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
from hulk_operator.reconcile.steps.lifecycle import failed_for_good
from hulk_operator.reconcile.types import NOTHING, Outcome, ReadWarnings, View
from hulk_operator.status import condition, holds

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
_CREATING: Final = frozenset({"ContainerCreating", "PodInitializing"})
_MISSING: Final = re.compile(
    r'(secret|configmap|persistentvolumeclaim|serviceaccount)s? "[^"]+" not found|non-existent (secret|config) key',
    re.IGNORECASE,
)
"""What kubelets and the scheduler say where the template names something that is not there."""
_REGISTRY: Final = re.compile(
    "i/o timeout|connection (refused|reset)|TLS handshake timeout|deadline exceeded|unexpected EOF|too ?many ?requests|"
    "internal server error|bad gateway|service unavailable|gateway time-?out",
    re.IGNORECASE,
)
"""What container runtimes say where a registry does not answer, or not now."""
MAX_REGISTRY_STARTS: Final = 24  # at most six minutes apart: two hours
_NUM_NAMED = 3


def stuck(view: View) -> Outcome:
    """Release a gang of which a container cannot be started."""
    if not in_force(view) or deployed(view):
        return NOTHING
    for pod in view.gang:
        if pod.waiting and pod.waiting.reason in STUCK_REASONS:
            return _stuck(view, pod, pod.waiting)
    return _late(view)


def _late(view: View) -> Outcome:
    """Ask after pods whose containers are being created for long; one that waits for what is not there is stuck."""
    late = [pod for pod in view.gang if pod.node and pod.waiting and pod.waiting.reason in _CREATING]
    left_s = seconds_left(view, since(view, ConditionType.PLANNED), view.timing.late_s)
    if not late or left_s > 0:
        return Outcome(requeue_after_s=left_s) if late else NOTHING
    known = view.memory.warnings
    if known is None or known.attempt != view.status.attempt:
        return Outcome((_ask_after(late),), requeue_after_s=0)
    for pod in late:
        if (warning := _warning(view, pod)) and _MISSING.search(warning.message):
            return _stuck(view, pod, warning)
    left_s = seconds_left(view, known.time, view.timing.warnings_s)
    return Outcome((_ask_after(late),), requeue_after_s=0) if left_s <= 0 else Outcome(requeue_after_s=left_s)


def _ask_after(late: Sequence[WorkerPod]) -> ReadWarnings:
    return ReadWarnings(tuple(pod.name for pod in late[:_NUM_NAMED]))


def _warning(view: View, pod: WorkerPod) -> Reason | None:
    known = view.memory.warnings
    return known.of_pods.get(pod.name) if known and known.attempt == view.status.attempt else None


def _stuck(view: View, pod: WorkerPod, why: Reason) -> Outcome:
    last = failure(view, why.reason, why.message or why.reason, pod)
    if _is_of_node(view, pod, why):
        return start_failed(view, last, avoided_nodes=avoided(view, (pod.node,)))
    if why.reason == "RegistryUnavailable" or _REGISTRY.search(why.message):
        return _registry_failed(view, last)
    return _counted(view, last)


def _is_of_node(view: View, pod: WorkerPod, why: Reason) -> bool:
    """Whether a container cannot start because of its node: the same ones run elsewhere."""
    if why.reason in _NEVER_THE_NODE or _MISSING.search(why.message):
        return False
    return any(peer.running and peer.node != pod.node for peer in view.gang)


def _counted(view: View, last: LastFailure) -> Outcome:
    """A failed start that is the job's own: as many as of workers that fail."""
    failures, limit = view.status.failures + 1, view.job.spec.run_policy.backoff_limit
    if failures > limit:
        message = f"{failures} failures are more than backoffLimit = {limit}; the last: {last.reason}: {last.message}"
        return failed_for_good(view, "BackoffLimitExceeded", message, failures=failures, last_failure=last)
    return start_failed(view, last, f"; failure {failures} of at most {limit}", failures=failures)


def _registry_failed(view: View, last: LastFailure) -> Outcome:
    num_starts = view.memory.unstable + 1
    if num_starts >= MAX_REGISTRY_STARTS:
        message = f"{num_starts} starts in a row failed, the last: {last.reason}: {last.message}"
        return failed_for_good(view, "RegistryUnavailable", message, last_failure=last)
    return start_failed(view, last)


def start_timeout(view: View) -> Outcome:
    """Release a gang that is not up in time, and avoid the nodes that held it back."""
    if not in_force(view) or deployed(view) or holds(view.status, ConditionType.GATED):
        return NOTHING
    limit_s = view.job.spec.run_policy.start_timeout_seconds
    left_s = seconds_left(view, _began(view), limit_s)
    if left_s > 0:
        return Outcome(requeue_after_s=left_s)
    late = [pod for pod in view.gang if not pod.running and not pod.ended]
    named = "; ".join(_why_late(view, pod) for pod in late[:_NUM_NAMED])
    num_up = sum(pod.running for pod in view.gang)
    message = f"{num_up} of {num_workers(view)} pods were up after startTimeoutSeconds = {limit_s} s: {named}"
    last = failure(view, "StartTimeout", message, late[0] if late else None)
    if any(_MISSING.search(_why_late(view, pod)) for pod in late):
        return _counted(view, last)
    return start_failed(view, last, avoided_nodes=avoided(view, (node_of(view, pod) for pod in late)))


def _began(view: View) -> datetime:
    """Since when the gang may start: since it is planned, or since the last scheduling gate of others is gone."""
    planned = since(view, ConditionType.PLANNED)
    return max(planned, since(view, ConditionType.GATED)) if condition(view.status, ConditionType.GATED) else planned


def refused(view: View, errors: Sequence[Refused]) -> Outcome:
    """Release a gang of which the API server did not admit a part; it is asked again before the next plan."""
    error = errors[0]
    outcome = start_failed(view, failure(view, refusal_reason(error), error.message))
    return replace(outcome, actions=(*outcome.actions, remember(admission=None)))


def _why_late(view: View, pod: WorkerPod) -> str:
    waits = f"{pod.waiting.reason} {pod.waiting.message}".strip() if pod.waiting else pod.phase
    warning = _warning(view, pod)
    warned = f" ({warning.reason}: {warning.message})" if warning else ""
    return f"{pod.name} for node {node_of(view, pod)}: {pod.unschedulable or waits}{warned}"
