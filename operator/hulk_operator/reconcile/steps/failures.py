"""An attempt that broke: which pod was the cause, whether it counts, and what is kept of it.

A worker that dies takes its peers with it (they lose their connection within seconds), and a node that dies is noticed
only after its peers broke. So the cause is looked for when the gang has settled: every running worker ended, or
`settle_s` passed. Workers that Hulk's launcher runs wait for the next attempt instead of failing with a peer: one that
fails alone is the cause after `alone_s`. A disruption (node loss, eviction, preemption, deletion) explains everything
else that broke. Where workers were stopped (143, 75) and nothing explains it, that is a disruption as well, if the
attempt made a step before that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hulk_operator import names
from hulk_operator.api import ConditionType, Membership
from hulk_operator.inputs.admission import kept_out_by
from hulk_operator.inputs.launch import launch_notes
from hulk_operator.pods import Reason, WorkerPod, stays
from hulk_operator.reconcile.attempt_state import (
    ATTEMPT_FAILED,
    DISRUPTED,
    NODE_LOST,
    RECOVERED,
    REGION_LOST,
    STOPPED,
    WIRE_MISMATCH,
    avoided,
    count_unstable,
    deployed,
    ended_well,
    failure,
    head,
    in_force,
    lost,
    made_steps,
    node_of,
    num_workers,
    released,
    remember,
    seconds_left,
    set_condition,
    since,
    update,
)
from hulk_operator.reconcile.membership import left_out, members, pods_of_members, seconds_to_bear
from hulk_operator.reconcile.steps.lifecycle import failed_for_good
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Outcome, View
from hulk_operator.status import holds

_NUM_NAMED = 3
_READY_IS_STALE_S = 60.0  # Kubernetes takes 40 to 50 s to see that a node is silent
_STOPPED_EXITS = frozenset({names.EXIT_CHECKPOINTED, names.EXIT_FENCED})  # somebody ended the worker
_SECONDARY_EXITS = _STOPPED_EXITS | {names.EXIT_LOST_PEER}
_WHO_STOPS = (
    " (no pod was deleted, no node was lost): SIGTERM may come from a livenessProbe, from timeout in the command "
    "or from another controller"
)
# By exit code: the reason, and how the runtime's own message begins. A plain script may use these codes (EX_USAGE,
# EX_DATAERR) for something that another attempt cures.
_NOT_CURED_BY_ANOTHER = {
    names.EXIT_WIRE_MISMATCH: (WIRE_MISMATCH, "PlanError: "),
    names.EXIT_USER_ERROR: ("UserError", "ConfigurationError: "),
}


def broken(view: View) -> Outcome:
    """Release an attempt that lost a worker; count it as a disruption or as a failure."""
    if not in_force(view):
        return NOTHING
    pods = pods_of_members(view)
    for pod in pods:
        if reason := _final_reason(pod):
            return _waits_for_image(view, pod) if reason == WIRE_MISMATCH else _failed(view, pod)
    disrupted = dict(_disruptions(view, pods))
    broke = [pod for pod in pods if pod.failed]
    if not disrupted and _not_started(view, pods):
        return NOTHING  # `start_failures.stuck` tells whose fault that is, and what is the consequence of it
    if not disrupted and not broke:
        return NOTHING if view.memory.loss is None else Outcome((remember(loss=None),))
    if (left_s := seconds_to_bear(view, {*disrupted, *(pod.worker for pod in broke)})) > 0:
        return _bear(view, left_s)
    if disrupted:
        return _disrupted(view, *next(iter(disrupted.values())))
    unknown = since(view, ConditionType.DEPLOYED)  # of pods that failed without an exit: nobody waits for one
    first = min((pod.exit.time for pod in broke if pod.exit), default=unknown)
    alone = stays(view.job) and len(broke) == 1
    left_s = seconds_left(view, first, view.timing.alone_s if alone else view.timing.settle_s)
    by_itself = any(pod.exit and pod.exit.container for pod in broke)  # no peer makes an init container fail
    if left_s > 0 and not by_itself and any(pod.running for pod in pods):
        return Outcome(stop=True, requeue_after_s=left_s)
    cause = _cause(broke)
    return _stopped(view, cause) if cause.exit and cause.exit.code in _STOPPED_EXITS else _failed(view, cause)


def _waits_for_image(view: View, pod: WorkerPod) -> Outcome:
    """Release an attempt whose runtime does not read the plan. It counts for nothing: `backoff` waits for a change."""
    assert pod.exit is not None
    view = replace(view, status=last_seen(view))
    last = failure(view, WIRE_MISMATCH, _words(pod), pod, pod.exit.code)
    message = head(
        f"attempt {last.attempt}: {_words(pod)}; the job waits for another image: set spec.suspend to true, change the "
        "template's image, and set it to false (the last alone tries this image again)"
    )
    status = update(released(view, WIRE_MISMATCH, WIRE_MISMATCH, message), last_failure=last)
    return Outcome(status=status, stop=True, requeue_after_s=0)


def _stopped(view: View, cause: WorkerPod) -> Outcome:
    """Workers that were stopped while nobody took a pod away: a disruption where the attempt made steps before.

    Else what stops them would stop every attempt, and it counts.
    """
    if made_steps(view) or any(_is_leaving(view, pod) for pod in view.gang):
        why = Reason(STOPPED, f"worker {cause.worker} was stopped, and nothing else broke")
        return _disrupted(view, why, cause, STOPPED)
    assert cause.exit is not None
    where = f"{_end(cause)} before any step, stopped by nobody that Hulk knows of{_WHO_STOPS}"
    return count_failure(view, cause, STOPPED, _words(cause), where, cause.exit.code)


def _is_leaving(view: View, pod: WorkerPod) -> bool:
    """Whether a pod's node is gone, not ready or cordoned: it may shut down."""
    node = view.nodes.get(pod.node)
    return node is None or node.ready != "True" or node.cordoned


def degraded(view: View) -> Outcome:
    """Say that the gang goes on without a region; or that a node of it is not ready, as long as that is borne."""
    if not in_force(view) or not deployed(view):
        return NOTHING
    if view.status.membership is not None:
        message = _without(view, view.status.membership)
        return Outcome(status=set_condition(view, ConditionType.DEGRADED, True, REGION_LOST, message))
    nodes = sorted({pod.node for pod in view.gang if not pod.ended and _unready(view, pod)})
    if nodes:
        message = f"not ready: {', '.join(nodes[:_NUM_NAMED])} ({len(nodes)} of the job's nodes)"
        return Outcome(status=set_condition(view, ConditionType.DEGRADED, True, "NodeNotReady", message))
    if holds(view.status, ConditionType.DEGRADED):
        message = "every node of the job is ready"
        return Outcome(status=set_condition(view, ConditionType.DEGRADED, False, RECOVERED, message))
    return NOTHING


def _without(view: View, known: Membership) -> str:
    """The sentence of a gang that lost regions, and what the way back is.

    "ap was cut off: 4 of 6 workers go on without it (membership epoch 1); 1 of its 2 nodes is not ready"
    """
    one = len(known.without) == 1
    lost = f"{', '.join(known.without)} {'was' if one else 'were'} cut off"
    left = f"{known.workers} of {num_workers(view)} workers go on without {'it' if one else 'them'}"
    return head(f"{lost}: {left} (membership epoch {known.epoch}){_way_back(view, known, 'its' if one else 'their')}")


def _way_back(view: View, known: Membership, whose: str) -> str:
    """What stands between the regions that were left out and the job, as far as their nodes tell.

    Nodes are ready also while only the links between the regions are cut; a view has no measurements of links.
    """
    nodes = {view.full.plan.workers[worker].machine for worker in left_out(view)} if view.full else set()
    num_away = sum(name not in view.nodes or view.nodes[name].ready != "True" for name in nodes)
    if num_away:
        return f"; {num_away} of {whose} {len(nodes)} nodes {'is' if num_away == 1 else 'are'} not ready"
    if not nodes or seconds_left(view, known.since, _READY_IS_STALE_S) > 0:
        return ""
    resumes = (
        "resumes from the last checkpoint" if view.job.spec.checkpoint else "begins at step 1: it has no checkpoint"
    )
    return (
        f"; {whose} nodes are ready; whether the links of {', '.join(known.without)} carry again is told by "
        f"`hulk topology`: if they do, a new attempt would use them and {resumes}; "
        "for one set spec.suspend to true, wait for Suspended, and set it to false"
    )


def _bear(view: View, left_s: float) -> Outcome:
    """Ask on how it goes: word may come that the other regions go on."""
    first = view.memory.loss is None or view.memory.loss[0] != view.status.attempt
    return Outcome((remember(loss=(view.status.attempt, view.now)),) if first else (), requeue_after_s=left_s)


def _unready(view: View, pod: WorkerPod) -> bool:
    node = view.nodes.get(pod.node)
    return node is not None and node.ready == "False"


def _final_reason(pod: WorkerPod) -> str:
    """Why no other attempt of the same spec can go better than a worker's end; empty otherwise."""
    if pod.exit is None or pod.exit.code not in _NOT_CURED_BY_ANOTHER:
        return ""
    reason, beginning = _NOT_CURED_BY_ANOTHER[pod.exit.code]
    return reason if beginning in pod.exit.message else ""


def _cause(broke: list[WorkerPod]) -> WorkerPod:
    """The pod that was first seen to fail; one that was stopped only where no other did, one without a peer as last."""
    own = [pod for pod in broke if pod.exit is None or pod.exit.container or pod.exit.code not in _SECONDARY_EXITS]
    primary = own or [pod for pod in broke if pod.exit and pod.exit.code in _STOPPED_EXITS] or broke
    ended = [(pod.exit.time, pod.worker, pod) for pod in primary if pod.exit]
    return min(ended, key=lambda end: end[:2])[2] if ended else primary[0]


def _failed(view: View, pod: WorkerPod) -> Outcome:
    code = pod.exit.code if pod.exit else None
    reason = pod.failure.reason if pod.failure else (pod.exit.reason if pod.exit else "") or "Error"
    return count_failure(view, pod, reason, _words(pod), _end(pod), code, _final_reason(pod))


def _words(pod: WorkerPod) -> str:
    """What the kubelet says of a pod that failed as a whole, or the worker's last words."""
    text = pod.failure.message if pod.failure else pod.exit.message if pod.exit else ""
    return text.strip() or "it printed nothing"


def count_failure(
    view: View, pod: WorkerPod, reason: str, text: str, where: str, code: int | None, final: str = ""
) -> Outcome:
    """Count a failure and release the gang; the job fails where it was one too many, or for a reason that is `final`.

    `text` is what is kept of it, `where` its short form for the conditions.
    """
    view = replace(view, status=last_seen(view))
    last = failure(view, final or reason, text, pod, code)
    failures = view.status.failures + 1
    counted = {"failures": failures, "last_failure": last}
    if final:
        return failed_for_good(view, final, f"{where}, which is not retried: {text}", **counted)
    limit = view.job.spec.run_policy.backoff_limit
    hints = "".join(f"; {note}" for note in launch_notes(view.job.spec))  # what was said with the plan may be the cause
    if failures > limit:
        message = f"{failures} failures are more than backoffLimit = {limit}; the last: {where}{hints}: {text}"
        return failed_for_good(view, "BackoffLimitExceeded", message, **counted)
    message = head(f"attempt {last.attempt}: {where}{hints}; failure {failures} of at most {limit}: {text}")
    return Outcome(
        status=update(released(view, ATTEMPT_FAILED, last.reason, message), **counted), stop=True, requeue_after_s=0
    )


def _end(pod: WorkerPod) -> str:
    """How a pod ended, in words.

    >>> from hulk_operator.pods import Exit
    >>> _end(WorkerPod("a-1-0", "p", "j", 1, 0, "n", exit=Exit(1, "Error", "no data", None, "prep")))
    'init container prep of worker 0 on node n ended with exit code 1'
    >>> _end(WorkerPod("a-1-0", "p", "j", 1, 0, "n", failure=Reason("DeadlineExceeded", "too long")))
    'worker 0 on node n failed (DeadlineExceeded)'
    >>> _end(WorkerPod("a-1-0", "p", "j", 1, 0, "n", exit=Exit(128, "StartError", 'exec: "x": not found', None)))
    'worker 0 on node n could not start'
    """
    where = f"worker {pod.worker} on node {pod.node}"
    if pod.failure or pod.exit is None:
        return f"{where} failed{f' ({pod.failure.reason})' if pod.failure else ''}"
    who = f"init container {pod.exit.container} of {where}" if pod.exit.container else where
    if pod.not_started:
        return f"{who} could not start"
    why = "" if pod.exit.reason in ("", "Error", "Completed") else f" ({pod.exit.reason})"
    return f"{who} ended with exit code {pod.exit.code}{why}"


def _not_started(view: View, pods: Iterable[WorkerPod]) -> list[WorkerPod]:
    """The pods of a gang that is not up yet of which a container cannot be started."""
    return [] if deployed(view) else [pod for pod in pods if pod.not_started]


def _disruptions(view: View, pods: tuple[WorkerPod, ...]) -> Iterator[tuple[int, tuple[Reason, WorkerPod | None]]]:
    """The workers that were taken away from the job, and how."""
    done = ended_well(view)
    for pod in (one for one in pods if one.worker not in done):
        if pod.disruption is not None and not _not_started(view, [pod]):
            yield pod.worker, (pod.disruption, pod)
        elif not pod.ended and (why := _node_lost(view, pod)):
            yield pod.worker, (why, pod)
        elif pod.delete_by is not None:
            yield pod.worker, (Reason("PodDeleted", f"pod {pod.name} is being deleted by someone else"), pod)
    missing = sorted(members(view) - {pod.worker for pod in pods} - done) if deployed(view) else []
    for worker in missing:
        what = f"the pod of worker {missing[0]} is gone ({len(missing)} of {num_workers(view)} are)"
        yield worker, (Reason("PodDeleted", what), None)


def _node_lost(view: View, pod: WorkerPod) -> Reason | None:
    """Why a pod's node cannot run it any more: the one that it is bound to, or that the plan wants it on.

    Before it is bound, only where kube-scheduler could not place it either: the plan may be made of newer news of the
    node than the watch has brought.
    """
    name = node_of(view, pod)
    if not name or not (pod.node or pod.unschedulable):
        return None
    node = view.nodes.get(name)
    if node is None:
        return Reason(NODE_LOST, f"node {name} was deleted")
    if name in (silent_s := lost(view)):
        step = view.memory.hearing.step if view.memory.hearing else 0
        said = f"node {name} has not answered for {silent_s[name]:.0f} s, and no step was made after step {step}"
        return Reason(NODE_LOST, said)
    if node.ready == "Unknown":
        return Reason(NODE_LOST, f"node {name} does not answer")
    if node.ready == "False" and node.since and seconds_left(view, node.since, view.timing.not_ready_s) <= 0:
        return Reason(NODE_LOST, f"node {name} is not ready since {node.since:%H:%M:%S} UTC")
    why = "" if pod.node else kept_out_by(node.cordoned, node.taints, view.admitted_job.spec.template.pod_spec())
    return Reason("NodeUnschedulable", f"node {name} does not admit worker {pod.worker}: {why}") if why else None


def _disrupted(view: View, why: Reason, pod: WorkerPod | None, released_as: str = DISRUPTED) -> Outcome:
    code = pod.exit.code if pod and pod.exit else None
    last = failure(view, why.reason, why.message or f"pod ended: {why.reason}", pod, code)
    message = f"attempt {last.attempt} was interrupted and does not count as a failure: {last.message}"
    status = update(
        released(view, released_as, last.reason, message),
        disruptions=view.status.disruptions + 1,
        last_failure=last,
        avoided_nodes=avoided(view, lost(view)),  # Kubernetes does not know yet
    )
    actions = () if deployed(view) else (count_unstable(view),)
    return Outcome(actions, status, stop=True, requeue_after_s=0)
