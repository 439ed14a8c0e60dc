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
    }
)
# status.reason of pods that a kubelet refused for what it finds on its node: devices, NUMA, SMT, sysctls, AppArmor.
_UNFIT: Final = frozenset(
    {
        "AppArmor",
        "PodFeatureUnsupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})  # of runtimes: the exit code is no program's
_NOT_EXECUTED: Final = re.compile(r"exec \S+: exec format error\s*")  # the whole output of a runtime's last step
# status.reason of pods that a kubelet refused because the node was full after all: with the resource's name, which for
# an extended resource is no word ("OutOfnvidia.com/gpu").
_KUBELET_REFUSES: Final = "OutOf"
_FULL: Final = "OutOfResource"
_STUCK_REASONS: Final = frozenset(
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
INIT_RUNS: Final = "InitContainerRuns"
SIDECAR_NOT_STARTED: Final = "SidecarNotStarted"
_CRASHES: Final = "CrashLoopBackOff"  # of a native sidecar: no other container is restarted
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)  # when all was seen, to those who ask for no times
_MAX_REASON: Final = 64
_MAX_EXIT_CODE: Final = 255
_LOST_BY_RUNTIME: Final = (255, "Unknown")  # containerd's words for a container that it lost


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker's container ended, and when that was first seen: its node's clock says nothing here.

    `container` names the init container that failed before it, where one did.
    """

    code: int
    reason: str
    message: str
    time: datetime
    container: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """A PascalCase reason and the server's words."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One worker's pod. `node` is empty until it is bound.

    `delete_by`: when deleting, the end of its grace period, which counts from when the deletion was first seen.
    `waiting`: what the worker waits for, or an init container before it, or another container that is stuck.
    `gates`: the scheduling gates that it waits behind, `finalizers`: those that keep it when it is deleted.
    The worker is one of its containers; `others_run`: of the other ordinary ones some do. `failure`: why the pod failed
    as a whole, where the kubelet says so.
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
    failure: Reason | None = None
    others_run: bool = False
    metrics_port: int = names.WORKER_METRICS_PORT

    @property
    def address(self) -> str:
        """Where it serves its metrics, as host:port; empty before it has an address."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.metrics_port}" if host else ""

    @property
    def running(self) -> bool:
        """Whether its worker container runs."""
        return self.phase == "Running" and self.exit is None and self.waiting is None

    @property
    def succeeded(self) -> bool:
        """Whether the worker ended with exit code 0, whatever the other containers do; it may have been told to end."""
        return not self.failed and (self.phase == "Succeeded" or self.exit is not None)

    @property
    def interrupted(self) -> bool:
        """Whether somebody takes the pod away."""
        return self.delete_by is not None or self.disruption is not None

    @property
    def failed(self) -> bool:
        """Whether the worker ended badly, an init container did before it, or the pod as a whole."""
        ended_badly = self.phase == "Failed" if self.exit is None else self.exit.code != 0
        return ended_badly or self.failure is not None

    @property
    def not_started(self) -> Reason | None:
        """Why its node cannot start one of its containers, or does not take it; None while time may cure that."""
        if self.failure and self.failure.reason in _UNFIT:
            return self.failure
        if self.exit and (self.exit.reason in _NOT_STARTED or _NOT_EXECUTED.fullmatch(self.exit.message)):
            where = f"init container {self.exit.container}: " if self.exit.container else ""
            return Reason(self.exit.reason, where + self.exit.message)
        waits = None if self.ended else self.waiting
        return waits if waits and waits.reason in _STUCK_REASONS else None

    @property
    def initializing(self) -> bool:
        """Whether the worker waits for an init container, or for a native sidecar, that its node has started."""
        return self.waiting is not None and self.waiting.reason in (INIT_RUNS, SIDECAR_NOT_STARTED, _CRASHES)

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
    worker = _worker_container(pod)
    statuses = status.get("containerStatuses") or ()
    state = _container_state(statuses, worker["name"])
    begun = "running" in state or "terminated" in state  # native sidecars restart beside it, and hold up nothing
    ended = before.exit.time if before and before.exit else now
    end = _exit(state, ended) or _init_exit(pod, ended)
    others = {found["name"]: found.get("state") or {} for found in statuses if found["name"] != worker["name"]}
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
        exit=end,
        waiting=(None if begun else _init_waiting(pod)) or _first_stuck(_waiting(state), others),
        unschedulable=_unschedulable(status),
        disruption=_disruption(status) or _lost_container(end),
        failure=_failure(status),
        others_run=any("terminated" not in other for other in others.values()),
        metrics_port=_metrics_port(worker),
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


def _worker_container(pod: Object) -> Object:
    """By the name that Hulk noted: a webhook may have put another container before it."""
    containers = pod["spec"]["containers"]
    name = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_CONTAINER)
    found: Object = next((one for one in containers if one["name"] == name), containers[0])
    return found


def _metrics_port(worker: Object) -> int:
    values = [one.get("value") or "" for one in worker.get("env") or () if one["name"] == names.ENV_METRICS_PORT]
    return int(values[0]) if values and values[0].isdecimal() else names.WORKER_METRICS_PORT


def _container_state(statuses: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((status.get("state") or {} for status in statuses if status["name"] == name), {})


def _delete_by(metadata: Object, now: datetime, before: WorkerPod | None) -> datetime | None:
    if "deletionTimestamp" not in metadata:
        return None
    by = now + timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return by if before is None or before.delete_by is None else min(by, before.delete_by)


def _init_exit(pod: Object, time: datetime) -> Exit | None:
    """How an init container failed; those that are restarted (native sidecars) never end the pod."""
    sidecars = _sidecars(pod)
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        ended = _exit(status.get("state") or {}, time, status["name"])
        if ended is not None and ended.code != 0 and status["name"] not in sidecars:
            return ended
    return None


def _failure(status: Mapping[str, Any]) -> Reason | None:
    reason = status.get("reason") or ""
    if status.get("phase") != "Failed" or not reason:
        return None
    return Reason(reason_of(reason), status.get("message") or reason)


def _exit(state: Mapping[str, Any], time: datetime, container: str = "") -> Exit | None:
    ended = state.get("terminated")
    if not ended:
        return None
    code = int(ended["exitCode"])
    return Exit(
        code if 0 <= code <= _MAX_EXIT_CODE else _MAX_EXIT_CODE,
        reason_of(ended.get("reason") or "", "Error"),
        _of_program(ended.get("message") or ""),
        time,
        container,
    )


def _of_program(message: str) -> str:
    """What a runtime says of the program itself, where it lists all its own layers before it.

    >>> _of_program('failed to create containerd task: OCI runtime create failed: exec: "train": not found in $PATH')
    'exec: "train": not found in $PATH'
    """
    layers, begin, words = message.partition('exec: "')
    return begin + words if layers.startswith("failed to ") and words else message


def _waiting(state: Mapping[str, Any]) -> Reason | None:
    waiting = state.get("waiting")
    return (
        Reason(reason_of(waiting.get("reason") or ""), _of_program(waiting.get("message") or "")) if waiting else None
    )


def _init_waiting(pod: Object) -> Reason | None:
    """What an init container waits for or still does, when it is the cause that the worker has not started."""
    sidecars = _sidecars(pod)
    for init in (pod.get("status") or {}).get("initContainerStatuses") or ():
        name, state = init["name"], init.get("state") or {}
        waits = _waiting(state)
        if waits and waits.reason != "PodInitializing":
            return Reason(waits.reason, f"init container {name}: {waits.message}".rstrip(": "))
        if "running" in state and name not in sidecars:
            return Reason(INIT_RUNS, f"init container {name} has not ended")
        if "running" in state and not init.get("started"):
            return Reason(SIDECAR_NOT_STARTED, f"the startupProbe of sidecar {name} has not succeeded")
    return None


def _sidecars(pod: Object) -> set[str]:
    """Init containers that are restarted and run beside the worker."""
    return {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}


def _first_stuck(own: Reason | None, others: Mapping[str, Mapping[str, Any]]) -> Reason | None:
    """What the worker waits for, or another ordinary container that is stuck: the pod is up when all have started."""
    if own and own.reason in _STUCK_REASONS:
        return own
    for name, state in others.items():
        waits = _waiting(state)
        if waits and waits.reason in _STUCK_REASONS:
            return Reason(waits.reason, f"container {name}: {waits.message}".rstrip(": "))
    return own


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
    if reason in DISRUPTION_REASONS | _UNFIT or reason.startswith(_KUBELET_REFUSES):
        return Reason(reason_of(reason), status.get("message") or reason)
    return None


def _lost_container(end: Exit | None) -> Reason | None:
    """How a node lost a container, of which the exit code says nothing: it restarted, or its container runtime did."""
    if end is None or not (end.reason == "ContainerStatusUnknown" or (end.code, end.reason) == _LOST_BY_RUNTIME):
        return None
    words = end.message or "the node or its container runtime restarted"
    return Reason("ContainerLost", f"nobody knows how the container ended: {words}")
