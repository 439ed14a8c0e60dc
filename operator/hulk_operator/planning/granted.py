"""Grants -> plans: each job is planned on what it was granted, and on more where that cannot be carried out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hulk_placement.solve import Solution
from hulk_placement.split.together import less
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from hulk_operator.planning.contest import Grant
from hulk_operator.planning.process import Problem, Search


async def solved(
    search: Search, workloads: Iterable[Workload], topology: Topology, grants: Mapping[str, Grant]
) -> tuple[Problem, Solution]:
    """What was asked of the search, each job limited to what it was granted, and its answer."""
    asked = {workload.key: workload for workload in workloads}
    limited = {key: grants[key].limited(one) if key in grants else one for key, one in asked.items()}
    problem = Problem(tuple(limited.values()), topology)
    solution = await search.solve(problem)
    again = _second_try(problem, solution, grants, asked)
    if again is None:
        return problem, solution
    found = await search.solve(again)
    limited |= {workload.key: workload for workload in again.workloads}
    unplaced = {**solution.unplaced, **found.unplaced}
    left = {key: why for key, why in unplaced.items() if key not in found.plans}
    return Problem(tuple(limited.values()), topology), Solution({**solution.plans, **found.plans}, left)


def _second_try(
    problem: Problem, solution: Solution, grants: Mapping[str, Grant], asked: Mapping[str, Workload]
) -> Problem | None:
    """Jobs whose granted machines are free and yet give no plan, on all that others have no grant for.

    The policy does not know everything that the planner does: links that nobody measured, cpu that two jobs want.
    `asked`: the workloads as they were before their grants. None where there is no such job.
    """
    stuck = [key for key in solution.unplaced if key in grants and grants[key].is_free]
    if not stuck:
        return None
    taken: Counter[str] = Counter()
    for key, grant in grants.items():
        each = asked[key].accelerators_per_worker if key in asked and key not in stuck else 0
        taken.update({machine: num * each for machine, num in grant.machines.items()})
    workloads = (
        replace(asked[key], max_workers=max(asked[key].min_workers, sum(grants[key].machines.values())))
        for key in stuck
    )
    return Problem(tuple(workloads), less(problem.topology, taken))
