"""What is promised of a plan: the closed form where it holds, the simulation of a step where it may be off."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.cost.doubts import doubts
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.plan import Plan, Prediction
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


def foresee(plan: Plan, workload: Workload, topology: Topology) -> Prediction:
    """What one step of a plan takes; searches go by `predict`, which is quicker.

    KeyError when the plan names a machine that the topology lacks.
    """
    predicted = predict(plan, workload, topology)
    if not doubts(plan, workload, topology):
        return predicted
    step_s = simulate(plan, workload, topology).step_s
    passed_s = min(step_s, predicted.compute_s + predicted.bubble_s)
    bubble_s = max(0.0, passed_s - predicted.compute_s)
    return replace(predicted, step_s=step_s, bubble_s=bubble_s, communication_s=step_s - passed_s)
