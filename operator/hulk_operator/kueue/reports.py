"""What Kueue is told of a job, as merge patches of its Workload's status: the part of a job's own controller.

Conditions are a list, which a patch replaces as a whole: each patch holds for the version that it was made of.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import format_time
from hulk_operator.kueue.state import WorkloadState
from hulk_operator.status import whole_second

REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
"""Evictions after which a Workload is queued again at once; after others Kueue says when."""
_NOT_READY: Final = "Not all pods are ready or succeeded"
_RECOVERS: Final = "At least one pod has failed, waiting for recovery"
_READY: Final = "All pods reached readiness and the workload is running"

Patch = Mapping[str, Any]


def pods_ready(state: WorkloadState, num_up: int, now: datetime) -> Patch | None:
    """Whether the gang is up, of so many workers (0: it is not), told where that changed.

    A gang that was up and is not recovers. The first one since the admission may be smaller than what was admitted,
    because the plan is better so: that quota is given back for good. Not so with a topology, in which each worker's
    node counts.
    """
    is_up = num_up > 0
    was = state.condition("PodsReady")
    reason = was["reason"] if was else "WaitForStart"
    if is_up == (was is not None and was["status"] == "True"):
        return None
    if is_up:
        if reason in ("WaitForRecovery", "Recovered"):
            return _with(state, now, ("PodsReady", True, "Recovered", _READY))
        change, spare = _with(state, now, ("PodsReady", True, "Started", _READY)), _spare(state, num_up)
        reclaimed = {"reclaimablePods": [{"name": names.POD_SET, "count": spare}]} if spare else {}
        return {"status": {**change["status"], **reclaimed}}
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
    admitted, change = state.condition("Admitted"), dict[str, Any](admission=None, reclaimablePods=None)
    if admitted is not None and admitted["status"] == "True":
        told.append(("Admitted", False, "NoReservation", "The workload has no reservation"))
        ran_s = (now - datetime.fromisoformat(admitted["lastTransitionTime"])).total_seconds()
        change["accumulatedPastExecutionTimeSeconds"] = state.executed_s + max(0, int(ran_s))
    if state.condition("PodsReady") is not None:
        told.append(("PodsReady", False, "WaitForStart", _NOT_READY))
    return {"status": {**change, **_with(state, now, *told)["status"]}}


def _spare(state: WorkloadState, num_up: int) -> int:
    """How many of the workers that were asked for need no quota, where that is less than was admitted."""
    given = state.admission
    is_smaller = given is not None and not given.domains and num_up < state.num_workers
    return state.num_asked - num_up if is_smaller else 0


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
