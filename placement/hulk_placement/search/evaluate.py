"""Orders of machines on the one evaluator, without making a plan of each."""

from __future__ import annotations

from hulk_placement.cost.predict import allreduce
from hulk_placement.search.problem import Problem
from hulk_placement.search.sizes import compute_seconds
from hulk_placement.topology import LinkKind

Order = tuple[int, ...]
"""Machines by number, in rank order."""


def evaluate(problem: Problem, order: Order, num_buckets: int) -> tuple[float, int]:
    """Seconds of a step in this order, and the worker whose edge to the one before it is the ring's worst."""
    compute_s = compute_seconds(problem, [problem.speed[m] for m in order])
    names = [problem.names[m] for m in order]
    ranks = [name for name in names for _ in range(problem.workload.accelerators_per_worker)]
    ring_s, worst = allreduce(ranks, problem.workload.model.gradient_bytes, num_buckets, problem.topology)
    edges = [(names[worker], names[worker - 1]) for worker in range(len(names))]
    return compute_s + ring_s, edges.index(worst) if worst in edges else 0


def links_known(problem: Problem, order: Order) -> bool:
    """Whether the order uses no link that the workload may not use."""
    names = [problem.names[m] for m in order]
    kinds = {problem.topology.link(names[worker], names[worker - 1]).kind for worker in range(len(names))}
    return problem.workload.allow_unknown_links or LinkKind.UNKNOWN not in kinds
