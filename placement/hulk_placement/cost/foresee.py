"""What is promised of a plan: one step of it, simulated.

Searches go by the closed form; the last few plans are ranked by what is promised of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hulk_placement.cost.money import accelerators_per_s, judged
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.plan import Plan, Prediction, used_pairs
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

ROUNDING = 1 + 1e-9
"""Sums of seconds are exact to so much."""

LONGEST_STEP_S = 1e12
"""Of 30,000 years: what takes longer is a mistake in some figure, and its microseconds fit no status."""


def foresee(plan: Plan, workload: Workload, topology: Topology) -> Prediction:
    """What one step of a plan takes and costs; searches go by `predict`, which is quicker.

    KeyError when the plan names a machine that the topology lacks, ValueError where a step has no end.
    """
    predicted = predict(plan, workload, topology)
    if why := endless(plan, predicted, topology):
        raise ValueError(f"{plan.key}: {why}")
    simulated = simulate(plan, workload, topology)
    computed_s = float(simulated.ends_DP.max()) + simulated.step.held_s
    step_s, passed_s = simulated.step_s, max(predicted.compute_s, computed_s)
    return replace(
        predicted,
        step_s=step_s,
        bubble_s=passed_s - predicted.compute_s,
        communication_s=max(0.0, step_s - predicted.overhead_s - passed_s),
        tied_s=simulated.end_s - simulated.reduced_s,
        price=predicted.price + accelerators_per_s(plan, topology) * (step_s - predicted.step_s),
    )


def promising(
    plans: Sequence[Plan], workload: Workload, topology: Topology, left_s: Callable[[], float] = lambda: math.inf
) -> Plan:
    """The plan of which least is promised (`foresee`).

    The best by the closed form of those that there are no seconds left to look at, and of those that are alike.
    """
    by_formula = sorted(plans, key=lambda plan: judged(plan, workload))
    best, best_cost = by_formula[0], math.inf
    for plan in by_formula if len(plans) > 1 else ():
        if left_s() <= 0 or endless(plan, plan.prediction, topology):
            break
        cost = judged(replace(plan, prediction=foresee(plan, workload, topology)), workload)
        if cost < best_cost / ROUNDING:
            best, best_cost = plan, cost
    return best


def endless(plan: Plan, predicted: Prediction, topology: Topology) -> str:
    """Why no step of a plan is to be awaited, in words; empty where it has an end that one can speak of."""
    if predicted.step_s <= LONGEST_STEP_S:  # false of NaN, too
        return ""
    why = f"a step would take {predicted.step_s:.3g} s, {predicted.compute_s:.3g} s of them computing"
    rates = {pair: topology.link(*pair).one_flow_bytes_per_s for pair in used_pairs(plan)}
    if not rates:
        return why
    source, target = slowest = min(rates, key=rates.__getitem__)
    return f"{why}; its slowest link, {source} -> {target}, carries {rates[slowest]:.3g} B/s"
