"""A job that says nothing of its model: what stands for it in a plan, and what is not said of such a plan.

Its machines are chosen by links and speed. What links carry is measured by the job's first steps (hulk-launch sees the
optimizers' parameters) and kept in `status.observed.model` for this template; before that, and for what it computes
and holds, there are stand-ins that decide nothing else: no memory is counted, and no step time is predicted.
"""

import hashlib
import json
from dataclasses import replace
from typing import Final

from hulk_placement.model import Model
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.plan import Plan, Prediction
from hulk_placement.workload import Workload

from hulk_operator.api import HulkJob, HulkJobSpec, ObservedModel

ASSUMED_PARAMETERS: Final = 25_000_000
"""Of ResNet-50, on which most tutorials of data parallelism are written."""
ASSUMED_FLOPS: Final = 4e14
"""Of each accelerator in a step where there are `workers.max`: seconds on any, so that more of them pay."""


def template_digest(spec: HulkJobSpec) -> str:
    """What tells templates apart: another program, image or argument may be another model. 16 hex digits."""
    return hashlib.sha256(json.dumps(spec.template.wire(), sort_keys=True).encode()).hexdigest()[:16]


def measured_model(job: HulkJob) -> ObservedModel | None:
    """What earlier steps of this template measured."""
    found = job.status.observed.model if job.status.observed else None
    return found if found and found.template == template_digest(job.spec) else None


def stand_in(spec: HulkJobSpec, measured: ObservedModel | None) -> Model:
    """The planner's model: one layer whose gradients are as large as measured, or as assumed."""
    num_parameters = max(1, measured.gradient_bytes // BYTES_PER_FP32) if measured else ASSUMED_PARAMETERS
    flops = ASSUMED_FLOPS * spec.workers.max * spec.workers.accelerators_per_worker / spec.global_batch
    return replace(Model.of_totals(num_parameters, flops), is_counted=False)


def without_guesses(plan: Plan, workload: Workload) -> Plan:
    """A plan as it may be told of: where the model is a stand-in, times and reasons with times are left out."""
    if workload.model.is_counted:
        return plan
    carried = f"all-reduces of {workload.model.gradient_bytes} bytes"
    is_assumed = workload.model.num_parameters == ASSUMED_PARAMETERS
    source = "assumed until the first steps measure them" if is_assumed else "as its first steps measured"
    why = (
        f"spec.model is not given: machines are chosen by their links and speed for {carried}, {source}.",
        "No memory is counted and no step time is predicted; spec.model makes both known.",
    )
    nothing = Prediction(0.0, 0.0, 0.0, plan.prediction.bottleneck, (), 0, calibrated=False)
    return replace(plan, why=why, prediction=nothing)
