"""What Kueue is told of a job, as merge patches of its Workload's status: the part of a job's own controller.

Conditions are a list, which a patch replaces as a whole: each patch holds for the version that it was made of.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from hulk_operator.api import format_time
from hulk_operator.kueue.state import WorkloadState
from hulk_operator.status import whole_second

REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
"""Evictions after which a Workload is queued again at once; after others Kueue says when."""
_NOT_READY: Final = "Not all pods are ready or succeeded"
_RECOVERS: Final = "At least one pod has failed, waiting for recovery"
_READY: Final = "All pods reached readiness and the workload is running"

Patch = Mapping[str, Any]


def pods_ready(state: WorkloadState, is_up: bool, now: datetime) -> Patch | None:
    """Whether the gang is up, told where that changed; a gang that was up and is not recovers."""
    was = state.condition("PodsReady")
    reason = was["reason"] if was else "WaitForStart"
    if is_up == (was is not None and was["status"] == "True"):
        return None
    if is_up:
        again = reason in ("WaitForRecovery", "Recovered")
        return _with(state, now, ("PodsReady", True, "Recovered" if again else "Started", _READY))
    return _with(state, now, ("PodsReady", False, "WaitForRecovery", _RECOVERS))


def finished(state: WorkloadState, succeeded: bool, message: str, now: datetime) -> Patch | None:
    """That the job is over: its quota is free. None where that was told."""
    if state.holds("Finished"):
        return None
    return _with(state, now, ("Finished", True, "Succeeded" if succeeded else "Failed", message))


def admission_dropped(state: WorkloadState, now: datetime) -> Patch:
    """That an evicted gang is gone: its quota is given back, and it waits for another admission."""
    evicted = state.condition("Evicted")
    assert evicted is not None, f"Workload {state.name} is not evicted"
    why, message = evicted["reason"], evicted.get("message", "")
    told = [("Requeued", why in REQUEUED_AT_ONCE, why, message), ("QuotaReserved", False, "Pending", message)]
    admitted, change = state.condition("Admitted"), dict[str, Any](admission=None)
    if admitted is not None and admitted["status"] == "True":
        told.append(("Admitted", False, "NoReservation", "The workload has no reservation"))
        ran_s = (now - datetime.fromisoformat(admitted["lastTransitionTime"])).total_seconds()
        change["accumulatedPastExecutionTimeSeconds"] = state.executed_s + max(0, int(ran_s))
    if state.condition("PodsReady") is not None:
        told.append(("PodsReady", False, "WaitForStart", _NOT_READY))
    return {"status": {**change, **_with(state, now, *told)["status"]}}


def _with(state: WorkloadState, now: datetime, *told: tuple[str, bool, str, str]) -> Patch:
    """The conditions with some set; a time moves only with its value."""
    conditions = list(state.conditions)
    for kind, value, reason, message in told:
        was = state.condition(kind)
        status = "True" if value else "False"
        since = was["lastTransitionTime"] if was and was["status"] == status else format_time(whole_second(now))
        new = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
        conditions = [one for one in conditions if one["type"] != kind] + [new]
    return {"status": {"conditions": conditions}}
