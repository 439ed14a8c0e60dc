"""A pod as JSON -> `WorkerPod`: how its containers are, in Kubernetes' words, and who owns it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from hulk_operator import names
from hulk_operator.cluster import Object
from hulk_operator.inputs.pod_size import requests
from hulk_operator.pods.worker import (
    INIT_RUNS,
    KUBELET_REFUSES,
    LONG_AGO,
    SIDECAR_NOT_STARTED,
    STUCK_REASONS,
    UNFIT_REASONS,
    Exit,
    Reason,
    WorkerPod,
    reason_of,
)

# status.reason of pods that Kubernetes ended for reasons outside the pod.
_DISRUPTION_REASONS: Final = frozenset(
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
_LOST_BY_RUNTIME: Final = (255, "Unknown")  # containerd's words for a container that it lost
_MAX_EXIT_CODE: Final = 255


def is_worker(pod: Object) -> bool:
    """Whether Hulk made a pod; anyone who may create pods may also put Hulk's labels on them.

    What lacks any of this is one that the operator may not change, by the policy in its chart.
    """
    labels = pod["metadata"].get("labels") or {}
    numbers = (labels.get(names.LABEL_ATTEMPT, ""), labels.get(names.LABEL_WORKER, ""))
    is_hulks = names.LABEL_JOB in labels and labels.get(names.LABEL_MANAGED_BY) == names.MANAGER
    return is_hulks and all(number.isdecimal() for number in numbers) and bool(owner_uid(pod))


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
        job=job_key_of(pod),
        amounts=requests(pod["spec"]),
    )


def owner_uid(child: Object) -> str:
    """The uid of the HulkJob that manages an object; empty when none does."""
    return _owner(child).get("uid", "")


def owner_name(child: Object) -> str:
    """The name of the HulkJob that manages an object; empty when none does."""
    return _owner(child).get("name", "")


def _owner(child: Object) -> Mapping[str, str]:
    """By kind, group and as its controller; an owner of that kind alone may be anybody's word."""
    owners = child["metadata"].get("ownerReferences") or ()
    jobs = (one for one in owners if one["kind"] == names.JOB_KIND and one["apiVersion"].startswith(f"{names.GROUP}/"))
    return next((one for one in jobs if one.get("controller")), {})


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
    if own and own.reason in STUCK_REASONS:
        return own
    for name, state in others.items():
        waits = _waiting(state)
        if waits and waits.reason in STUCK_REASONS:
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
    if reason in _DISRUPTION_REASONS | UNFIT_REASONS or reason.startswith(KUBELET_REFUSES):
        return Reason(reason_of(reason), status.get("message") or reason)
    return None


def _lost_container(end: Exit | None) -> Reason | None:
    """How a node lost a container, of which the exit code says nothing: it restarted, or its container runtime did."""
    if end is None or not (end.reason == "ContainerStatusUnknown" or (end.code, end.reason) == _LOST_BY_RUNTIME):
        return None
    words = end.message or "the node or its container runtime restarted"
    return Reason("ContainerLost", f"nobody knows how the container ended: {words}")
