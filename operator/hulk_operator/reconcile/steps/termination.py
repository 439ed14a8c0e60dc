"""What is written down of an attempt that has ended, whatever it ended for."""

from hulk_operator.api import CheckpointStatus, Observed
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.reconcile.attempt_state import last_said, update
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Outcome, View
from hulk_operator.status import whole_second


def saved(view: View) -> Outcome:
    """The last step of the last attempt, and its checkpoint, which was its last act: no poll tells of them."""
    said, asked = last_said(view), view.job.spec.checkpoint
    if said is None:
        return NOTHING
    status = update(view.status, observed=_observed(view, said))
    if asked and said.checkpoint_bytes:
        where = said.where or asked.storage.where
        last = CheckpointStatus(step=said.step, where=where, bytes=said.checkpoint_bytes)
        status = update(status, checkpoint=last)
    return NOTHING if status == view.status else Outcome(status=status)


def _observed(view: View, said: Farewell) -> Observed:
    """The last step and its loss; the times of a step are those of the last poll."""
    known = view.status.observed
    if known and known.step >= said.step:
        return known
    polled = last_seen(view).observed
    now = whole_second(view.now)
    if polled is None:
        return Observed(step=said.step, loss=said.loss or None, updated_at=now)
    return polled.model_copy(update={"step": said.step, "loss": said.loss or polled.loss, "updated_at": now})
