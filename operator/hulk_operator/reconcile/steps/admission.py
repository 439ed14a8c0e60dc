"""Whether the API server would take a worker's pod: asked once for each generation, before machines are planned.

A dry run finds what only the API server and its admission plugins know: fields and values of the PodSpec, Pod Security,
LimitRanges, quotas, webhooks. As long as it refuses, nothing is planned and nothing is reserved; it is asked again with
a back-off, since what refuses may be mended outside of the job. A job whose own pods fill a quota is not held for it:
its next plan goes on with them, and creating the others tells; placeholders are gone before that.
"""

from typing import Final

from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJobStatus
from hulk_operator.api.base import MAX_MESSAGE
from hulk_operator.cluster import Invalid, NamespaceEnds, QuotaExceeded, Refused
from hulk_operator.pods import reason_of, sample_pod
from hulk_operator.reconcile.attempt_state import (
    PREEMPTED,
    START_FAILED,
    head,
    in_force,
    seconds_left,
    set_condition,
    update,
)
from hulk_operator.reconcile.retained_pods import KEEPING
from hulk_operator.reconcile.types import NOTHING, Admission, Outcome, TryPod, View
from hulk_operator.status import condition

INVALID_TEMPLATE: Final = "InvalidTemplate"
_MAX_DOUBLINGS: Final = 16
_MEND: Final = "set spec.suspend: true in the change that mends spec.template, then spec.suspend: false"
_TO_DO: Final = {
    INVALID_TEMPLATE: _MEND,
    "QuotaExceeded": "the job waits until the quota has room",
    "NamespaceTerminating": "the job goes with its namespace",
}
_KEPT: Final = KEEPING | PREEMPTED | {START_FAILED}
"""Why the last attempt was released: it decides which pods stay and how long is waited, so a refusal keeps it."""
_WITHOUT: Final = "spec.instrumentation: none does without Hulk's init container; "
_OUTSIDE: Final = f"mend what refuses it in the namespace, or {_MEND}"


def admit(view: View) -> Outcome:
    """Ask, once for each generation; hold the job as long as the answer is no."""
    if in_force(view):
        return NOTHING
    known = view.memory.admission
    if known is None or known.generation != view.job.metadata.generation:
        return _ask(view)
    if known.refused is None or not holds_up(view, known):
        return NOTHING
    left_s = seconds_left(view, known.time, retry_s(view, known))
    if left_s <= 0:
        return _ask(view)
    return Outcome(status=_held(view, known.refused), stop=True, requeue_after_s=left_s)


def holds_up(view: View, known: Admission | None) -> bool:
    """Whether a refusal holds the job: not for a quota that its own pods fill."""
    if known is None or known.refused is None:
        return False
    return not (isinstance(known.refused, QuotaExceeded) and (view.pods or view.placeholders))


def retry_s(view: View, known: Admission) -> float:
    """How long a refusal is believed: longer with each one."""
    doubled = view.timing.backoff_s * 2 ** min(known.num_refusals - 1, _MAX_DOUBLINGS)
    return float(min(view.timing.max_backoff_s, doubled))


def refusal_reason(error: Refused) -> str:
    """A refusal of an object of the gang as one word.

    >>> from hulk_operator.cluster import Forbidden
    >>> refusal_reason(Forbidden(403, "Forbidden", 'pods "a" is forbidden: violates PodSecurity "restricted:latest"'))
    'PodSecurity'
    """
    if isinstance(error, QuotaExceeded):
        return "QuotaExceeded"
    if isinstance(error, NamespaceEnds):
        return "NamespaceTerminating"
    if "violates PodSecurity" in error.message:
        return "PodSecurity"
    return reason_of(error.reason, type(error).__name__)


def _ask(view: View) -> Outcome:
    return Outcome((TryPod(sample_pod(view.admitted_job, view.instrumentation)),), stop=True, requeue_after_s=0)


def _held(view: View, error: Refused) -> HulkJobStatus:
    """The status of a job of which no pod would be taken; the sentence that says what to do is never cut off."""
    reason = INVALID_TEMPLATE if isinstance(error, Invalid) else refusal_reason(error)
    reserved = f"what is reserved is its pods ({len(view.pods)})" if view.pods else "nothing is reserved"
    is_its = any(word in error.message for word in (view.instrumentation.image, names.INSTRUMENTATION_VOLUME))
    to_do = f"; {reserved}: {_WITHOUT if is_its else ''}{_TO_DO.get(reason, _OUTSIDE)}"
    said = f"the API server does not take a worker's pod made of spec.template: {error.message}"
    message = head(said, MAX_MESSAGE - len(to_do)) + to_do
    before = condition(view.status, ConditionType.PLANNED)
    kept = before.reason if before and before.reason in _KEPT else reason
    return update(set_condition(view, ConditionType.PLANNED, False, kept, message), queue=None)
