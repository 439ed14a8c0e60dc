"""What a pass saw of the trials -> the sweep's status: counts, the best trial, a bounded table, conditions."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, Literal

from hulk_operator.api import (
    BestTrial,
    Condition,
    HulkSweepStatus,
    SweepCondition,
    SweepPhase,
    TrialCounts,
    TrialPhase,
    TrialStatus,
)
from hulk_operator.api.base import MAX_MESSAGE
from hulk_operator.api.hulksweep import MAX_ROWS
from hulk_operator.pods.worker import reason_of
from hulk_operator.status import Severity, Transition, whole_second
from hulk_operator.sweeps.halving import rank
from hulk_operator.sweeps.types import SweepView, TrialState

_BAD: Final = ("BadParameters", "TrialRefused")
_ROWS_FIRST: Final = (
    TrialPhase.RUNNING,
    TrialPhase.PAUSED,
    TrialPhase.FAILED,
    TrialPhase.SUCCEEDED,
    TrialPhase.STOPPED,
)


def sweep_status(view: SweepView) -> HulkSweepStatus:
    """The whole status after this pass's look."""
    counts = trial_counts(view.states)
    ended = bool(view.states) and all(one.ended for one in view.states)
    begun = counts.pending < counts.total
    before = view.status
    status = before.model_copy(
        update={
            "observed_generation": view.sweep.metadata.generation,
            "trials": counts,
            "best": best_trial(view),
            "table": table(view),
            "start_time": before.start_time or (whole_second(view.now) if begun else None),
            "completion_time": (before.completion_time or whole_second(view.now)) if ended else None,
        }
    )
    for kind, value, reason, message in _conditions(view, counts, ended):
        status = with_condition(status, kind, value, reason, message, view.now, view.sweep.metadata.generation)
    return status.model_copy(update={"phase": phase(status)})


def trial_counts(states: Iterable[TrialState]) -> TrialCounts:
    """How many trials are where."""
    found = Counter(one.phase for one in states)
    return TrialCounts(
        total=found.total(),
        pending=found[TrialPhase.PENDING],
        running=found[TrialPhase.RUNNING],
        paused=found[TrialPhase.PAUSED],
        succeeded=found[TrialPhase.SUCCEEDED],
        stopped=found[TrialPhase.STOPPED],
        failed=found[TrialPhase.FAILED],
    )


def best_trial(view: SweepView) -> BestTrial | None:
    """The best finite metric of a trial that has not failed."""
    able = [one for one in view.states if one.metric is not None and not one.failed and not one.diverged]
    if not able:
        return None
    best = min(able, key=lambda one: rank(one, view.sweep.spec))
    return BestTrial(
        name=best.trial.name, metric=number(best.metric), step=best.step, parameters=dict(best.trial.values)
    )


def table(view: SweepView) -> tuple[TrialStatus, ...]:
    """Rows by number; of too many the best one, then those that run, wait, failed, ended, the best of each first."""
    states = list(view.states)
    if len(states) > MAX_ROWS:
        order = {found: place for place, found in enumerate(_ROWS_FIRST)}
        states.sort(key=lambda one: (order.get(one.phase, len(order)), rank(one, view.sweep.spec)))
        best = best_trial(view)
        states.sort(key=lambda one: best is None or one.trial.name != best.name)
        states = sorted(states[:MAX_ROWS], key=lambda one: one.trial.number)
    return tuple(_row(one) for one in states)


def _row(one: TrialState) -> TrialStatus:
    return TrialStatus(
        name=one.trial.name,
        phase=one.phase,
        metric=None if one.metric is None else number(one.metric),
        step=one.step,
        rung=one.rung,
        place=one.place,
        reason=reason_of(one.reason) if one.reason else None,
    )


def number(value: float | None) -> str:
    """A metric as the status holds it.

    >>> number(2.5), number(float("nan")), number(1e-7)
    ('2.5', 'nan', '1e-07')
    """
    return f"{value:.6g}"


Said = tuple[SweepCondition, bool, str, str]


def _conditions(view: SweepView, counts: TrialCounts, ended: bool) -> list[Said]:
    spec = view.sweep.spec
    if view.mistakes:
        message = "; ".join(view.mistakes)
        return [
            (SweepCondition.VALID, False, "BadParameters", message),
            (SweepCondition.RUNNING, False, "BadParameters", message),
        ]
    valid = (SweepCondition.VALID, True, "Valid", f"{counts.total} trials")
    if ended:
        return [valid, *_ending(view, counts)]
    suspended = spec.suspend
    said = [valid, (SweepCondition.SUSPENDED, suspended, "Suspended" if suspended else "Resumed", "")]
    if suspended:
        return [*said, (SweepCondition.RUNNING, False, "Suspended", f"{counts.paused} trials wait")]
    if view.refused:
        return [*said, (SweepCondition.RUNNING, counts.running > 0, "TrialRefused", view.refused)]
    left = f"{counts.running} of {counts.total} trials run, {counts.pending} have not begun, {counts.paused} wait"
    return [*said, (SweepCondition.RUNNING, counts.running > 0, "Running" if counts.running else "Waiting", left)]


def _ending(view: SweepView, counts: TrialCounts) -> list[Said]:
    silent = sum(one.metric is None and not one.failed for one in view.states)
    told = (
        f"{counts.succeeded} of {counts.total} trials succeeded, {counts.stopped} were stopped, {counts.failed} failed"
    )
    if silent:
        told += f"; of {silent} that have not failed the metric {view.sweep.spec.objective.metric} was never seen"
    if counts.failed == counts.total:
        ending: Said = (SweepCondition.FAILED, True, "AllTrialsFailed", told)
    else:
        ending = (SweepCondition.SUCCEEDED, True, "Succeeded", told)
    return [ending, (SweepCondition.RUNNING, False, ending[2], told)]


def transitions(before: HulkSweepStatus, after: HulkSweepStatus) -> Iterator[Transition]:
    """What changed between two statuses: conditions that turned or gave another reason, trials that failed."""
    known = {found.type: found for found in before.conditions}
    for now in after.conditions:
        was = known.get(now.type)
        if was is None or (was.status, was.reason) != (now.status, now.reason):
            yield Transition(_severity(now), now.reason, now.message or f"{now.type} is {now.status}")
    failed = {row.name for row in before.table if row.phase is TrialPhase.FAILED}
    for row in after.table:
        if row.phase is TrialPhase.FAILED and row.name not in failed:
            message = f"trial {row.name} failed after step {row.step}: {row.reason or 'no reason is known'}"
            yield Transition("Warning", "TrialFailed", message)


def _severity(found: Condition) -> Severity:
    bad = found.status == "True" if found.type == SweepCondition.FAILED else found.reason in _BAD
    return "Warning" if bad else "Normal"


def is_news(before: HulkSweepStatus, after: HulkSweepStatus) -> bool:
    """Whether more than steps and metrics differ: phases, counts, conditions, the plan."""
    return _without_figures(before) != _without_figures(after)


def _without_figures(status: HulkSweepStatus) -> HulkSweepStatus:
    rows = tuple(row.model_copy(update={"metric": None, "step": 0}) for row in status.table)
    return status.model_copy(update={"table": rows, "best": None})


def phase(status: HulkSweepStatus) -> SweepPhase:
    """Where a sweep is, for people; programs read the conditions."""
    true = {found.type for found in status.conditions if found.status == "True"}
    for kind, result in (
        (SweepCondition.SUCCEEDED, SweepPhase.SUCCEEDED),
        (SweepCondition.FAILED, SweepPhase.FAILED),
        (SweepCondition.SUSPENDED, SweepPhase.SUSPENDED),
        (SweepCondition.RUNNING, SweepPhase.RUNNING),
    ):
        if kind in true:
            return result
    return SweepPhase.PENDING


def with_condition(
    status: HulkSweepStatus,
    kind: SweepCondition,
    value: bool,
    reason: str,
    message: str,
    now: datetime,
    generation: int,
) -> HulkSweepStatus:
    """The status with one condition set; its transition time moves only when its value does."""
    before = next((found for found in status.conditions if found.type == kind), None)
    text: Literal["True", "False"] = "True" if value else "False"
    after = Condition(
        type=kind.value,
        status=text,
        reason=reason,
        message=message[:MAX_MESSAGE],
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before and before.status == text else whole_second(now),
    )
    order = list(SweepCondition)
    others = [found for found in status.conditions if found.type != kind]
    conditions = sorted([*others, after], key=lambda found: order.index(SweepCondition(found.type)))
    return status.model_copy(update={"conditions": tuple(conditions)})
