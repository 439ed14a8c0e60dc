"""Where the search for another plan begins: the plan that is carried out, and the machines that have run the job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.cost.foresee import endless, foresee
from hulk_placement.cost.pipelines import time_pipelines
from hulk_placement.cost.predict import predict
from hulk_placement.fit import misfits, unknown_links
from hulk_placement.plan import Plan
from hulk_placement.replan.changes import Changes
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import solve
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

Clock = Callable[[], float]


def as_it_is(plan: Plan, workload: Workload, topology: Topology, changed: Changes) -> Plan | str:
    """The plan as it is, predicted for the cluster as it is now; or in a sentence why it cannot go on."""
    if changed.lost:
        return "; ".join(map(str, changed.lost[:3])) + (", ..." if len(changed.lost) > 3 else "")
    mistakes = list(misfits(plan, workload, topology))
    if mistakes:
        return "; ".join(mistakes[:3])
    if not _fits_memory(plan, workload, topology):
        return "an accelerator of the plan has too little memory for it"
    if why := unknown_links(plan, workload, topology):
        return why
    return endless(plan, predict(plan, workload, topology), topology) or _promised(plan, workload, topology)


def candidates(
    plan: Plan, workload: Workload, topology: Topology, budget: Budget, clock: Clock = time.monotonic
) -> list[Plan] | Unplaced:
    """Plans to move to: the best of all machines, and the best of those that have run the job, as few new as may be.

    The topology counts the plan's own accelerators as free. Searches over layouts begin with the plan as well.
    Predictions are what is promised (`cost.foresee`). ValueError where a step of every one has no end.
    """
    end_s = clock() + budget.seconds
    best = _solved(workload, plan, topology, replace(budget, seconds=budget.seconds / 2), clock)
    if isinstance(best, Unplaced):
        return best
    found = [best]
    room = list(_rooms(plan, best, workload, topology))
    for number, slots in enumerate(room):
        seconds = max(0.01, (end_s - clock()) / (len(room) - number))
        kept = _solved(replace(workload, candidates=slots), plan, topology, replace(budget, seconds=seconds), clock)
        found += [] if isinstance(kept, Unplaced) else [kept]
    ending = [new for new in found if not endless(new, new.prediction, topology)]
    return [_promised(new, workload, topology) for new in ending or found]


def _promised(plan: Plan, workload: Workload, topology: Topology) -> Plan:
    return replace(plan, prediction=foresee(plan, workload, topology))


def _solved(workload: Workload, start: Plan, topology: Topology, budget: Budget, clock: Clock) -> Plan | Unplaced:
    solution = solve((workload,), (), topology, budget, clock, {workload.key: start})
    return solution.plans.get(workload.key) or solution.unplaced[workload.key]


def _rooms(plan: Plan, best: Plan, workload: Workload, topology: Topology) -> Iterator[dict[str, int]]:
    """Workers by machine: where the plan has some and still may; and of the best plan's as many more as were lost."""
    there = {machine.name: machine for machine in topology.machines}
    each = workload.accelerators_per_worker
    stays = Counter(
        {
            name: min(held, there[name].num_accelerators) // each
            for name, held in plan.accelerators().items()
            if name in there and workload.candidates.get(name, 0) > 0
        }
    )
    stays = +stays
    if stays.total() >= workload.min_workers:
        yield dict(stays)
    num_lost = plan.layout.num_ranks // each - stays.total()
    others = Counter({name: held // each for name, held in best.accelerators().items()}) - stays
    new = Counter(list(others.elements())[: max(0, num_lost)])
    if new:
        yield dict(stays + new)


def _fits_memory(plan: Plan, workload: Workload, topology: Topology) -> bool:
    memory = time_pipelines(plan, workload, topology).memory_DP
    return all(
        memory[replica, stage] <= (topology.machine(plan.machine(replica, stage)).memory_bytes or float("inf"))
        for replica in range(plan.layout.data)
        for stage in range(plan.layout.pipeline)
    )
