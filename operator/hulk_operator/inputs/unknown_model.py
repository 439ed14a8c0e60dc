"""A job that says nothing of its model: what stands for it in a plan, and what is not said of such a plan.

Its machines are chosen by links and speed. The first steps of a template measure what links carry and what rank 0
computes (hulk-launch sees optimizers and DistributedDataParallel); `status.observed.model` keeps it for later plans of
this template, in this namespace. Before that there are stand-ins, by which no step time is predicted. Memory is never
counted.

How long other machines compute follows from seconds alone, without FLOPs that nobody knows: the template counts as so
many FLOPs that the machine that was measured has a speed of our choice (`reference_speed`), and by that speed this
machine is known. Of a lab's CPU that counts as 1 TFLOP/s and took 0.2 s, a rank's step has 0.2 TFLOP; a machine that
showed half the speed of this one in other jobs counts as 0.5 TFLOP/s, and takes 0.4 s.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from hulk_placement.accelerators import look_up
from hulk_placement.model import Known, Model
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.plan import Plan, Prediction
from hulk_placement.workload import Workload

from hulk_operator.api import HulkJob, HulkJobSpec, Observed, ObservedModel
from hulk_operator.inputs.speeds import Speeds

ASSUMED_PARAMETERS: Final = 25_000_000
"""Of ResNet-50, on which most tutorials of data parallelism are written."""
ASSUMED_FLOPS: Final = 4e14
"""Of each accelerator in a step where there are `workers.max`: seconds on any, so that more of them pay."""
ROUND_FLOPS_PER_S: Final = 1e12
"""Of products without a data sheet."""


def template_digest(spec: HulkJobSpec) -> str:
    """What tells templates apart: another program, image or argument may be another model. 16 hex digits."""
    return hashlib.sha256(json.dumps(spec.template.wire(), sort_keys=True).encode()).hexdigest()[:16]


def measured_model(job: HulkJob, others: Iterable[HulkJob] = ()) -> ObservedModel | None:
    """What steps of this template measured: the job's own, else the newest of its namespace.

    One that knows the compute stands before one that does not.
    """
    if job.spec.model is not None:
        return None
    template = template_digest(job.spec)
    found: list[tuple[tuple[bool, bool, datetime], ObservedModel]] = []
    for one in (job, *(other for other in others if other.namespace == job.namespace)):
        seen: Observed | None = one.status.observed
        if seen is not None and seen.model is not None and seen.model.template == template:
            order = seen.model.compute_microseconds is not None, one.key == job.key, seen.updated_at
            found.append((order, seen.model))
    return max(found, key=lambda each: each[0])[1] if found else None


def stand_in(spec: HulkJobSpec, measured: ObservedModel | None) -> Model:
    """The planner's model: one layer whose gradients and compute are as measured, or as assumed."""
    num_parameters = max(1, measured.gradient_bytes // BYTES_PER_FP32) if measured else ASSUMED_PARAMETERS
    if measured is None or not _is_timed(spec, measured):
        flops = ASSUMED_FLOPS * spec.workers.max * spec.workers.accelerators_per_worker / spec.global_batch
        return replace(Model.of_totals(num_parameters, flops), known=Known.TRAFFIC)
    flops = (measured.compute_microseconds or 0) / 1e6 * reference_speed(spec, measured) / (measured.sequences or 1)
    return replace(Model.of_totals(num_parameters, flops), known=Known.SEQUENCE if measured.sequences else Known.RANK)


def _is_timed(spec: HulkJobSpec, measured: ObservedModel) -> bool:
    """Whether the compute counts for this job: a rank's part of the batch is known of both, or of neither."""
    is_alike = (measured.sequences is None) == (spec.training.global_batch is None)
    return bool(measured.compute_microseconds) and is_alike


def reference_speed(spec: HulkJobSpec, measured: ObservedModel) -> float:
    """The speed, in FLOP/s, that the accelerator which was measured counts as: the best of its data sheet's curve.

    It decides no time there; it is what other products' curves compare with, also once no such machine is left.
    """
    found = look_up(measured.product or "")
    return found.peak(spec.training.precision) * found.eff_max if found else ROUND_FLOPS_PER_S


def reference_speeds(spec: HulkJobSpec, measured: ObservedModel | None, products: Mapping[str, str]) -> Speeds:
    """The speed of all nodes that have the product which was measured.

    Where none is left: of all nodes, unless data sheets can compare them.
    """
    if measured is None or not _is_timed(spec, measured):
        return {}
    alike = [node for node, product in products.items() if product == measured.product]
    if not alike and look_up(measured.product or "") is None:
        alike = list(products)
    return dict.fromkeys(alike, reference_speed(spec, measured))


def as_measured(plan: Plan, workload: Workload) -> tuple[Plan, Workload]:
    """A plan as its ranks will compute it: of a script that has a batch for each rank, all as much as was measured."""
    if workload.model.known is not Known.RANK:
        return plan, workload
    num = len(plan.shares)
    return replace(plan, shares=(1,) * num, micro_batch=1), replace(workload, global_batch=num)


def without_guesses(plan: Plan, workload: Workload) -> Plan:
    """A plan as it may be told of: where the model is a stand-in, guessed times and reasons with times are left out."""
    if workload.model.is_counted:
        return plan
    nothing = Prediction(0.0, 0.0, 0.0, plan.prediction.bottleneck, (), 0, calibrated=False)
    return replace(plan, why=_why(workload.model), prediction=nothing)


def _why(model: Model) -> tuple[str, str]:
    carried = f"all-reduces of {model.gradient_bytes} bytes"
    chosen = "spec.model is not given: machines are chosen by their links and speed for"
    if model.is_timed:
        return (
            f"{chosen} {carried} and the compute of rank 0, as first steps of this template measured.",
            "The step time follows from these; no memory is counted, for which spec.model is needed.",
        )
    is_assumed = model.num_parameters == ASSUMED_PARAMETERS
    source = "assumed until the first steps measure them" if is_assumed else "as its first steps measured"
    return (
        f"{chosen} {carried}, {source}.",
        "No memory is counted and no step time is predicted; spec.model makes both known.",
    )
