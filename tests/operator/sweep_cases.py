"""Sweeps, and HulkJobs of their trials, for the tests of the sweeps' room."""

from typing import Any

from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob, HulkSweep, HulkSweepSpec, TrialPhase
from hulk_operator.sweeps.trials import Trial, trials
from hulk_operator.sweeps.types import SweepView, TrialState
from views import NOW

JOB_SPEC: dict[str, Any] = {
    "workers": {"max": 1},
    "model": {"transformer": {"layers": 1, "hidden": 8, "heads": 2, "sequenceLength": 4, "vocabulary": 16}},
    "training": {"globalBatch": 6, "steps": 40},
    "checkpoint": {"storage": {"url": "s3://bucket/sweep"}},
    "template": {
        "spec": {
            "containers": [
                {
                    "name": "worker",
                    "image": "hulk:0.1.0",
                    "args": ["--rate=$(sweep.rate)"],
                    "env": [{"name": "NAME", "value": "$(sweep.trial)"}],
                }
            ]
        }
    },
}
RATES = [{"rate": "0.1"}, {"rate": "0.2"}, {"rate": "0.3"}, {"rate": "0.4"}]


def document(name: str = "rates", job: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A HulkSweep of four rates; `job` replaces fields of the template's spec, `spec` those of the sweep's."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.SWEEP_KIND,
        "metadata": {"name": name, "namespace": "lab", "uid": "s1", "resourceVersion": "1", "generation": 1},
        "spec": {
            "parallelism": 2,
            "parameters": {"list": RATES},
            "template": {"spec": {**JOB_SPEC, **(job or {})}},
            **spec,
        },
    }


def sweep(name: str = "rates", job: dict[str, Any] | None = None, **spec: Any) -> HulkSweep:
    """That document, read."""
    return HulkSweep.model_validate(document(name, job, **spec))


def halved(**spec: Any) -> HulkSweep:
    """Rungs of 10 and 20 steps, then to 40."""
    return sweep(halving={"eta": 2, "minSteps": 10}, **spec)


def state(
    number: int, phase: TrialPhase = TrialPhase.RUNNING, metric: float | None = None, **fields: Any
) -> TrialState:
    """A trial that is there."""
    suspended = fields.pop("suspended", phase is TrialPhase.PAUSED)
    trial = Trial(number, f"rates-t{number}", {"rate": "0.1"})
    return TrialState(trial, phase, metric, suspended=suspended, **fields)


def view(found: HulkSweep, *states: TrialState, **fields: Any) -> SweepView:
    """A view in which trials that are not named have not begun."""
    known = {one.trial.number: one for one in states}
    every = tuple(known.get(trial.number, TrialState(trial)) for trial in trials(found))
    return SweepView(found, found.status, NOW, every, **fields)


def ran(job: HulkJob, step: int, loss: str, *conditions: ConditionType) -> dict[str, Any]:
    """A trial's HulkJob whose status says how far it is; conditions hold."""
    time = "2026-05-04T12:00:00Z"
    said = [{"type": kind, "status": "True", "reason": str(kind), "lastTransitionTime": time} for kind in conditions]
    body = job.wire()
    body["status"] = {"observed": {"step": step, "loss": loss, "updatedAt": time}, "conditions": said}
    return body


def spec_of(found: HulkSweep) -> HulkSweepSpec:
    """Its spec."""
    return found.spec
