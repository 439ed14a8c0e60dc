"""A gang that does not come up: released as a whole, with the reason in the words of whoever refused it.

Whose fault it is (`start_faults`) decides what follows:

    the job's own   an image, a Secret, a ConfigMap, a command that cannot be had, an init container that does not end:
                    a failure, counted by backoffLimit
    a node's        the node is avoided and the job tried elsewhere, `MAX_FAILED_STARTS` times in a row
    a registry's    no node reaches it: tried again, as often
    the cluster's   quotas, scheduling: tried again for as long as it takes
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from hulk_operator import names
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
from hulk_operator.reconcile.start_faults import advice, has_no_volume, is_missing, is_of_job, is_of_registry
from hulk_operator.reconcile.steps.admission import refusal_reason
from hulk_operator.reconcile.steps.lifecycle import failed_for_good
from hulk_operator.reconcile.types import NOTHING, Outcome, ReadWarnings, View
from hulk_operator.status import condition, holds

_CREATING: Final = frozenset({"ContainerCreating", "PodInitializing"})
_WAITS_FOR_GROUP: Final = "minCount pods from a gang"
"""In kube-scheduler's words of a pod that fits while others of its PodGroup do not."""
MAX_FAILED_STARTS: Final = 24  # at most six minutes apart: two hours
_NUM_NAMED = 3


def stuck(view: View) -> Outcome:
    """Release a gang of which a container cannot be started."""
    if not in_force(view) or deployed(view):
        return NOTHING
    found = [(pod, why) for pod in view.gang if (why := pod.not_started)]
    return _stuck(view, found) if found else _late(view)


def _late(view: View) -> Outcome:
    """Ask after pods whose containers are being created for long; one that waits for what is not there is stuck.

    The scheduler says it itself of a volume claim that is not there.
    """
    late = [pod for pod in view.gang if pod.node and pod.waiting and pod.waiting.reason in _CREATING]
    unbound = [pod for pod in view.gang if not pod.node and is_missing(pod.unschedulable)]
    left_s = seconds_left(view, since(view, ConditionType.PLANNED), view.timing.late_s)
    if not (late or unbound) or left_s > 0:
        return Outcome(requeue_after_s=left_s) if late or unbound else NOTHING
    if unbound:
        return _counted(view, failure(view, "Unschedulable", unbound[0].unschedulable, unbound[0]))
    known = view.memory.warnings
    if known is None or known.attempt != view.status.attempt:
        return Outcome((_ask_after(late),), requeue_after_s=0)
    for pod in late:
        if (warning := _warning(view, pod)) and is_missing(warning.message):
            return _stuck(view, [(pod, warning)])
    left_s = seconds_left(view, known.time, view.timing.warnings_s)
    return Outcome((_ask_after(late),), requeue_after_s=0) if left_s <= 0 else Outcome(requeue_after_s=left_s)


def _ask_after(late: Sequence[WorkerPod]) -> ReadWarnings:
    return ReadWarnings(tuple(pod.name for pod in late[:_NUM_NAMED]))


def _warning(view: View, pod: WorkerPod) -> Reason | None:
    known = view.memory.warnings
    return known.of_pods.get(pod.name) if known and known.attempt == view.status.attempt else None


def _stuck(view: View, found: Sequence[tuple[WorkerPod, Reason]]) -> Outcome:
    """Release the gang: what is the job's own fault counts, however many nodes have faults of theirs."""
    everywhere = _is_everywhere(view)
    up = {pod.node for pod in view.gang if pod.running}

    def is_own(pod: WorkerPod, why: Reason) -> bool:
        return is_of_job(why, runs_elsewhere=any(node != pod.node for node in up), everywhere=everywhere)

    own = next((one for one in found if is_own(*one)), None)
    pod, why = own or found[0]
    message = why.message or why.reason
    last = failure(view, why.reason, message + advice(message), pod)
    if own:
        return _counted(view, last)
    reason = "RegistryUnavailable" if all(is_of_registry(why) for _, why in found) else "NodesUnfit"
    to_avoid = () if everywhere else [pod.node for pod, _ in found]
    return _tried_elsewhere(view, last, to_avoid, reason)


def _is_everywhere(view: View) -> bool:
    """Whether every pod of the gang is stuck, or about to be, on more than one node."""
    stuck = [pod for pod in view.gang if pod.not_started or (pod.waiting and pod.waiting.reason == "ErrImagePull")]
    return len(stuck) == num_workers(view) and len({pod.node for pod in stuck}) > 1


def _tried_elsewhere(view: View, last: LastFailure, to_avoid: Iterable[str], reason: str) -> Outcome:
    """A failed start that is not the job's own: other nodes next, but not for ever."""
    num_starts = view.memory.unfit + 1
    if num_starts >= MAX_FAILED_STARTS:
        message = f"{num_starts} starts in a row failed, the last: {last.reason}: {last.message}"
        return failed_for_good(view, reason, message, last_failure=last)
    outcome = start_failed(view, last, avoided_nodes=avoided(view, to_avoid))
    return replace(outcome, actions=(*outcome.actions, remember(unfit=num_starts)))


def _counted(view: View, last: LastFailure) -> Outcome:
    """A failed start that is the job's own: as many as of workers that fail."""
    failures, limit = view.status.failures + 1, view.job.spec.run_policy.backoff_limit
    if failures > limit:
        message = f"{failures} failures are more than backoffLimit = {limit}; the last: {last.reason}: {last.message}"
        return failed_for_good(view, "BackoffLimitExceeded", message, failures=failures, last_failure=last)
    return start_failed(view, last, f"; failure {failures} of at most {limit}", failures=failures)


def start_timeout(view: View) -> Outcome:
    """Release a gang that is not up in time; avoid the nodes that held it back, unless no node could do otherwise."""
    if not in_force(view) or deployed(view) or holds(view.status, ConditionType.GATED):
        return NOTHING
    limit_s = view.job.spec.run_policy.start_timeout_seconds
    left_s = seconds_left(view, _began(view), limit_s)
    if left_s > 0:
        return Outcome(requeue_after_s=left_s)
    all_late = [pod for pod in view.gang if not pod.running and not pod.ended]
    late = [pod for pod in all_late if _WAITS_FOR_GROUP not in pod.unschedulable] or all_late
    whys = [_why_late(view, pod) for pod in late]
    named = "; ".join(whys[:_NUM_NAMED])
    num_up = sum(pod.running for pod in view.gang)
    message = f"{num_up} of {num_workers(view)} pods were up after startTimeoutSeconds = {limit_s} s: {named}"
    last = failure(view, "StartTimeout", f"{message}{advice(named)}", late[0] if late else None)
    by_nodes = [pod for pod in late if not pod.initializing]
    if (late and not by_nodes) or any(is_missing(why) or has_no_volume(why) for why in whys):
        return _counted(view, last)
    nodes = [node_of(view, pod) for pod in by_nodes if not _is_ignored(pod)]
    if any(pod.node for pod in by_nodes):
        return _tried_elsewhere(view, last, nodes, "NodesUnfit")
    return start_failed(view, last, avoided_nodes=avoided(view, nodes))


def _began(view: View) -> datetime:
    """Since when the gang may start: since it is planned, or since the last scheduling gate of others is gone."""
    planned = since(view, ConditionType.PLANNED)
    return max(planned, since(view, ConditionType.GATED)) if condition(view.status, ConditionType.GATED) else planned


def refused(view: View, errors: Sequence[Refused]) -> Outcome:
    """Release a gang of which the API server did not admit a part; it is asked again before the next plan."""
    error = errors[0]
    outcome = start_failed(view, failure(view, refusal_reason(error), error.message))
    return replace(outcome, actions=(*outcome.actions, remember(admission=None)))


def _is_ignored(pod: WorkerPod) -> bool:
    """Whether no scheduler has looked at the pod: there may be none of that name."""
    return not pod.node and not pod.unschedulable


def _why_late(view: View, pod: WorkerPod) -> str:
    waits = f"{pod.waiting.reason} {pod.waiting.message}".strip() if pod.waiting else pod.phase
    if _is_ignored(pod):
        waits = f"scheduler {view.job.spec.template.spec.scheduler_name or names.SCHEDULER} has said nothing of it"
    warning = _warning(view, pod)
    warned = f" ({warning.reason}: {warning.message})" if warning else ""
    return f"{pod.name} for node {node_of(view, pod)}: {pod.unschedulable or waits}{warned}"
