"""gloo's ring or Hulk's own all-reduce: the plan with the shorter step by the one evaluator, as the job allows."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.cost.compute import is_any_known
from hulk_placement.plan import Plan
from hulk_placement.search import why, why_wan
from hulk_placement.search.evaluate import Order
from hulk_placement.search.flows import NUM_BUCKETS, flows_of
from hulk_placement.search.making import make_plan
from hulk_placement.search.problem import Problem
from hulk_placement.search.region_sets import RegionSet, RegionSets
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.solution import Unplaced

MOST_PLANNED = 4
"""Sets of regions of which the flows are planned to choose between them."""


def choose(built: Problem, problem: Problem, ring: Plan | Unplaced, work: Work) -> Plan | Unplaced:
    """The better of the ring's plan and the best one of Hulk's own all-reduce, or the only one that the job admits.

    `problem` has the speeds that the search goes by, `built` those of the prediction.
    """
    sync = built.workload.sync
    pinned = _pinned(built)
    sets = RegionSets(problem, work)
    found = _best_wan(built, sets, ring, pinned)
    if found is None:
        return ring
    is_wan_asked = sync.mode in ("wan", "local") or sync.on_region_loss == "continue"
    if isinstance(ring, Plan):
        is_apart = len({slot.region for slot in ring.workers}) > 1
        if not (is_wan_asked and is_apart) and ring.prediction.step_s <= found.prediction.step_s:
            return _compared(built, sets, ring, ring, found, pinned is not None)
    return _compared(built, sets, found, ring, found, pinned is not None)


def _pinned(problem: Problem) -> Order | None:
    number = {name: machine for machine, name in enumerate(problem.names)}
    pins = problem.workload.pins
    return tuple(number[name] for name in pins) if pins and set(pins) <= number.keys() else None


def _best_wan(built: Problem, sets: RegionSets, ring: Plan | Unplaced, pinned: Order | None) -> Plan | None:
    """The best plan of the all-reduce over two or more regions."""
    if pinned is not None:
        return _planned(built, pinned, sets.work) if len({built.region_of[m] for m in pinned}) > 1 else None
    if built.workload.pins:
        return None
    regions = {slot.region for slot in ring.workers} if isinstance(ring, Plan) else set(built.regions)
    start = frozenset(number for number, region in enumerate(built.regions) if region in regions)
    promising = [known for known in sets.search(start) if len(known.regions) > 1]
    best: Plan | None = None
    for known in promising[:MOST_PLANNED]:
        if best is None or (known.floor_s < best.prediction.step_s and not sets.work.exhausted):
            found = _quickly_planned(built, known, sets.work)
            best = min(best or found, found, key=lambda plan: plan.prediction.step_s)
    if best is None:
        return None
    may_be_quick = built.workload.sync.on_region_loss == "restart"  # only the whole has ways around a lost region
    if may_be_quick and sets.work.exhausted:
        return best
    machine = {name: number for number, name in enumerate(built.names)}
    whole = _planned(built, tuple(machine[slot.machine] for slot in best.workers), sets.work)
    is_worse = whole.prediction.step_s > best.prediction.step_s  # time was up, and its ways are plain ones
    return best if may_be_quick and is_worse else whole


def _quickly_planned(problem: Problem, known: RegionSet, work: Work) -> Plan:
    """A plan in its best number of buckets, with flows of one bucket for all of them: enough to compare sets."""
    return _best_numbered(problem, known.order, _collective(problem, known.order, (1,), work, whole=False))


def _planned(problem: Problem, order: Order, work: Work) -> Plan:
    """The plan of these machines in its best number of buckets, with flows for all sizes."""
    return _best_numbered(problem, order, _collective(problem, order, _numbers(problem), work, whole=True))


def _best_numbered(problem: Problem, order: Order, collective: CollectivePlan) -> Plan:
    inner_steps = problem.workload.sync.planned_inner_steps
    plans = (make_plan(problem, order, number, collective, inner_steps) for number in _numbers(problem))
    return min(plans, key=lambda plan: plan.prediction.step_s)


def _numbers(problem: Problem) -> tuple[int, ...]:
    """Numbers of buckets: local SGD sums whole vectors."""
    return (1,) if problem.workload.sync.is_local else NUM_BUCKETS


def _collective(problem: Problem, order: Order, numbers: tuple[int, ...], work: Work, whole: bool) -> CollectivePlan:
    per_worker = problem.workload.accelerators_per_worker
    ranks = [problem.names[machine] for machine in order for _ in range(per_worker)]
    return flows_of(problem.workload, problem.topology, ranks, numbers, work.spend, whole)


def _compared(
    problem: Problem, sets: RegionSets, chosen: Plan, ring: Plan | Unplaced, wan: Plan, is_pinned: bool
) -> Plan:
    """The chosen plan with its gap to what no plan of either kind can beat, and the reasons."""
    plan = chosen if is_pinned else replace(chosen, optimality_gap=_gap(problem, sets, chosen, ring))
    if plan.collective is None:
        return replace(plan, why=(*why.unproven(plan), why_wan.against_wan(wan), *why.none_better(plan)))
    plan = replace(plan, iterations=max(sets.work.done, 1))
    return replace(plan, why=why_wan.sentences(problem, plan, ring, sets.work.exhausted))


def _gap(problem: Problem, sets: RegionSets, chosen: Plan, ring: Plan | Unplaced) -> float:
    """The share of the step that a better plan could save: by the ring's own bound and the floors of sets of regions.

    Where no speed is known only plans of as many workers are compared: those differ in communication alone, and of
    that nothing is proven here.
    """
    prediction, sync = chosen.prediction, problem.workload.sync
    if not is_any_known(problem.workload, problem.topology):
        return prediction.communication_s / prediction.step_s
    floor_s = sets.least_compute_s() if sync.is_local else sets.least_s()
    if isinstance(ring, Plan) and sync.mode == "auto":
        floor_s = min(floor_s, ring.prediction.step_s * (1 - ring.optimality_gap))
    return max(0.0, 1 - floor_s / prediction.step_s)
