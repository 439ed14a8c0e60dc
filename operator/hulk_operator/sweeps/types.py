"""What a pass over a HulkSweep sees (`SweepView`) and what it may do (`SweepAction`). Nothing here does I/O."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob, HulkSweep, HulkSweepStatus, TrialPhase
from hulk_operator.status import condition, holds
from hulk_operator.sweeps.trial_jobs import LOSS
from hulk_operator.sweeps.trials import Trial

NOT_FINITE: Final = "NotFinite"
HALVED: Final = "Halved"
MAX_PLACE: Final = 64


@dataclass(frozen=True, slots=True)
class TrialState:
    """One trial as its HulkJob says, with what was decided of it in earlier passes (labels)."""

    trial: Trial
    phase: TrialPhase = TrialPhase.PENDING
    metric: float | None = None
    step: int = 0
    rung: int = 0
    stopped: str = ""  # why it is not to go on, as its label says
    reason: str = ""
    place: str = ""
    suspended: bool = False  # whether its HulkJob is asked to be; it is Paused when that has been done

    @property
    def failed(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.phase is TrialPhase.FAILED

    @property
    def ended(self) -> bool:
        """Whether it runs no more, whatever others do."""
        return self.phase in (TrialPhase.SUCCEEDED, TrialPhase.STOPPED, TrialPhase.FAILED)

    @property
    def diverged(self) -> bool:
        """Whether its metric is no finite number."""
        return self.metric is not None and not math.isfinite(self.metric)


def trial_state(trial: Trial, job: HulkJob | None, metric: str) -> TrialState:
    """What a trial's HulkJob says of it; None: it has none."""
    if job is None:
        return TrialState(trial)
    labels, seen = job.metadata.labels, job.status.observed
    value = None if seen is None else seen.loss if metric == LOSS else seen.metric
    regions = job.status.plan.regions if job.status.plan else ()
    state = TrialState(
        trial,
        metric=None if value is None else float(value),
        step=seen.step if seen else 0,
        rung=_rung(labels.get(names.LABEL_RUNG, "")),
        stopped=labels.get(names.LABEL_STOPPED, ""),
        place=",".join(region.name for region in regions)[:MAX_PLACE],
    )
    phase, reason = _phase(state, job)
    return replace(state, phase=phase, reason=reason, suspended=job.spec.suspend)


def _phase(state: TrialState, job: HulkJob) -> tuple[TrialPhase, str]:
    """Where the trial is, and why where that is not plain."""
    if holds(job.status, ConditionType.FAILED):
        found = condition(job.status, ConditionType.FAILED)
        return TrialPhase.FAILED, found.reason if found else ""
    if state.diverged or state.stopped == NOT_FINITE:
        return TrialPhase.FAILED, NOT_FINITE
    if holds(job.status, ConditionType.SUCCEEDED):
        return TrialPhase.SUCCEEDED, ""
    if state.stopped:
        return TrialPhase.STOPPED, state.stopped
    paused = job.spec.suspend and holds(job.status, ConditionType.SUSPENDED)
    return (TrialPhase.PAUSED if paused else TrialPhase.RUNNING), ""


def _rung(text: str) -> int:
    return int(text) if text.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class SweepView:
    """One sweep and everything about it, at one moment.

    `mistakes`: what is wrong with its description. `refused`: what the API server said when it refused a trial last.
    """

    sweep: HulkSweep
    status: HulkSweepStatus
    now: datetime
    states: tuple[TrialState, ...] = ()
    mistakes: tuple[str, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class CreateTrial:
    """Create a trial's HulkJob; one of this sweep that is there already is left as it is."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class ChangeTrial:
    """Suspend or resume a trial's HulkJob, and say why in its labels; None: as it is."""

    number: int
    suspend: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


SweepAction = CreateTrial | ChangeTrial
