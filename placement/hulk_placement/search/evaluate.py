"""Orders of machines on the one evaluator, without making a plan of each."""

from __future__ import annotations

from hulk_placement.cost.predict import allreduce
from hulk_placement.search.problem import Problem
from hulk_placement.search.sizes import compute_seconds
from hulk_placement.topology import LinkKind

Order = tuple[int, ...]
"""Machines by number, in rank order."""


def evaluate(problem: Problem, order: Order, num_buckets: int, num_steps: int = 1) -> float:
    """Seconds of a step in this order, where so many steps share one all-reduce."""
    compute_s = compute_seconds(problem, [problem.speed[m] for m in order])
    ranks = [problem.names[m] for m in order for _ in range(problem.workload.accelerators_per_worker)]
    ring_s, _ = allreduce(ranks, problem.workload.model.gradient_bytes, num_buckets, problem.topology)
    return compute_s + ring_s / num_steps


def links_known(problem: Problem, order: Order) -> bool:
    """Whether the order uses no link that the workload may not use."""
    names = [problem.names[m] for m in order]
    kinds = {problem.topology.link(names[worker], names[worker - 1]).kind for worker in range(len(names))}
    return problem.workload.allow_unknown_links or LinkKind.UNKNOWN not in kinds
