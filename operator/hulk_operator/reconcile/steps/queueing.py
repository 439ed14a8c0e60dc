"""A job among others: the queue's orders to a gang that runs, and what the status says of place and share."""

from dataclasses import replace
from typing import Final

from hulk_operator.api import ConditionType, HulkJobStatus, QueueStatus, ShareStatus
from hulk_operator.api.queue_status import MAX_QUEUE_MESSAGE
from hulk_operator.reconcile.attempt_state import (
    GROWN,
    MOVED,
    PREEMPTED,
    SHRUNK,
    deployed,
    head,
    in_force,
    released,
    update,
)
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Outcome, Place, Share, View
from hulk_operator.status import condition, whole_second

MOVES: Final = {GROWN: "grow", SHRUNK: "shrink", MOVED: "move"}
MIN_NEWS_S: Final = 60.0
"""An expected start that differs by less is not written again; nor one by less than a tenth of the wait."""


def obey(view: View) -> Outcome:
    """Release a gang that goes on with other workers, or later: neither failure nor disruption.

    The share is in the status before anything stops, so that an operator that dies here leaves the next one to go on.
    """
    order = view.order
    if order is None or not in_force(view) or not deployed(view):
        return NOTHING
    if (order.attempt, order.generation) != (view.status.attempt, view.job.metadata.generation):
        return NOTHING
    view = replace(view, status=last_seen(view))
    status = released(view, order.reason, order.reason, head(f"attempt {order.attempt}: {order.message}"))
    return Outcome(status=update(status, share=share_status(view, order.share)), stop=True, requeue_after_s=0)


def share_status(view: View, share: Share | None) -> ShareStatus | None:
    """The share as the status tells it."""
    if share is None:
        return None
    return ShareStatus(
        workers=share.workers,
        of_cluster=f"{share.of_cluster:.4f}",
        fair=f"{share.fair:.4f}",
        time=whole_second(view.now),
    )


def queued(view: View, status: HulkJobStatus, place: Place | None) -> HulkJobStatus:
    """The status with the job's place among those that wait; since when it waits is told once."""
    if place is None:
        return update(status, queue=None)
    known = view.status.queue
    expected = None if place.expected_start is None else whole_second(place.expected_start)
    if known and known.expected_start and expected:
        differs_s = abs((expected - known.expected_start).total_seconds())
        if differs_s < max(MIN_NEWS_S, (expected - view.now).total_seconds() / 10):
            expected = known.expected_start
    return update(
        status,
        queue=QueueStatus(
            position=place.position,
            since=known.since if known else whole_second(view.now),
            reason=place.reason,
            message=head(place.message, MAX_QUEUE_MESSAGE),
            expected_start=expected,
        ),
    )


def queue_move(before: HulkJobStatus, after: HulkJobStatus) -> str:
    """What the queue did with the job between two statuses, as metrics name it; empty: nothing."""
    was, now = condition(before, ConditionType.PLANNED), condition(after, ConditionType.PLANNED)
    if now is None or (was and was.status == now.status):
        return ""
    if now.status == "True":
        return "start" if after.share is not None else ""
    return "preempt" if now.reason in PREEMPTED else MOVES.get(now.reason, "")


def reason_to_keep(reason: str, before: str | None) -> str:
    """Why a job has no plan: that it was preempted is said until it runs again.

    >>> reason_to_keep("Queued", "PreemptedByPriority"), reason_to_keep("Queued", "Suspended")
    ('PreemptedByPriority', 'Queued')
    """
    return before if before in PREEMPTED else reason
