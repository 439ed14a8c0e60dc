"""A gang that hangs: neither a step nor a line of output of rank 0 for too long ends the attempt, as a failure.

    runPolicy.stallSeconds   steps are known   the bound
    given                    any               as given; 0: none
    absent                   yes               STALL_STEPS steps as predicted or observed, at least MIN_STALL_S
    absent                   no                none: a program may well be silent for hours

Steps are known when rank 0 has told one (hulk_runtime, or hulk-launch for any other torch script). Output is a line in
the log of rank 0's pod; it is looked at only while no step is made. Where neither can be asked, nothing is decided.
"""

from datetime import datetime
from typing import Final

from hulk_placement.words import counted

from hulk_operator.api import ConditionType
from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.attempt_state import deployed, in_force, remember, seconds_left, since
from hulk_operator.reconcile.liveness import Hearing
from hulk_operator.reconcile.membership import pods_of_members
from hulk_operator.reconcile.silence import GangWords, Output, WorkerWords
from hulk_operator.reconcile.steps.failures import count_failure
from hulk_operator.reconcile.types import NOTHING, AskGang, Outcome, ReadOutput, View

MIN_STALL_S: Final = 1800.0
STALL_STEPS: Final = 50
STALLED: Final = "Stalled"
MIN_LOOK_S, MAX_LOOK_S = 1.0, 60.0
NUM_LOOKS: Final = 10  # in as long as the bound is
_NUM_WORKERS_NAMED: Final = 8
_NUM_CHARACTERS: Final = 160  # of a worker's last lines


def stalled(view: View) -> Outcome:
    """End an attempt whose rank 0 has been silent for the bound; ask for what that takes to know."""
    bound_s = _bound_s(view)
    pods = pods_of_members(view)
    if not bound_s or not pods:
        return NOTHING
    look_s = min(max(bound_s / NUM_LOOKS, MIN_LOOK_S), MAX_LOOK_S)
    output, last_step = _output(view, pods[0]), _last_step(view)
    if (left_s := seconds_left(view, max(last_step, view.memory.looked or last_step), look_s)) <= 0:
        return Outcome((ReadOutput(pods[0].name),))
    sign = max(last_step, output.changed) if output else view.now
    if output is None or (output.read - sign).total_seconds() < bound_s or not _steps_are_heard(view, pods[0]):
        return Outcome(requeue_after_s=left_s)
    words = _words(view, pods, sign, bound_s)
    if words is None:
        return Outcome((AskGang(pods, bound_s),))
    silent_s = (output.read - sign).total_seconds()
    return _ended(view, pods, words, f"no step and no output of rank 0 for {silent_s:.0f} s ({_why(view, bound_s)})")


def _words(view: View, pods: tuple[WorkerPod, ...], sign: datetime, bound_s: float) -> GangWords | None:
    """What the gang was found to say in this silence; None where it was not asked, or others are its workers by now."""
    known = view.memory.words
    if known is None or known.attempt != view.status.attempt or (known.time - sign).total_seconds() < bound_s:
        return None
    return known if {one.worker for one in known.workers} <= {pod.worker for pod in pods} else None


def _bound_s(view: View) -> float:
    """How long rank 0 may be silent; 0: for ever."""
    if not in_force(view) or not deployed(view):
        return 0.0
    asked = view.job.spec.run_policy.stall_seconds
    if asked is not None:
        return float(asked)
    heard, prediction = _hearing(view), view.status.prediction
    if heard is None or heard.stepped is None:
        return 0.0
    is_of_attempt = prediction is not None and prediction.attempt == view.status.attempt
    predicted_s = prediction.step_microseconds / 1e6 if prediction and is_of_attempt else 0.0
    return max(MIN_STALL_S, STALL_STEPS * max(heard.step_s, predicted_s))


def _why(view: View, bound_s: float) -> str:
    if view.job.spec.run_policy.stall_seconds is not None:
        return f"runPolicy.stallSeconds = {bound_s:.0f}"
    return f"more than {bound_s:.0f} s, {STALL_STEPS} steps or half an hour; runPolicy.stallSeconds sets another bound"


def _hearing(view: View) -> Hearing | None:
    heard = view.memory.hearing
    return heard if heard and heard.attempt == view.status.attempt else None


def _output(view: View, pod: WorkerPod) -> Output | None:
    known = view.memory.output
    return known if known and known.pod == pod.name and known.read >= since(view, ConditionType.DEPLOYED) else None


def _last_step(view: View) -> datetime:
    """When a step was heard of last; before the first one, when the gang was up."""
    heard, begin = _hearing(view), since(view, ConditionType.DEPLOYED)
    return max(begin, heard.stepped) if heard and heard.stepped else begin


def _steps_are_heard(view: View, pod: WorkerPod) -> bool:
    """Whether a step would be known of: nobody counts any, or rank 0 answers, or only its node does."""
    heard, seen = _hearing(view), view.memory.sighting
    if heard is None or heard.stepped is None:
        return True
    answered = seen is not None and seen.attempt == view.status.attempt and seen.observation is not None
    return answered or (heard.num_heard > 0 and pod.node not in heard.silent)


def _ended(view: View, pods: tuple[WorkerPod, ...], words: GangWords, silence: str) -> Outcome:
    """Count it; the worker that is behind the others, or the first silent one, is named as the cause."""
    ordered = sorted(words.workers, key=_suspicion)
    silent = [one.worker for one in words.workers if one.silent]
    by_worker = {pod.worker: pod for pod in pods}
    said = [_said(view, by_worker[one.worker], one) for one in ordered[:_NUM_WORKERS_NAMED]]
    more = len(pods) - len(said)
    others = f"; and {counted(more, 'more worker')}" if more > 0 else ""
    of_all = counted(len(words.workers), "worker")
    text = f"{silence}; silent: {_ranks_of(view, silent)} of {of_all}; {'; '.join(said)}{others}"
    cause = by_worker[ordered[0].worker]
    found = count_failure(view, cause, STALLED, text, "stalled", None)
    return Outcome((remember(words=None, output=None),), found.status, found.stop, found.requeue_after_s)


def _suspicion(one: WorkerWords) -> tuple[bool, float, int]:
    """The silent ones first, of these who is behind, of these the first."""
    return not one.silent, float("inf") if one.step is None else one.step, one.worker


def _said(view: View, pod: WorkerPod, one: WorkerWords) -> str:
    step = "" if one.step is None else f", step {one.step}"
    lines = " | ".join(line.strip() for line in one.lines)[-_NUM_CHARACTERS:] or "no output"
    return f"{_ranks(view, one.worker)} (node {pod.node}{step}): {lines}"


def _ranks(view: View, worker: int) -> str:
    """The ranks of a worker, as its program counts them."""
    per_worker = view.job.spec.workers.accelerators_per_worker
    first = worker * per_worker
    return f"rank {first}" if per_worker == 1 else f"ranks {first}-{first + per_worker - 1}"


def _ranks_of(view: View, workers: list[int]) -> str:
    named = [_ranks(view, worker) for worker in workers[:_NUM_WORKERS_NAMED]]
    more = len(workers) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])]) or "nobody"
