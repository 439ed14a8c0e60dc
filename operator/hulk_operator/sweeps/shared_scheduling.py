"""What to do with the one HulkJob whose devices the trials share (mode sharp): pure, of frozen views.

divide    no division yet: make one from estimates
create    the job, which runs the division's version
again     measured times have drifted, and another division pays: write it down
change    the job runs an older division: suspend it; once it is, give it the new one and resume it
suspend   as the sweep says
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api import (
    ConditionType,
    HulkJob,
    HulkSweep,
    HulkSweepStatus,
    SchedulePlan,
    TrialPhase,
    TrialStatus,
)
from hulk_operator.cluster import Object
from hulk_operator.observation import ObservedTrial
from hulk_operator.pods import WorkerPod
from hulk_operator.status import finished, holds, whole_second
from hulk_operator.sweeps.status import number
from hulk_operator.sweeps.trial_assignment import Division, Left, divide, divide_again, number_of
from hulk_operator.sweeps.trial_jobs import metadata
from hulk_operator.sweeps.trials import Trial
from hulk_operator.sweeps.types import NOT_FINITE, TrialState

JOB_FAILED: Final = "JobFailed"
TRIAL_FAILED: Final = "TrialFailed"
UNKNOWN: Final = "ResultUnknown"
ENDED: Final = ("succeeded", "failed")
_FAREWELL: Final = re.compile(r"(t\d{1,3})=([a-z]{1,16}),(\d{1,15}),(\S{0,32})")
_PHASES: Final = {
    "running": TrialPhase.RUNNING,
    "stopped": TrialPhase.PAUSED,
    "succeeded": TrialPhase.SUCCEEDED,
    "failed": TrialPhase.FAILED,
}


@dataclass(frozen=True, slots=True)
class SharedView:
    """A sweep of mode sharp, its job, and what was seen of each trial, by number."""

    sweep: HulkSweep
    now: datetime
    trials: tuple[Trial, ...]
    job: HulkJob | None = None
    division: Division | None = None
    seen: Mapping[int, ObservedTrial] = field(default_factory=dict)

    @property
    def num_devices(self) -> int:
        """Of each worker."""
        return self.sweep.spec.template.spec.workers.accelerators_per_worker


@dataclass(frozen=True, slots=True)
class WriteDivision:
    """Create the ConfigMap of a division."""

    division: Division


@dataclass(frozen=True, slots=True)
class CreateShared:
    """Create the job."""

    body: Object


@dataclass(frozen=True, slots=True)
class ChangeShared:
    """Merge this into the job."""

    change: Mapping[str, Any]


SharedAction = WriteDivision | CreateShared | ChangeShared


def decide_shared(view: SharedView) -> SharedAction | None:
    """The next thing to do; the pass after that decides again."""
    suspend = view.sweep.spec.suspend
    if view.division is None:
        left = [Left(trial.number, view.sweep.spec.template.spec.training.num_steps) for trial in view.trials]
        return WriteDivision(divide(left, view.sweep.spec.template.spec.workers.max, view.num_devices))
    if view.job is None:
        return None if suspend else CreateShared(shared_job(view.sweep, view.division.version))
    if finished(view.job.status):
        return None
    if version_of(view.job) != view.division.version:
        return _change_over(view, view.job, view.division.version)
    if view.job.spec.suspend != suspend:
        return ChangeShared({"spec": {"suspend": suspend}})
    if suspend or view.sweep.spec.template.spec.checkpoint is None:
        return None
    assert view.sweep.spec.sharp is not None
    tolerance = 1 + view.sweep.spec.sharp.drift_percent / 100
    again = divide_again(view.division, _left(view), view.num_devices, tolerance)
    return WriteDivision(again) if again else None


def _change_over(view: SharedView, job: HulkJob, version: int) -> SharedAction | None:
    """Suspend, wait, resume with the new division."""
    if not job.spec.suspend:
        return ChangeShared({"spec": {"suspend": True}})
    if not holds(job.status, ConditionType.SUSPENDED):
        return None
    template = shared_job(view.sweep, version)["spec"]["template"]
    labels = {names.LABEL_TRIALS: str(version)}
    return ChangeShared(
        {"metadata": {"labels": labels}, "spec": {"template": template, "suspend": view.sweep.spec.suspend}}
    )


def _left(view: SharedView) -> list[Left]:
    """Trials that have not ended."""
    steps, rows = view.sweep.spec.template.spec.training.num_steps, []
    for trial in view.trials:
        seen = view.seen.get(trial.number)
        if seen is None or seen.state not in ENDED:
            made = seen.step if seen else 0
            rows.append(Left(trial.number, max(1, steps - made), seen.step_s if seen else None))
    return rows


def version_of(job: HulkJob) -> int:
    """The version of the division that a job runs."""
    text = job.metadata.labels.get(names.LABEL_TRIALS, "")
    return int(text) if text.isdecimal() else 0


def shared_job(sweep: HulkSweep, version: int) -> Object:
    """The HulkJob: as many workers as the template has at most, and the trials' files in each."""
    spec = sweep.spec.template.spec.wire()
    spec["workers"] = {**spec["workers"], "min": spec["workers"]["max"]}
    pod = sweep.spec.template.spec.template.pod_spec()
    first, *others = pod["containers"]
    mount = {"name": names.TRIALS_VOLUME, "mountPath": names.TRIALS_DIRECTORY, "readOnly": True}
    volume = {
        "name": names.TRIALS_VOLUME,
        "configMap": {"name": names.trials_config_map(sweep.metadata.name, version)},
    }
    first = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
    pod = {**pod, "containers": [first, *others], "volumes": [*(pod.get("volumes") or ()), volume]}
    spec["template"] = {**spec["template"], "spec": pod}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": metadata(sweep, names.shared_job(sweep.metadata.name), {names.LABEL_TRIALS: str(version)}),
        "spec": spec,
    }


def farewells(pods: Iterable[WorkerPod]) -> dict[int, ObservedTrial]:
    """What workers that have ended said last of their trials."""
    found = {}
    for pod in pods:
        for name, state, step, metric in _FAREWELL.findall(pod.exit.message if pod.exit else ""):
            trial = number_of(name)
            if trial is not None and state in _PHASES:
                found[trial] = ObservedTrial(state, int(step), _number(metric))
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def remembered(table: Iterable[TrialStatus], trials: Iterable[Trial]) -> dict[int, ObservedTrial]:
    """What the status says of trials, after a start of the operator."""
    numbers = {trial.name: trial.number for trial in trials}
    states = {phase: state for state, phase in _PHASES.items()}
    return {
        numbers[row.name]: ObservedTrial(states[row.phase], row.step, None if row.metric is None else float(row.metric))
        for row in table
        if row.name in numbers and row.phase in states and row.reason not in (JOB_FAILED, UNKNOWN)
    }


def merged(known: Mapping[int, ObservedTrial], news: Mapping[int, ObservedTrial]) -> dict[int, ObservedTrial]:
    """A trial that has ended stays so: a job that is started again may run it once more."""
    found = dict(known)
    for trial, one in news.items():
        before = known.get(trial)
        if before is None or before.state not in ENDED:
            found[trial] = replace(one, step_s=one.step_s or (before.step_s if before else None))
    return found


def shared_states(view: SharedView) -> tuple[TrialState, ...]:
    """The trials for the status."""
    return tuple(_state(view, trial) for trial in view.trials)


def _state(view: SharedView, trial: Trial) -> TrialState:
    seen, job = view.seen.get(trial.number), view.job
    worker = view.division.worker_of(trial.number) if view.division else None
    place = "" if worker is None else f"worker {worker}"
    if seen is None:
        state = TrialState(trial, place=place)
    else:
        state = TrialState(trial, _PHASES.get(seen.state, TrialPhase.RUNNING), seen.metric, seen.step, place=place)
    if state.phase is TrialPhase.FAILED:
        finite = state.metric is None or math.isfinite(state.metric)
        return replace(state, reason=TRIAL_FAILED if finite else NOT_FINITE)
    if job is None or state.ended:
        return state
    if holds(job.status, ConditionType.FAILED):
        return replace(state, phase=TrialPhase.FAILED, reason=JOB_FAILED)
    if holds(job.status, ConditionType.SUCCEEDED):
        return replace(state, phase=TrialPhase.FAILED, reason=UNKNOWN)
    if state.phase is TrialPhase.RUNNING and job.spec.suspend:
        return replace(state, phase=TrialPhase.PAUSED)
    return state


def plan_status(status: HulkSweepStatus, division: Division | None, now: datetime) -> HulkSweepStatus:
    """The status with what the division says."""
    if division is None:
        return status
    same = status.plan is not None and status.plan.version == division.version
    made_at = status.plan.made_at if status.plan is not None and same else whole_second(now)
    plan = SchedulePlan(
        version=division.version,
        makespan_seconds=round(division.makespan_s),
        bound_seconds=round(division.bound_s),
        measured=division.num_measured,
        drift=None if division.drift is None else number(division.drift),
        made_at=made_at,
    )
    return status.model_copy(update={"plan": plan})
