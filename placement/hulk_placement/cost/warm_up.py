"""Steps of local SGD's warm-up: gradients are summed in every one of them, so they take longer than a round's."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.cost.predict import predict
from hulk_placement.plan import Plan, Prediction
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


def steps_left(plan: Plan, workload: Workload, num_made: int = 0) -> int:
    """Steps of the warm-up that a plan has still to make, after so many steps of the training."""
    return max(0, workload.sync.rounds.warmup_steps - num_made) if plan.inner_steps is not None else 0


def predict_warm_up(plan: Plan, workload: Workload, topology: Topology) -> Prediction:
    """What one step of a plan's warm-up takes. KeyError when the plan names a machine that the topology lacks.

    Scripts sum it exactly, whatever the rounds that follow send; Hulk's own loop, which never overlaps, sends the same.
    """
    flows = plan.collective
    if flows is not None and workload.sync.rounds.may_overlap:
        flows = replace(flows, compression="none")
    together = replace(plan, collective=flows, inner_steps=None, fragments=1, delay_steps=0)
    return predict(together, workload, topology)
