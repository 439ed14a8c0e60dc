"""What the ranks of a gang measured before or in its first steps -> each node's speed, and the prediction for it."""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from statistics import median

from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.known import work
from hulk_placement.plan import Plan

from hulk_operator.inputs import topology as inputs
from hulk_operator.observe import Preflight
from hulk_operator.planning.inventory import Reader
from hulk_operator.reconcile.summary import prediction_summary
from hulk_operator.reconcile.types import Calibration, View


async def calibrate(reader: Reader, view: View, preflight: Preflight, now: datetime) -> Calibration | None:
    """The prediction and the speeds; None when what was measured does not fit the plan or the nodes there are."""
    plan = view.full.plan if view.full else None
    if plan is None or len(preflight.compute_s) != len(plan.shares):
        return None
    inventory = await reader.inventory((), now)
    resource = view.job.spec.workers.resource_name
    topology = inventory.topology(resource)
    if not set(plan.rank_machines) <= {machine.name for machine in topology.machines}:
        return None
    workload = await reader.workload(view.job, inventory)
    speeds, micro_batch = _speeds(plan, preflight, work(workload)), min(plan.micro_batch, *plan.shares)
    measured = replace(
        workload,
        flops_per_s={**workload.flops_per_s, **speeds},
        measured_micro_batch={**workload.measured_micro_batch, **dict.fromkeys(speeds, micro_batch)},
    )
    prediction = foresee(plan, measured, topology)
    products = inputs.products(inventory.room, resource)
    return Calibration(
        attempt=plan.attempt,
        prediction=prediction_summary(prediction, plan.attempt, "preflight", now),
        workload=workload.digest,
        flops_per_s=speeds,
        micro_batch=micro_batch,
        products={machine: products[machine] for machine in speeds},
        new=frozenset(speeds.keys() - workload.flops_per_s.keys()),
    )


def _speeds(plan: Plan, preflight: Preflight, flops_per_sequence: float) -> dict[str, float]:
    """FLOP/s of one accelerator of each machine in this gang: the median over its ranks.

    A step waits for whoever is slowest in it. Where that takes longer than the slowest median, because times vary, all
    speeds are less by that much: so the slowest machine's share takes what the slowest rank of a step really takes.
    """
    waiting = max(1.0, preflight.slowest_s / max(preflight.compute_s))
    found: dict[str, list[float]] = defaultdict(list)
    for machine, share, compute_s in zip(plan.rank_machines, plan.shares, preflight.compute_s, strict=True):
        found[machine].append(share * flops_per_sequence / (compute_s * waiting))
    return {machine: median(values) for machine, values in found.items()}
