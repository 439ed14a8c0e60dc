"""A job whose attempt is not of what its spec asks for any more gets another plan: neither failure nor disruption."""

from dataclasses import replace

from hulk_placement.words import counted

from hulk_operator.reconcile.attempt_state import CHANGED, RESIZED, deployed, in_force, num_workers, released
from hulk_operator.reconcile.spec_digest import is_changed
from hulk_operator.reconcile.steps.training import last_seen
from hulk_operator.reconcile.types import NOTHING, Outcome, View


def changed(view: View) -> Outcome:
    """Release an attempt that was made of another spec: every attempt's pods are made of one.

    One whose pods are being created also where only what they get would differ, such as how often they save.
    """
    if not in_force(view) or not is_changed(view.job, view.status, pods=not deployed(view)):
        return NOTHING
    return _released(view, CHANGED, f"attempt {view.status.attempt} was made of another spec than the job has now")


def resize(view: View) -> Outcome:
    """Release an attempt whose number of workers spec.workers no longer admits."""
    workers, num = view.job.spec.workers, num_workers(view)
    if not in_force(view) or workers.min <= num <= workers.max:
        return NOTHING
    there = counted(num, "worker")
    message = f"attempt {view.status.attempt} has {there}, spec.workers asks for {workers.min} to {workers.max}"
    return _released(view, RESIZED, message)


def _released(view: View, reason: str, message: str) -> Outcome:
    status = released(replace(view, status=last_seen(view)), reason, reason, message)
    return Outcome(status=status, stop=True, requeue_after_s=0)
