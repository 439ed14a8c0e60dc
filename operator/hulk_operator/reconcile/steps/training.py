"""While a gang runs: calibrate and predict before the first step, observe, and see that it is done."""

from dataclasses import replace
from statistics import median
from typing import Final

from hulk_placement.report.units import duration

from hulk_operator.api import (
    CheckpointStatus,
    ConditionType,
    HulkJobStatus,
    Observed,
    PredictionSummary,
    Startup,
)
from hulk_operator.inputs.launch import launch_notes
from hulk_operator.observation import Observation, Preflight
from hulk_operator.pods import WorkerPod, stays
from hulk_operator.reconcile import membership
from hulk_operator.reconcile.attempt_state import (
    EXTENDED,
    deployed,
    ended_well,
    in_force,
    last_said,
    released,
    remember,
    seconds_left,
    set_condition,
    silent,
    since,
    update,
)
from hulk_operator.reconcile.energy import energy
from hulk_operator.reconcile.observed_model import NUM_WARMING_STEPS, observed_model
from hulk_operator.reconcile.observed_summary import pipeline_observed, wan_observed
from hulk_operator.reconcile.plan_summary import assumed_prediction, microseconds
from hulk_operator.reconcile.types import (
    NOTHING,
    Calibrate,
    KeepSpeeds,
    Outcome,
    Poll,
    RecordSpeeds,
    Sighting,
    Start,
    View,
)
from hulk_operator.status import condition, whole_second

NUM_FIRST_STEPS: Final = 3
WINDOW_STEPS: Final = 20
"""Of whose durations the observed step is the median."""


def regions(view: View) -> Outcome:
    """Write down that the gang goes on without a region, as the rank that speaks for it says, or said when it ended."""
    said, sighting = last_said(view), _sighting(view)
    found = membership.told_by(view, said) if said else None
    if found is None and sighting and sighting.observation and sighting.observation.attempt == view.status.attempt:
        found = membership.seen_in(view, sighting.observation)
    if found is None:
        return NOTHING
    return Outcome((remember(loss=None),), update(view.status, membership=found))


def complete(view: View) -> Outcome:
    """The job has succeeded when every worker ended well; pods that are deleted after that take nothing back.

    Not so where spec.training.steps was raised since the plan was made: another attempt goes on. Workers of a region
    that was left out are not waited for.
    """
    taking_part = membership.members(view)
    done = ended_well(view) & taking_part
    if not in_force(view) or not done:
        return NOTHING
    if done < taking_part:
        ended = frozenset((view.status.attempt, worker) for worker in done)
        return NOTHING if ended <= view.memory.ended else Outcome((remember(ended=ended),))
    if view.full and view.full.num_steps < view.job.spec.training.num_steps:
        return _extended(view, view.full.num_steps)
    whole = view.status.membership is None
    message = f"{_all(len(done))}{'' if whole else ' left'} of attempt {view.status.attempt} ended well{_doubts(view)}"
    status = set_condition(view, ConditionType.SUCCEEDED, True, "Succeeded", message, last_seen(view))
    status = set_condition(view, ConditionType.RUNNING, False, "Succeeded", message, status)
    return Outcome(status=update(status, completion_time=whole_second(view.now)), stop=True, requeue_after_s=0)


def _all(num_workers: int) -> str:
    return "the worker" if num_workers == 1 else f"all {num_workers} workers"


def _doubts(view: View) -> str:
    """What speaks against the success of programs that end with 0: none of them may have trained, or each on its own.

    Steps are known of programs that hulk-launch runs.
    """
    seen = last_seen(view).observed
    trained = not stays(view.job) or (seen is not None and seen.step > 0)
    notes = () if trained else ("no step of a torch optimizer was seen in rank 0",)
    return "".join(f"; {note}" for note in (*notes, *launch_notes(view.job.spec)))


def _extended(view: View, num_steps: int) -> Outcome:
    """Release an attempt that ended well but has made fewer steps than are asked for: no failure, no disruption."""
    begin = "resumes from the checkpoint" if view.job.spec.checkpoint else "begins at step 1, without spec.checkpoint"
    asked = f"spec.training.steps asks for {view.job.spec.training.num_steps}"
    message = f"attempt {view.status.attempt} ended with step {num_steps}, {asked}: the next one {begin}"
    status = released(replace(view, status=last_seen(view)), EXTENDED, EXTENDED, message)
    return Outcome(status=status, stop=True, requeue_after_s=0)


def preflight(view: View) -> Outcome:
    """Predict from what the pods measured, write that down, and only then let the first step begin.

    The ranks wait for a while, not for ever: what rank 0 said some time ago is asked again before it is used. Of an
    attempt that trains already nothing is predicted; where it had no preflight, its first steps measure its nodes.
    """
    rank0 = _rank0(view)
    if rank0 is None or view.full is None or view.job.spec.model is None:  # of which nothing can be predicted
        return NOTHING
    if not view.full.preflight or _prediction(view) is not None or _begun(view):
        return _first_steps(view, view.full.plan.layout.num_ranks)
    attempt, calibration = view.status.attempt, view.memory.calibration
    sighting = _sighting(view)
    fresh = sighting is not None and seconds_left(view, sighting.time, view.timing.fresh_s) > 0
    if fresh and calibration is not None and calibration.attempt == attempt:
        status = update(view.status, prediction=calibration.prediction)
        return Outcome((RecordSpeeds(calibration),), status, stop=True, requeue_after_s=0)
    if seconds_left(view, since(view, ConditionType.DEPLOYED), view.timing.preflight_wait_s) <= 0:
        return Outcome(status=update(view.status, prediction=assumed_prediction(view.full.plan, view.now)))
    if fresh and sighting and sighting.preflight is not None:
        return Outcome((Calibrate(sighting.preflight),), stop=True, requeue_after_s=0)
    after_s = _seconds_to_poll(view, view.timing.preflight_poll_s)
    return Outcome((Poll(rank0.address, attempt, preflight=True, after_s=after_s),), stop=True)


def _first_steps(view: View, num_ranks: int) -> Outcome:
    """What all ranks computed in a few steps becomes their nodes' speeds, for later jobs; the first steps warm up."""
    prediction, sighting = _prediction(view), _sighting(view)
    seen = sighting.observation if sighting else None
    if view.memory.kept == view.status.attempt or (prediction and prediction.source == "preflight"):
        return NOTHING
    if seen is None or seen.attempt != view.status.attempt or (seen.step or 0) <= NUM_WARMING_STEPS or seen.epoch:
        return NOTHING
    before = [found for found in view.memory.first_steps if found.attempt == seen.attempt]
    if seen.compute_s.keys() != set(range(num_ranks)) or seen.step in {found.step for found in before}:
        return NOTHING
    steps = (*before, seen)
    if len(steps) < NUM_FIRST_STEPS:
        return Outcome((remember(first_steps=steps),))
    rows = [[found.compute_s[rank] for rank in range(num_ranks)] for found in steps]
    compute_s = tuple(median(own) for own in zip(*rows, strict=True))
    return Outcome((KeepSpeeds(Preflight(view.status.attempt, compute_s, median(map(max, rows)))),))


def start(view: View) -> Outcome:
    """The prediction is written: the waiting ranks may begin."""
    rank0, prediction = _rank0(view), _prediction(view)
    if rank0 is None or prediction is None or prediction.source != "preflight":
        return NOTHING
    if view.memory.started == view.status.attempt or _begun(view):
        return NOTHING
    return Outcome((Start(rank0.address, view.status.attempt),))


def observe(view: View) -> Outcome:
    """Write down what rank 0 says, or who speaks where that is cut off, and ask again."""
    if not in_force(view) or not deployed(view) or not (asked := membership.speakers(view)):
        return NOTHING
    sighting, status = _sighting(view), view.status
    if sighting and sighting.observation and _is_news(view, sighting.observation):
        status = _observed(view, sighting.observation)
    first, *others = (pod.address for pod in asked)
    doors = membership.doors(view)
    after_s = _seconds_to_poll(view, view.timing.silent_poll_s if silent(view) else view.timing.poll_s)
    poll = Poll(first, status.attempt, preflight=False, others=tuple(others), doors=doors, after_s=after_s)
    return Outcome((poll,), status)


def _seconds_to_poll(view: View, pause_s: float) -> float:
    """Until the next poll is due; its answer then asks for a pass."""
    sighting = _sighting(view)
    return max(0.0, seconds_left(view, sighting.time, pause_s)) if sighting else 0.0


def last_seen(view: View) -> HulkJobStatus:
    """The status with the last thing that rank 0 said, at the end of an attempt."""
    sighting, before = _sighting(view), view.status.observed
    if sighting is None or sighting.observation is None or not _is_of(view, sighting.observation):
        return view.status
    seen = sighting.observation
    return view.status if before and before.step >= (seen.step or 0) else _observed(view, seen)


def _sighting(view: View) -> Sighting | None:
    """What a poll of this attempt brought."""
    found = view.memory.sighting
    return found if found and found.attempt == view.status.attempt else None


def _begun(view: View) -> bool:
    """Whether rank 0 is known to have made a step."""
    sighting = _sighting(view)
    return sighting is not None and sighting.observation is not None and bool(sighting.observation.step)


def _is_of(view: View, seen: Observation) -> bool:
    return seen.step is not None and seen.attempt in (None, view.status.attempt)


def _is_news(view: View, seen: Observation) -> bool:
    if not _is_of(view, seen):
        return False
    before = view.status.observed
    if before is None:
        return True
    new_checkpoint = seen.checkpoint_step is not None and (
        view.status.checkpoint is None or view.status.checkpoint.step != seen.checkpoint_step
    )
    rested = seconds_left(view, before.updated_at, view.timing.observe_write_s) <= 0
    return new_checkpoint or (rested and before.step != seen.step)


def _warms_up(view: View, seen: Observation) -> bool:
    """Whether the median of the last steps is of local SGD's warm-up, of which the prediction is not."""
    rounds = view.status.plan.rounds if view.status.plan else None
    return bool(rounds and rounds.warmup_steps and (seen.step or 0) <= rounds.warmup_steps + WINDOW_STEPS // 2)


def _observed(view: View, seen: Observation) -> HulkJobStatus:
    prediction = _prediction(view)
    step_us = microseconds(seen.step_s) if seen.step_s else None
    promised = None if prediction is None or _warms_up(view, seen) else prediction.step_microseconds
    error = (promised - step_us) / step_us if promised and step_us else None
    observed = Observed(
        step=seen.step or 0,
        step_microseconds=step_us,
        step_time=None if step_us is None else duration(step_us),
        compute_microseconds=microseconds(seen.max_compute_s) if seen.max_compute_s else None,
        loss=None if seen.loss is None else f"{seen.loss:.6g}",
        metric=_metric(seen),
        refused_checkpoints=seen.checkpoint_refused or None,
        relative_error=None if error is None else f"{error:.4f}",
        wan=wan_observed(seen, _regions(view)),
        pipeline=pipeline_observed(seen),
        model=observed_model(view, seen),
        updated_at=whole_second(view.now),
    )
    return update(
        view.status,
        observed=observed,
        checkpoint=_checkpoint(view, seen),
        startup=_startup(view),
        energy=energy(view, seen),
    )


def _metric(seen: Observation) -> str | None:
    """What the series says that the job's spec names."""
    return None if seen.metric is None else f"{seen.metric:.6g}"


def _startup(view: View) -> Startup | None:
    """How long this attempt took to train, told once."""
    known, attempt = view.status.startup, view.status.attempt
    if known is not None and known.attempt == attempt:
        return known
    planned = condition(view.status, ConditionType.PLANNED)
    if planned is None or planned.status != "True":
        return known
    return Startup(attempt=attempt, seconds=max(0, round((view.now - planned.last_transition_time).total_seconds())))


def _regions(view: View) -> frozenset[str]:
    plan = view.status.plan
    return frozenset(region.name for region in plan.regions) if plan else frozenset()


def _checkpoint(view: View, seen: Observation) -> CheckpointStatus | None:
    asked = view.job.spec.checkpoint
    if asked is None or seen.checkpoint_step is None or last_said(view):  # which is newer than any poll
        return view.status.checkpoint
    where = seen.checkpoint_where or asked.storage.where
    return CheckpointStatus(step=seen.checkpoint_step, where=where, bytes=seen.checkpoint_bytes or 0)


def _rank0(view: View) -> WorkerPod | None:
    """Rank 0's pod while the gang trains and it can be asked."""
    if not in_force(view) or not deployed(view):
        return None
    return next((pod for pod in view.gang if pod.worker == 0 and pod.running and pod.ip), None)


def _prediction(view: View) -> PredictionSummary | None:
    """The prediction of this attempt."""
    prediction = view.status.prediction
    return prediction if prediction and prediction.attempt == view.status.attempt else None
