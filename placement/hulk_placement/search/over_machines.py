"""Rings over single machines, where there are few enough: the quickest, and all of them."""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.search.choice import one_machine
from hulk_placement.search.evaluate import Order, evaluate
from hulk_placement.search.graph import machine_graph
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.few import MAX_SLOTS, quickest_ring
from hulk_placement.search.ring.machines import best_order
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.sizes import NUM_BUCKETS, planned_size

MAX_EXACT_SLOTS = 24
"""Up to this many worker slots enumerating the rings over machines is tried, on half of the work that is left."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Machines in rank order, and how many buckets."""

    order: Order
    num_buckets: int
    step_s: float


def candidate(problem: Problem, order: Order, num_buckets: int) -> Candidate:
    """The order with the seconds of its step."""
    return Candidate(order, num_buckets, evaluate(problem, order, num_buckets))


def quickest(problem: Problem, best: Candidate, bound_s: float, work: Work) -> tuple[Candidate, float]:
    """The better of the candidate and the rings whose slowest edge is quickest, and the bound that these raise.

    No ring of as many workers has a quicker edge, nor machines that compute faster than the fastest.
    """
    if sum(problem.useful_slots) > MAX_SLOTS:
        return best, bound_s
    graph = machine_graph(problem)
    least_s = [choice.step_s for choice in one_machine(problem)]
    for num_workers, num_buckets in _sizes(problem):
        size = planned_size(problem, num_workers, num_buckets)
        compute_s = size.compute_s(problem.slot_speeds[:num_workers])
        found = quickest_ring(graph, size.ring, num_workers, best.step_s - compute_s, work)
        if found is not None:
            order, edge_s = found
            least_s.append(compute_s + max(edge_s, size.inside_s))
            best = min(best, candidate(problem, order, num_buckets), key=lambda made: made.step_s)
    return best, bound_s if work.exhausted else max(bound_s, min([best.step_s, *least_s]))


def tried_all(problem: Problem, best: Candidate, bound_s: float, work: Work) -> tuple[Candidate, float]:
    """The best of all rings, and its own seconds as the bound where half of the work is enough to try them."""
    if work.exhausted or sum(problem.num_slots) > MAX_EXACT_SLOTS:
        return best, bound_s
    half = work.part((work.limit - work.done) // 2)
    graph = machine_graph(problem)
    for num_workers, num_buckets in _sizes(problem):
        found = best_order(graph, planned_size(problem, num_workers, num_buckets), best.step_s, half)
        if found is not None:
            best = Candidate(found[0], num_buckets, found[1])
    work.add(half)
    return best, bound_s if half.exhausted else best.step_s


def _sizes(problem: Problem) -> list[tuple[int, int]]:
    """Numbers of two or more workers, with each number of buckets."""
    first = max(2, problem.workload.min_workers)
    return [(num, buckets) for num in range(first, problem.max_workers + 1) for buckets in NUM_BUCKETS]
