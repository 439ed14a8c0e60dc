"""From no plan to a committed one: back-off, the request to the planning pass, and the commit."""

from typing import Final

from hulk_placement.words import counted

from hulk_operator import names
from hulk_operator.api import Condition, ConditionType, HulkJobStatus, Observed, PlanSummary
from hulk_operator.inputs.shortage import shortage_words
from hulk_operator.reconcile.attempt_state import (
    ATTEMPT_FAILED,
    DISRUPTED,
    PLAN_LOST,
    START_FAILED,
    STOPPED,
    WIRE_MISMATCH,
    head,
    in_force,
    remember,
    seconds_left,
    set_condition,
    since,
    update,
)
from hulk_operator.reconcile.spec_digest import is_changed
from hulk_operator.reconcile.steps.lifecycle import failed_for_good
from hulk_operator.reconcile.steps.queueing import queued, reason_to_keep, share_status
from hulk_operator.reconcile.types import NOTHING, Outcome, Planned, RequestPlan, Unplanned, View
from hulk_operator.status import condition, whole_second

_MAX_DOUBLINGS: Final = 16


def backoff(view: View) -> Outcome:
    """Wait after an attempt that ended badly: longer after each failure, not at all after a first disruption.

    An image whose runtime does not read the plan is tried again when something was done about it. Where all that is
    known is that the workers were stopped, it may happen again at once, so that is waited after too.
    """
    planned = condition(view.status, ConditionType.PLANNED)
    if in_force(view) or planned is None:
        return NOTHING
    if planned.reason == WIRE_MISMATCH and not (is_changed(view.job, view.status) or _was_suspended(view, planned)):
        return Outcome(stop=True)
    counts = {
        ATTEMPT_FAILED: view.status.failures,
        START_FAILED: max(1, view.memory.unstable),
        DISRUPTED: view.memory.unstable,
        STOPPED: view.status.disruptions,
        PLAN_LOST: view.memory.unstable - 1,
    }
    count = counts.get(planned.reason, 0)
    if count <= 0:
        return NOTHING
    delay_s = min(view.timing.max_backoff_s, view.timing.backoff_s * 2 ** min(count - 1, _MAX_DOUBLINGS))
    left_s = seconds_left(view, since(view, ConditionType.PLANNED), delay_s)
    return Outcome(stop=True, requeue_after_s=left_s) if left_s > 0 else NOTHING


def _was_suspended(view: View, released: Condition) -> bool:
    """Whether the job was suspended since it was released."""
    suspended = condition(view.status, ConditionType.SUSPENDED)
    return suspended is not None and suspended.last_transition_time >= released.last_transition_time


def ensure_plan(view: View) -> Outcome:
    """Ask for a plan; say why there is none; commit one, before anything of it is created."""
    if in_force(view):
        return NOTHING
    if view.status.attempt >= names.MAX_ATTEMPT:
        return failed_for_good(view, "TooManyAttempts", f"attempt {view.status.attempt} was the last one possible")
    decision = view.decision
    if isinstance(decision, Unplanned) and decision.generation == view.job.metadata.generation:
        return Outcome((RequestPlan(),), _unplanned(view, decision), stop=True)
    if isinstance(decision, Planned) and _fits(view, decision):
        keep = remember(swept_to=decision.summary.attempt) if _is_clean(view) else remember()
        return Outcome((keep,), committed(view, decision), stop=True, requeue_after_s=0)
    return Outcome((RequestPlan(),), stop=True)


def _unplanned(view: View, decision: Unplanned) -> HulkJobStatus:
    """The status of a job that has no plan, and its place where it waits for others."""
    before, reason = condition(view.status, ConditionType.PLANNED), decision.reason
    if decision.place is not None:
        reason = reason_to_keep(reason, before.reason if before else None)
    message = decision.message
    if decision.shortage is not None:
        message = head(f"{message.removesuffix('.')}. {shortage_words(view.admitted_job, decision.shortage)}")
    status = set_condition(view, ConditionType.PLANNED, False, reason, message)
    return queued(view, status, decision.place)


def committed(view: View, decision: Planned) -> HulkJobStatus:
    """The status with a plan in force."""
    summary = decision.summary
    last = view.status.last_failure if _failed_start(view) else None
    again = f" (attempt {last.attempt}: {last.message})" if last else ""
    regions = ", ".join(f"{share.workers} in {share.name}" for share in summary.regions)
    message = f"attempt {summary.attempt}: {counted(summary.num_workers, 'worker')}, {regions}{_details(summary)}"
    if decision.share is not None:
        message += f"; {decision.share.of_cluster:.0%} of the accelerators, a fair share is {decision.share.fair:.0%}"
    message = ". ".join((message, *decision.notes)) if decision.notes else message
    status = set_condition(view, ConditionType.PLANNED, True, "Planned", message)
    status = set_condition(
        view, ConditionType.DEPLOYED, False, "Deploying", f"attempt {summary.attempt} is being created{again}", status
    )
    return update(
        status,
        attempt=summary.attempt,
        plan=summary,
        prediction=decision.prediction,
        observed=_measured(view),
        membership=None,
        queue=None,
        share=share_status(view, decision.share),
        restarts=view.status.restarts + (1 if view.status.attempt else 0),
        start_time=view.status.start_time or whole_second(view.now),
        avoided_nodes=tuple(node for node in view.status.avoided_nodes if node.until > view.now),
    )


def _measured(view: View) -> Observed | None:
    """Of what earlier attempts told, the measures of a model that the spec does not describe."""
    before = view.status.observed
    return Observed(step=0, model=before.model, updated_at=before.updated_at) if before and before.model else None


def _details(summary: PlanSummary) -> str:
    """Stages, shards, shares that differ, and the price."""
    layout, few, many = summary.layout, summary.smallest_share, summary.largest_share
    has_stages = layout.pipeline > 1
    replicas = counted(layout.data, "replica")
    stages = f"; {replicas} of {layout.pipeline} stages by {summary.schedule}" if has_stages else ""
    parts = {"shard": layout.shard, "tensor-parallel rank": layout.tensor}
    cells = " x ".join(counted(num, name) for name, num in parts.items() if num > 1)
    whose = "a stage" if has_stages else f"{replicas}, each"
    cells = f"; {whose} of {cells}" if cells else ""
    shares = f"; {few} to {many} sequences a {'replica' if has_stages or cells else 'rank'}" if few < many else ""
    return stages + cells + shares + (f"; {float(summary.price_per_hour):g} an hour" if summary.price_per_hour else "")


def _fits(view: View, decision: Planned) -> bool:
    """Whether a plan was made for the job as it is now."""
    same_generation = decision.generation == view.job.metadata.generation
    return same_generation and decision.summary.attempt == view.status.attempt + 1


def _is_clean(view: View) -> bool:
    """Whether nothing of earlier attempts can be left, so that the new attempt needs no sweep."""
    return view.status.attempt == 0 or view.memory.swept_to == 0


def _failed_start(view: View) -> bool:
    planned = condition(view.status, ConditionType.PLANNED)
    return planned is not None and planned.reason == START_FAILED
