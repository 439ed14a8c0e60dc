"""How many workers, where a round's sums overlap training: by the prediction, which counts what is hidden.

The search over rings adds a round's sum to its steps. Where the sum is hidden the best plan may have fewer workers,
which compute for as long as their sums take. So the fastest workers of each region are predicted in every number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hulk_placement.plan import Plan
from hulk_placement.search.evaluate import Order, links_known
from hulk_placement.search.making import make_plan
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.region_sets import RegionSets, spread
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.sizes import compute_seconds
from hulk_placement.solution import Unplaced


def best_size(problem: Problem, plan: Plan, work: Work) -> tuple[Plan, Problem | None]:
    """The best of the plan and those of the fastest workers of one region; where it is another, the problem of it.

    That problem has the region's machines and the number of workers, for a search among their rings.
    """
    num_steps, best = problem.workload.sync.planned_inner_steps, plan
    for order in _orders(problem):
        compute_s = compute_seconds(problem, [problem.speed[machine] for machine in order])
        if compute_s < best.prediction.step_s and links_known(problem, order) and work.spend():
            found = make_plan(problem, order, plan.num_buckets, inner_steps=num_steps)
            best = min(best, found, key=lambda made: made.prediction.step_s)
    if best is plan:
        return plan, None
    num, region = len(best.workers), best.workers[0].region
    asked = replace(problem.workload, regions=(region,), min_workers=num, max_workers=num)
    among = build(asked, problem.topology)
    return best, None if isinstance(among, Unplaced) else among


def least_step_s(problem: Problem, bound_s: float, work: Work) -> float:
    """Seconds below which no step is, where none is below `bound_s` that adds its part of a sum to its computation.

    A step takes the longer one of both at least, which is no less than half of them together.
    """
    return max(RegionSets(problem, work).least_compute_s(), bound_s / 2)


def _orders(problem: Problem) -> Iterator[Order]:
    """The fastest workers of each region, the most first."""
    for slots in problem.slots_by_region:
        least, most = problem.workload.min_workers, min(len(slots), problem.max_workers)
        for num in reversed(spread(least, most)) if least <= most else ():
            yield tuple(sorted(slots[:num]))
