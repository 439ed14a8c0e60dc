"""What is written down of an attempt that has ended, whatever it ended for."""

from hulk_operator.api import CheckpointStatus
from hulk_operator.reconcile.facts import last_saved, update
from hulk_operator.reconcile.types import NOTHING, Outcome, View


def saved(view: View) -> Outcome:
    """The last checkpoint of the last attempt, which was its last act."""
    asked, last, before = view.job.spec.checkpoint, last_saved(view), view.status.checkpoint
    if asked is None or last is None or (before is not None and before.step == last.step):
        return NOTHING
    where = asked.storage.url or f"pvc/{asked.storage.persistent_volume_claim}"
    return Outcome(
        status=update(view.status, checkpoint=CheckpointStatus(step=last.step, where=where, bytes=last.num_bytes))
    )
