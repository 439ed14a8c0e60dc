"""One workload to one plan of any layout: which machines may be used, the search, the transport, the reasons."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.cost.foresee import ROUNDING, promising
from hulk_placement.cost.layer_sums import are_by_layer
from hulk_placement.cost.money import judged
from hulk_placement.layouts import portfolio, reasons
from hulk_placement.layouts.admission import accelerators_needed, admitted
from hulk_placement.layouts.beginning import begin_at
from hulk_placement.layouts.directions import turned
from hulk_placement.layouts.fitting import try_fitting
from hulk_placement.layouts.joined import unjoined
from hulk_placement.layouts.ordering import plan_timing_s, reordered, trial_timing_s
from hulk_placement.layouts.own_links import exchanged, finalists
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.reducing import flows_s, ways, with_all_flows
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.plan import Plan
from hulk_placement.schedule.found import DEFAULT_S
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.why import stopped
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

Search = Callable[[Trials, Space, Callable[[], bool], int], None]
"""Workload and machines, what may be tried, whether to go on, and a seed."""

SEARCH_SHARE = 0.85
"""Of the seconds, at most; the others are for making plans of what was found."""

LEAST_SHARE = 0.5
"""Of the seconds: what is left for searching where the best layout's order of blocks, or its flows, take long."""

PLANS_SHARE = 0.95
"""When so much of the seconds is over nothing is begun any more that can be left out."""

SCHEDULE_SHARE = 0.05
"""Of the seconds, for the order of the best plan's blocks, and no more than a schedule's search takes by itself."""

NUM_PLANNED = 4
"""Layouts of which plans are made, to choose between by what they are predicted."""


def place(
    workload: Workload,
    topology: Topology,
    budget: Budget,
    clock: Callable[[], float] = time.monotonic,
    search: Search = portfolio.search,
    start: Plan | None = None,
) -> Plan | Unplaced:
    """The best plan of any layout that the search finds within the budget, or why there is none.

    `start` is a plan that is carried out already: what can be kept of it is tried first.
    """
    start_s = clock()
    machines = admitted(workload, topology)
    if isinstance(machines, Unplaced):
        return machines
    trials = Trials(Ground.of(workload, topology, machines))
    apart = unjoined(trials.ground, accelerators_needed(workload))
    if apart is not None:
        return apart
    space = space_of(trials.ground)
    least_s, end_s, last_s = (start_s + share * budget.seconds for share in (LEAST_SHARE, SEARCH_SHARE, PLANS_SHARE))

    def finished_s() -> float:
        now_s = clock()
        return now_s if now_s < least_s else now_s + _finishing_s(trials)

    # An iteration is what is done between two questions whether to go on: some evaluate nothing, some a thousand moves.
    work = Work.begun(budget, workload, sys.maxsize, start_s, end_s - start_s, finished_s)

    def going_on() -> bool:
        work.found(trials.best_cost)
        return trials.num_evaluations < budget.iterations and work.spend()

    if start is not None:
        begin_at(trials, space, start)
    search(trials, space, going_on, budget.seed)
    schedule_s = min(DEFAULT_S, SCHEDULE_SHARE * budget.seconds) if budget.seconds < math.inf else None
    found = best_plan(trials, space, lambda: last_s - clock(), schedule_s, budget.seed)
    said = stopped(work, end_s - start_s)
    return replace(found, why=(*found.why, *said)) if isinstance(found, Plan) else found


def _finishing_s(trials: Trials) -> float:
    """Seconds that the order of the best layout's blocks, or the flows between its regions, will take."""
    best, ground = trials.cheapest, trials.ground
    return max(trial_timing_s(best, ground.workload), flows_s(best, ground)) if best is not None else 0.0


def best_plan(
    trials: Trials,
    space: Space,
    left_s: Callable[[], float],
    schedule_s: float | None = None,
    seed: int = 0,
) -> Plan | Unplaced:
    """The best by what it is predicted of the best layouts tried, or why there is none.

    `left_s`: seconds that are left. `schedule_s`: for the order of the best one's blocks; None: greedy orders alone.
    The others get one as far as there is time left.
    """
    workload, topology = trials.ground.workload, trials.ground.topology
    if not trials.best_possible(1):
        try_fitting(trials, space)
    possible = trials.best_possible(NUM_PLANNED) if trials.knows_links else finalists(trials, NUM_PLANNED, left_s)
    found = []
    for number, trial in enumerate(possible):
        made = ways(plan_of(trials, trial), workload, topology, left_s, is_best=not number)
        plan = min(made, key=partial(judged, workload=workload), default=None)
        if plan is not None:
            if trials.ground.has_own_links:
                plan = exchanged(plan, trials.ground, left_s)
            plan = turned(plan, workload, topology, left_s)
            found.append(reordered(plan, workload, topology) if plan_timing_s(plan) < left_s() else plan)
    if not found:
        return reasons.impossible(trials, space)
    best = promising(found, workload, topology, left_s)
    best_cost = judged(best, workload)
    best = with_all_flows(best, workload, topology, left_s)
    if schedule_s is not None and plan_timing_s(best) < left_s():
        best = reordered(best, workload, topology, schedule_s, seed)
    # The search weighs neither two-level all-reduces nor orders of blocks, and of layers' sums the mean one.
    is_in_buckets = not are_by_layer(workload, best.layout.width, best.inner_steps)
    is_known = trials.knows_links and workload.sync.mode == "ring" and best.schedule != "explicit" and is_in_buckets
    reached = judged(best, workload)
    is_proven = trials.is_proven and is_known and best_cost <= min(judged(plan, workload) for plan in found) * ROUNDING
    floor = max(reasons.least_cost(trials, space), trials.proven_cost if is_known else 0.0)
    gap = 0.0 if is_proven or not reached else max(0.0, 1 - floor / reached)
    best = replace(best, iterations=trials.num_evaluations, optimality_gap=gap)
    return replace(best, why=reasons.sentences(trials, best))
