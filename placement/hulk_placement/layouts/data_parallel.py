"""Plans of data parallelism alone, where each rank holds the whole model: what every search for them finds, the best.

With equal shares the search over rings is exact over regions. With shares by speed, for money, and where machines have
links of their own it is not: there the search over layouts, of one stage and one rank a replica, looks as well, and the
evaluator decides. What no plan can beat is known from floors that hold for all shares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hulk_placement.cost.compute import speeds
from hulk_placement.cost.foresee import ROUNDING
from hulk_placement.cost.money import judged
from hulk_placement.layouts import place as layouts
from hulk_placement.plan import Plan
from hulk_placement.search.keep import place_keeping
from hulk_placement.search.streaming import TOLERATED
from hulk_placement.search.why import none_better, unproven
from hulk_placement.search.wished import place_wished
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.sync import Sync
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

LAYOUT_SHARE = 1 / 3
"""Of iterations and seconds, for the search over layouts."""


def place_replicas(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float] = time.monotonic
) -> Plan | Unplaced:
    """The best plan of one stage and one rank a replica, or why there is none."""
    workload = replace(workload, pipeline=1, tensor=1)
    if len(workload.sync.precisions) > 1:
        return _place_most_exact(workload, topology, budget, clock)
    search_rings = place_wished if workload.goes_by_prices else place_keeping
    if not _has_layouts(workload, topology):
        return search_rings(workload, topology, budget, clock)
    found = search_rings(workload, topology, _part(budget, 1 - LAYOUT_SHARE), clock)
    if isinstance(found, Unplaced) or not found.optimality_gap:
        return found
    ring = replace(workload, sync=Sync("ring"), recompute=False)  # the layouts' other transports are not run
    other = layouts.place(ring, topology, _part(budget, LAYOUT_SHARE), clock)
    if isinstance(other, Unplaced) or judged(other, workload) * ROUNDING >= judged(found, workload):
        return found
    least = (1 - found.optimality_gap) * judged(found, workload)
    other = replace(other, optimality_gap=max(0.0, 1 - least / judged(other, workload)))
    return replace(other, why=(*unproven(other), *none_better(other, workload.objective)))


def _place_most_exact(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]
) -> Plan | Unplaced:
    """The plan whose outer gradients lose least, of those within TOLERATED of the best of any precision.

    Fewer bytes save nothing where all machines that may take part wait for nothing. Each search has an even part of the
    seconds that those before it left.
    """
    precisions, found, end_s = workload.sync.precisions, list[Plan | Unplaced](), clock() + budget.seconds
    for number, compression in enumerate(precisions):
        rounds = replace(workload.sync.rounds, any_precision=False)
        asked = replace(workload, sync=replace(workload.sync, compression=compression, rounds=rounds))
        seconds = max(0.0, end_s - clock()) / (len(precisions) - number)
        part = replace(_part(budget, 1 / len(precisions)), seconds=seconds)
        plan = place_replicas(asked, topology, part, clock)
        found.append(plan)
        if isinstance(plan, Unplaced) or _is_hidden(plan, workload):
            break
    plans = [plan for plan in found if isinstance(plan, Plan)]
    if not plans:
        return found[0]
    enough = min(judged(plan, workload) for plan in plans) / (1 - TOLERATED)
    return next(plan for plan in plans if judged(plan, workload) <= enough)


def _is_hidden(plan: Plan, workload: Workload) -> bool:
    return len(plan.workers) == workload.max_workers and plan.prediction.utilisation >= 1 - TOLERATED


def best_of(plans: Sequence[Plan], workload: Workload) -> Plan:
    """The best of plans that were looked for among different layouts, with its gap to what none of all can beat."""
    best = min(plans, key=lambda plan: judged(plan, workload))
    reached = judged(best, workload)
    least = min((1 - plan.optimality_gap) * judged(plan, workload) for plan in plans)
    gap = 0.0 if least * ROUNDING >= reached else 1 - least / reached
    if gap == best.optimality_gap:
        return best
    best = replace(best, optimality_gap=gap)
    return replace(best, why=(*unproven(best), *none_better(best, workload.objective)))


def _part(budget: Budget, share: float) -> Budget:
    return replace(budget, iterations=max(1, int(budget.iterations * share)), seconds=budget.seconds * share)


def _has_layouts(workload: Workload, topology: Topology) -> bool:
    """Whether the search over layouts knows plans that the other one may miss, and all that the workload asks for."""
    sync, names = workload.sync, workload.candidates.keys() & {machine.name for machine in topology.machines}
    is_uneven = workload.shares == "planned" and len({*speeds(workload, topology, sorted(names)).values()}) > 1
    is_inexact = is_uneven or workload.goes_by_prices or bool(topology.node_links)
    is_ring = sync.mode in ("auto", "ring") and sync.on_region_loss == "restart"
    return is_inexact and is_ring and workload.accelerators_per_worker == 1 and not workload.pins and not workload.kept
