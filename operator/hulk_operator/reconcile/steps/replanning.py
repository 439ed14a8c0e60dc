"""A running gang whose cluster has changed for the better, or whose links drifted: it moves where another plan pays."""

from dataclasses import replace

from hulk_operator.api import ReplanStatus
from hulk_operator.reconcile.attempt_state import REPLANNED, deployed, head, in_force, released, seconds_left, update
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Outcome, Review, View
from hulk_operator.status import whole_second


def move(view: View) -> Outcome:
    """Write down what the planning pass says of the plan in force; release the gang where another plan pays."""
    found = view.review
    if found is None or not in_force(view) or not deployed(view):
        return NOTHING
    if (found.attempt, found.generation) != (view.status.attempt, view.job.metadata.generation):
        return NOTHING
    if found.verdict != "move":
        return Outcome(status=update(view.status, replan=_written(view, found))) if _is_news(view, found) else NOTHING
    view = replace(view, status=update(last_seen(view), replan=_written(view, found)))
    message = head(f"attempt {found.attempt} moves to another plan: {found.reason}")
    return Outcome(status=released(view, REPLANNED, REPLANNED, message), stop=True, requeue_after_s=0)


def _is_news(view: View, found: Review) -> bool:
    """Another verdict than the one that is written, or one with other numbers after a while."""
    known = view.status.replan
    if known is None or (known.attempt, known.verdict) != (found.attempt, found.verdict):
        return True
    return known.reason != head(found.reason) and seconds_left(view, known.time, view.timing.replan_write_s) <= 0


def _written(view: View, found: Review) -> ReplanStatus:
    return ReplanStatus(
        attempt=found.attempt,
        verdict=found.verdict,
        reason=head(found.reason),
        step_microseconds=found.step_us,
        new_step_microseconds=found.new_step_us,
        gain_seconds=None if found.gain_s is None else round(found.gain_s),
        cost_seconds=None if found.cost_s is None else round(found.cost_s),
        time=whole_second(view.now),
    )
