"""Grants -> plans: each job is planned on what it was granted, and on more where that cannot be carried out.

Whatever was decided, nobody is planned beyond what its namespace's quota leaves at the moment.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hulk_placement.fleet.quotas import Quotas
from hulk_placement.plan import Plan
from hulk_placement.solution import Solution, Unplaced, precedence
from hulk_placement.topology import Topology, less
from hulk_placement.workload import Workload

from hulk_operator import names
from hulk_operator.planning.process import Problem, Search
from hulk_operator.planning.queue_decision import QUEUED, QUOTA_TOO_SMALL, Grant


async def solved(
    search: Search,
    workloads: Iterable[Workload],
    topology: Topology,
    grants: Mapping[str, Grant],
    quotas: Quotas,
    exempt: Collection[str] = (),
) -> tuple[Problem, Solution]:
    """What was asked of the search, each job limited to what it was granted and to its quota, and its answer.

    Jobs of a namespace share its quota by priority, then by age. What one does not use, or finds no machines for, the
    next ones are tried with. `exempt`: jobs that another queue's quotas are for.
    """
    asked = {one.key: one for one in workloads}
    limited = {key: grants[key].limited(one) if key in grants else one for key, one in asked.items()}
    waiting, left = list(limited.values()), quotas.copy()
    plans: dict[str, Plan] = {}
    unplaced: dict[str, Unplaced] = {}
    while waiting:
        admitted, refused = _admitted(waiting, left.copy(), exempt)
        unplaced |= refused
        waiting = [one for one in waiting if one.key in refused]
        if not admitted:
            break
        held = Counter(
            slot.machine for plan in plans.values() for slot in plan.workers for _ in range(slot.num_accelerators)
        )
        problem, solution = await _on_grants(search, admitted, less(topology, held), grants, asked)
        limited |= {one.key: one for one in problem.workloads}
        plans |= solution.plans
        unplaced |= solution.unplaced
        for key, plan in solution.plans.items():
            if key not in exempt:
                left.take(names.namespace_of(key), _new_accelerators(asked[key], len(plan.workers)))
    unplaced = {key: why for key, why in unplaced.items() if key not in plans}
    return Problem(tuple(limited.values()), topology), Solution(plans, unplaced)


def _admitted(
    waiting: Iterable[Workload], left: Quotas, exempt: Collection[str]
) -> tuple[list[Workload], dict[str, Unplaced]]:
    """Those of which the quotas admit the least, with no more workers than they admit, and why not the others."""
    admitted, refused = [], {}
    for one in sorted(waiting, key=precedence):
        if one.key in exempt:
            admitted.append(one)
            continue
        namespace, each = names.namespace_of(one.key), one.accelerators_per_worker
        most = min(one.max_workers, left.workers(namespace, each) + sum(one.kept.values()))
        if most >= one.min_workers:
            left.take(namespace, _new_accelerators(one, most))
            admitted.append(replace(one, max_workers=most))
        else:
            ever = left.is_ever_enough(namespace, one.min_workers, each)
            lack = f"It waits: {left.lack(namespace, one.min_workers, each)}."
            refused[one.key] = Unplaced(QUEUED if ever else QUOTA_TOO_SMALL, lack)
    return admitted, refused


def _new_accelerators(one: Workload, num_workers: int) -> int:
    """What so many workers take beside the pods that stay for them, which count already."""
    return max(0, num_workers - sum(one.kept.values())) * one.accelerators_per_worker


async def _on_grants(
    search: Search,
    workloads: Sequence[Workload],
    topology: Topology,
    grants: Mapping[str, Grant],
    asked: Mapping[str, Workload],
) -> tuple[Problem, Solution]:
    """What was asked of the search, and its answer. `asked`: the workloads as they were before their grants."""
    limited = {one.key: one for one in workloads}
    problem = Problem(tuple(workloads), topology)
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
