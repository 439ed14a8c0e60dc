"""A job whose number of workers is not asked for any more gets another plan."""

from dataclasses import replace

from hulk_operator.reconcile.attempt_state import RESIZED, in_force, num_workers, released
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Outcome, View


def resize(view: View) -> Outcome:
    """Release an attempt whose number of workers spec.workers no longer admits: neither failure nor disruption."""
    workers, num = view.job.spec.workers, num_workers(view)
    if not in_force(view) or workers.min <= num <= workers.max:
        return NOTHING
    message = f"attempt {view.status.attempt} has {num} workers, spec.workers asks for {workers.min} to {workers.max}"
    status = released(replace(view, status=last_seen(view)), RESIZED, RESIZED, message)
    return Outcome(status=status, stop=True, requeue_after_s=0)
