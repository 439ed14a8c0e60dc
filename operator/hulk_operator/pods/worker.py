"""A pod as JSON -> `WorkerPod`: the few facts about one worker that the reconcile decides by."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hulk_operator import names
from hulk_operator.cluster import Object

# status.reason of pods that Kubernetes ended for reasons outside the pod.
DISRUPTION_REASONS: Final = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
# status.reason of pods that a kubelet refused because the node was full after all: with the resource's name, which for
# an extended resource is no word ("OutOfnvidia.com/gpu").
_KUBELET_REFUSES: Final = "OutOf"
_FULL: Final = "OutOfResource"
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)  # when all was seen, to those who ask for no times
_MAX_REASON: Final = 64
_MAX_EXIT_CODE: Final = 255


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker's first container ended, and when that was first seen: its node's clock says nothing here."""

    code: int
    reason: str
    message: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Reason:
    """A PascalCase reason and the server's words."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One worker's pod. `node` is empty until it is bound.

    `delete_by`: when deleting, the end of its grace period, which counts from when the deletion was first seen.
    `gates`: the scheduling gates that it waits behind, `finalizers`: those that keep it when it is deleted.
    """

    name: str
    uid: str
    job_uid: str
    attempt: int
    worker: int
    node: str = ""
    ip: str = ""
    phase: str = "Pending"
    delete_by: datetime | None = None
    exit: Exit | None = None
    waiting: Reason | None = None
    unschedulable: str = ""
    disruption: Reason | None = None
    gates: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether its worker container runs."""
        return self.phase == "Running" and self.exit is None and self.waiting is None

    @property
    def succeeded(self) -> bool:
        """Whether every container ended well."""
        return self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether the worker ended badly, or the pod as a whole."""
        return self.phase == "Failed" or (self.exit is not None and self.exit.code != 0)

    @property
    def ended(self) -> bool:
        """Whether the worker will do nothing any more."""
        return self.succeeded or self.failed


def reason_of(text: str, otherwise: str = "Unknown") -> str:
    """A reason as anyone may give it -> the PascalCase word that a status and an event hold.

    >>> reason_of("ImagePullBackOff"), reason_of("evicted_by team/a"), reason_of("OutOfnvidia.com/gpu"), reason_of("42")
    ('ImagePullBackOff', 'EvictedByTeamA', 'OutOfResource', 'Unknown')
    """
    words = re.findall(r"[A-Za-z0-9]+", text)
    if text.startswith(_KUBELET_REFUSES) and len(words) > 1:
        return _FULL
    found = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")[:_MAX_REASON]
    return found[:1].upper() + found[1:] or otherwise


def is_worker(pod: Object) -> bool:
    """Whether Hulk made a pod; anyone who may create pods may also put Hulk's labels on them."""
    labels = pod["metadata"].get("labels") or {}
    numbers = (labels.get(names.LABEL_ATTEMPT, ""), labels.get(names.LABEL_WORKER, ""))
    return names.LABEL_JOB in labels and all(number.isdecimal() for number in numbers) and bool(owner_uid(pod))


def job_key_of(pod: Object) -> str:
    """The job that a worker pod is labelled with."""
    return names.key(pod["metadata"]["namespace"], pod["metadata"]["labels"][names.LABEL_JOB])


def worker_pod(pod: Object, now: datetime = LONG_AGO, before: WorkerPod | None = None) -> WorkerPod:
    """The worker in a pod for which `is_worker` holds, seen at `now`; `before` is what was last seen under its name.

    Its own times are by the clocks of its node and of the API server, and are left out: what is new begins now.
    """
    before = before if before is not None and before.uid == pod["metadata"]["uid"] else None
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata["labels"]
    first = pod["spec"]["containers"][0]["name"]
    state = _container_state(status.get("containerStatuses") or (), first)
    return WorkerPod(
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=owner_uid(pod),
        attempt=int(labels[names.LABEL_ATTEMPT]),
        worker=int(labels[names.LABEL_WORKER]),
        node=pod["spec"].get("nodeName") or "",
        ip=status.get("podIP") or "",
        phase=status.get("phase") or "Pending",
        delete_by=_delete_by(metadata, now, before),
        exit=_exit(state, before.exit.time if before and before.exit else now),
        waiting=_waiting(state) or _init_waiting(status),
        unschedulable=_unschedulable(status),
        disruption=_disruption(status),
        gates=tuple(gate["name"] for gate in pod["spec"].get("schedulingGates") or ()),
        finalizers=tuple(metadata.get("finalizers") or ()),
    )


def owner_uid(child: Object) -> str:
    """The uid of the HulkJob that owns an object; empty when none does."""
    owners = child["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner["kind"] == names.JOB_KIND), "")


def owner_name(child: Object) -> str:
    """The name of the HulkJob that owns an object; empty when none does."""
    owners = child["metadata"].get("ownerReferences") or ()
    return next((owner["name"] for owner in owners if owner["kind"] == names.JOB_KIND), "")


def _container_state(statuses: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((status.get("state") or {} for status in statuses if status["name"] == name), {})


def _delete_by(metadata: Object, now: datetime, before: WorkerPod | None) -> datetime | None:
    if "deletionTimestamp" not in metadata:
        return None
    by = now + timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return by if before is None or before.delete_by is None else min(by, before.delete_by)


def _exit(state: Mapping[str, Any], time: datetime) -> Exit | None:
    ended = state.get("terminated")
    if not ended:
        return None
    code = int(ended["exitCode"])
    return Exit(
        code if 0 <= code <= _MAX_EXIT_CODE else _MAX_EXIT_CODE,
        reason_of(ended.get("reason") or "", "Error"),
        ended.get("message") or "",
        time,
    )


def _waiting(state: Mapping[str, Any]) -> Reason | None:
    waiting = state.get("waiting")
    return Reason(reason_of(waiting.get("reason") or ""), waiting.get("message") or "") if waiting else None


def _init_waiting(status: Mapping[str, Any]) -> Reason | None:
    """What an init container waits for, when it is the cause that the worker has not started."""
    states = (_waiting(init.get("state") or {}) for init in status.get("initContainerStatuses") or ())
    return next((state for state in states if state and state.reason != "PodInitializing"), None)


def _unschedulable(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        refused = condition["type"] == "PodScheduled" and condition["status"] == "False"
        if refused and condition.get("reason") != "SchedulingGated":  # nobody has looked for a node yet
            return condition.get("message") or condition.get("reason") or ""
    return ""


def _disruption(status: Mapping[str, Any]) -> Reason | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return Reason(reason_of(condition.get("reason") or "", "Disrupted"), condition.get("message") or "")
    reason = status.get("reason") or ""
    if reason in DISRUPTION_REASONS or reason.startswith(_KUBELET_REFUSES):
        return Reason(reason_of(reason), status.get("message") or reason)
    return None
