"""The sentence that names what a step takes in local SGD's warm-up and after it."""

from __future__ import annotations

from hulk_placement.cost.warm_up import predict_warm_up, steps_left
from hulk_placement.plan import Plan
from hulk_placement.search.problem import Problem
from hulk_placement.words import counted


def sentences(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """None where the plan has no warm-up."""
    num_steps = steps_left(plan, problem.workload)
    if not num_steps:
        return ()
    step_s = predict_warm_up(plan, problem.workload, problem.topology).step_s
    return (
        f"The first {counted(num_steps, 'step')} are the warm-up, in which gradients are summed in every step: "
        f"{step_s:.3f} s a step, {plan.prediction.step_s:.3f} s after it.",
    )
