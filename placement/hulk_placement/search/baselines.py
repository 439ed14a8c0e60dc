"""The orders a plan must beat: what one would do without a planner. Each takes as many workers as it may.

`BASELINES` are where every search starts, so that no plan is worse. Name order is not among them: the names of machines
must not change a plan.
"""

from __future__ import annotations

from collections.abc import Callable

from hulk_placement.search.problem import Problem

Order = tuple[int, ...]


def region_order(problem: Problem) -> Order:
    """Region after region, the machines of each as they are listed."""
    by_region = sorted(range(len(problem.names)), key=lambda m: (problem.region_of[m], m))
    return _fill(problem, by_region)


def name_order(problem: Problem) -> Order:
    """By machine name."""
    return _fill(problem, sorted(range(len(problem.names)), key=lambda m: problem.names[m]))


def greedy_order(problem: Problem) -> Order:
    """From the first machine always to the nearest (least round trip) machine left, ties to the first listed."""
    left = list(problem.num_slots)
    here = next(m for m, slots in enumerate(left) if slots)
    flow = [here]
    left[here] -= 1
    while len(flow) < problem.max_workers:
        source = problem.names[flow[-1]]
        candidates = [m for m, slots in enumerate(left) if slots]
        here = min(candidates, key=lambda m: problem.topology.link(source, problem.names[m]).rtt_s)
        flow.append(here)
        left[here] -= 1
    return tuple(flow[::-1])


BASELINES: dict[str, Callable[[Problem], Order]] = {
    "region": region_order,
    "greedy": greedy_order,
}


def _fill(problem: Problem, machines: list[int]) -> Order:
    slots = [machine for machine in machines for _ in range(problem.num_slots[machine])]
    return tuple(slots[: problem.max_workers])
