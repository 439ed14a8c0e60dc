"""How a HulkJob's status changes: conditions, the phase derived from them, one merge patch, and events.

A status is a frozen value; every function here returns a new one. `Planned` True means that a committed plan is in
force: pods of that attempt, and of no other, may exist.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from hulk_operator import names
from hulk_operator.api import (
    Condition,
    ConditionType,
    HulkJob,
    HulkJobStatus,
    HulkSweep,
    LastFailure,
    Phase,
    ReplanStatus,
    format_time,
)
from hulk_operator.api.base import MAX_MESSAGE
from hulk_operator.cluster import Object

Severity = Literal["Normal", "Warning"]
BAD_WHEN_TRUE: Final = frozenset({ConditionType.FAILED, ConditionType.DEGRADED})
EXPECTED_REASONS: Final = frozenset(
    {
        "DeactivatedByKueue",
        "Deploying",
        "EvictedByKueue",
        "Extended",
        "GatesRemoved",
        "Gone",
        "Grown",
        "JobChanged",
        "JobOver",
        "MakingRoom",
        "Moved",
        "MovedByKueue",
        "PreemptedByPriority",
        "PreemptedByUtility",
        "Queued",
        "QueuedByKueue",
        "Recovered",
        "Replanned",
        "Resized",
        "Resumed",
        "RoomFound",
        "Shrunk",
        "Succeeded",
        "Suspended",
    }
)
"""Reasons of a condition that is False in the ordinary course of a job."""


def condition(status: HulkJobStatus, kind: ConditionType) -> Condition | None:
    """The condition of that type, None when it was never set."""
    return next((found for found in status.conditions if found.type == kind), None)


def holds(status: HulkJobStatus, kind: ConditionType) -> bool:
    """Whether the condition is True."""
    found = condition(status, kind)
    return found is not None and found.status == "True"


def with_condition(
    status: HulkJobStatus, kind: ConditionType, value: bool, reason: str, message: str, now: datetime, generation: int
) -> HulkJobStatus:
    """The status with one condition set; its transition time moves only when its value does."""
    before = condition(status, kind)
    text: Literal["True", "False"] = "True" if value else "False"
    after = Condition(
        type=kind.value,
        status=text,
        reason=reason,
        message=message[:MAX_MESSAGE],
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before and before.status == text else whole_second(now),
    )
    others = [found for found in status.conditions if found.type != kind]
    order = list(ConditionType)
    conditions = sorted([*others, after], key=lambda found: order.index(ConditionType(found.type)))
    return status.model_copy(update={"conditions": tuple(conditions)})


def finished(status: HulkJobStatus) -> bool:
    """Whether the job has succeeded or failed for good."""
    return holds(status, ConditionType.SUCCEEDED) or holds(status, ConditionType.FAILED)


def phase(status: HulkJobStatus) -> Phase:
    """Where a job is, for people; programs read the conditions."""
    rules: tuple[tuple[ConditionType, Phase], ...] = (
        (ConditionType.SUCCEEDED, Phase.SUCCEEDED),
        (ConditionType.FAILED, Phase.FAILED),
        (ConditionType.SUSPENDED, Phase.SUSPENDED),
        (ConditionType.RUNNING, Phase.RUNNING),
    )
    for kind, result in rules:
        if holds(status, kind):
            return result
    return Phase.DEPLOYING if holds(status, ConditionType.PLANNED) else Phase.PENDING


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that turns one object into the other; empty when they are equal.

    >>> merge_patch({"a": 1, "b": {"c": 1, "d": 2}, "e": 3}, {"a": 1, "b": {"c": 5}})
    {'b': {'c': 5, 'd': None}, 'e': None}
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif isinstance(value, Mapping) and isinstance(before[key], Mapping):
            if inner := merge_patch(before[key], value):
                patch[key] = inner
        elif value != before[key]:
            patch[key] = value
    return {key: patch[key] for key in [*before, *after] if key in patch}


def whole_second(time: datetime) -> datetime:
    """As Kubernetes keeps it."""
    return time.replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Transition:
    """Something that became true of a job, told to the user as an Event."""

    type: Severity
    reason: str
    message: str


def transitions(before: HulkJobStatus, after: HulkJobStatus) -> Iterator[Transition]:
    """What changed between two statuses: attempts that failed, and conditions that turned or gave another reason."""
    told = set()
    if after.last_failure is not None and after.last_failure != before.last_failure:
        told.add(after.last_failure.reason)
        yield _failure(after.last_failure)
    if (kept := after.replan) is not None and kept.verdict == "stay" and _is_another(kept, before.replan):
        yield Transition("Normal", "PlanKept", kept.reason)
    for now in after.conditions:
        was = condition(before, ConditionType(now.type))
        changed = was is None or (was.status, was.reason) != (now.status, now.reason)
        if changed and now.reason not in told:
            told.add(now.reason)
            yield Transition(_severity(now), now.reason, now.message or f"{now.type} is {now.status}")


def _is_another(replan: ReplanStatus, before: ReplanStatus | None) -> bool:
    return before is None or (before.attempt, before.verdict) != (replan.attempt, replan.verdict)


def _failure(failure: LastFailure) -> Transition:
    where = f" on node {failure.node}" if failure.node else ""
    code = f", exit code {failure.exit_code}" if failure.exit_code is not None else ""
    who = f" ({failure.pod}{where}{code})" if failure.pod else ""
    return Transition("Warning", failure.reason, f"Attempt {failure.attempt}{who}: {failure.message}")


def _severity(found: Condition) -> Severity:
    bad = found.type in BAD_WHEN_TRUE if found.status == "True" else found.reason not in EXPECTED_REASONS
    return "Warning" if bad else "Normal"


def event(job: HulkJob | HulkSweep, transition: Transition, attempt: int, now: datetime) -> Object:
    """The Event of a transition. Its name is a digest of what it says, so that saying it again changes nothing.

    The generation is the one that the status knew before: a pass that is repeated because the spec has changed
    meanwhile says the same, and what happens again after a change, as a second suspension, is said again.
    """
    seen = str(job.status.observed_generation)
    said = "\0".join((job.metadata.uid or "", seen, str(attempt), transition.reason, transition.message))
    time = format_time(whole_second(now))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{job.metadata.name}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
            "namespace": job.metadata.namespace,
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": job.kind,
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "uid": job.metadata.uid,
        },
        "type": transition.type,
        "reason": transition.reason,
        "message": transition.message[:MAX_MESSAGE],
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.CONTROLLER,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
