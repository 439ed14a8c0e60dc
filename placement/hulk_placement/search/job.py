"""One workload to one plan: problem, search, arrangement, improvement, proof, plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.cost.compute import SLOWEST_FLOPS_PER_S, is_any_known
from hulk_placement.plan import Plan, Prediction
from hulk_placement.search import round_sizes, uneven, why
from hulk_placement.search.arrange import arrange
from hulk_placement.search.baselines import BASELINES
from hulk_placement.search.choice import Choice, one_machine
from hulk_placement.search.evaluate import Order, evaluate, links_known
from hulk_placement.search.graph import region_graphs
from hulk_placement.search.making import make_plan
from hulk_placement.search.over_machines import Candidate, candidate, quickest, tried_all
from hulk_placement.search.pins import pinned_order
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.sizes import NUM_BUCKETS
from hulk_placement.search.transport import choose
from hulk_placement.search.workers import WorkerSearch
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MOVES_SHARE = 0.1
"""Of the work that is left, for moves of single workers: Hulk's own all-reduce is looked at with the rest."""

SEARCH_SHARE = 0.9
"""Of the seconds; the others are for making the plan of what was found."""


def place(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float] = time.monotonic
) -> Plan | Unplaced:
    """The best plan found within the budget, with the proven gap to the best possible; or why there is none."""
    built = build(workload, topology)
    if isinstance(built, Unplaced):
        return built
    problem = (
        built if is_any_known(workload, topology) else replace(built, speed=(SLOWEST_FLOPS_PER_S,) * len(built.speed))
    )
    search_s = SEARCH_SHARE * budget.seconds
    num_inner = workload.sync.planned_inner_steps or 1
    work = Work.begun(budget, workload, budget.iterations, clock(), search_s, clock, num_inner)
    ring = _place_pinned(built) if workload.pins else _place_ring(built, problem, budget.seed, work)
    found = ring if workload.sync.mode == "ring" else choose(built, problem, ring, work)
    return replace(found, why=(*found.why, *why.stopped(work, search_s))) if isinstance(found, Plan) else found


def _place_ring(built: Problem, problem: Problem, seed: int, work: Work) -> Plan | Unplaced:
    """The best ring; `problem` has the speeds that the search goes by, `built` those of the prediction.

    With local SGD a step bears its part of an all-reduce. The order of steps is that of so many of them together: of
    one on machines that are as many times slower.
    """
    num_steps = problem.workload.sync.planned_inner_steps or 1
    spaced = replace(problem, speed=tuple(speed / num_steps for speed in problem.speed))
    best, bound_s = _best(spaced, seed, work)
    if best is None:
        return why.not_found(problem, work.done) if work.incomplete else why.no_ring(problem)
    found = _plan(built, best, (best.step_s - bound_s) / num_steps, work.done)
    sync = problem.workload.sync
    if not (sync.is_local and sync.rounds.may_overlap and is_any_known(problem.workload, problem.topology)):
        return found
    return _overlapping(built, found, bound_s / num_steps, seed, work)


def _overlapping(built: Problem, found: Plan, bound_s: float, seed: int, work: Work) -> Plan:
    """The best by its prediction of the plan and those of other numbers of workers; by the search no sum is hidden."""
    plan, among = round_sizes.best_size(built, found, work)
    if among is not None and not work.exhausted:
        num_steps = built.workload.sync.planned_inner_steps
        other, _ = _best(replace(among, speed=tuple(speed / (num_steps or 1) for speed in among.speed)), seed, work)
        if other is not None:
            ring = make_plan(among, other.order, other.num_buckets, inner_steps=num_steps)
            plan = min(plan, ring, key=lambda made: made.prediction.step_s)
    least_s = round_sizes.least_step_s(built, bound_s, work)
    return _explained(built, plan, plan.prediction.step_s - least_s, work.done)


def _best(problem: Problem, seed: int, work: Work) -> tuple[Candidate | None, float]:
    """The best ring, and the seconds below which no step can be."""
    return _best_uneven(problem, seed, work) if problem.is_uneven else _best_equal(problem, work)


def _best_equal(problem: Problem, work: Work) -> tuple[Candidate | None, float]:
    """The best ring with equal shares, and the seconds below which no step can be."""
    plain = list(_baselines(problem))
    choices, bound_s = _search(problem, work)
    best = min([*_arranged(problem, choices), *plain], key=lambda found: found.step_s, default=None)
    return (best, bound_s) if best is None else _improve(problem, best, bound_s, work)


def _best_uneven(problem: Problem, seed: int, work: Work) -> tuple[Candidate | None, float]:
    """The best ring with shares by speed, made better worker by worker, and what no shares and no ring can beat."""
    starts = [*_baselines(problem), *_like_equal(problem, work)]
    best = min((start for start in starts if links_known(problem, start.order)), key=lambda s: s.step_s, default=None)
    if best is None:
        return None, 0.0
    work.found(best.step_s)
    alone_s = min((choice.step_s for choice in one_machine(problem)), default=best.step_s)
    bound_s = uneven.least_step_s(problem, region_graphs(problem).optimistic, min(best.step_s, alone_s), work)
    best, bound_s = quickest(problem, best, bound_s, work)
    if best.step_s > bound_s:
        best = _moved(problem, best, seed, work)
        best, bound_s = tried_all(problem, best, bound_s, work)
    return best, bound_s


def _like_equal(problem: Problem, work: Work) -> Iterator[Candidate]:
    """The best rings with equal shares, and with machines that are all as fast as their mean.

    Each search has a third of the work that is left.
    """
    for like in (uneven.equal(problem), uneven.levelled(problem)):
        part = work.part((work.limit - work.done) // 3)
        found, _ = _best_equal(like, part)
        work.add(part)
        if found is not None:
            orders = {found.order, uneven.quickened(problem, found.order)}
            yield from (candidate(problem, order, found.num_buckets) for order in sorted(orders))


def _moved(problem: Problem, best: Candidate, seed: int, work: Work) -> Candidate:
    """The better of the candidate and what moves of single workers make of it."""
    part = work.part(round((work.limit - work.done) * (MOVES_SHARE if problem.workload.sync.may_use_wan else 1)))
    for num_buckets in NUM_BUCKETS:

        def step_s(order: Order, num_buckets: int = num_buckets) -> float:
            part.found(found_s := evaluate(problem, order, num_buckets))
            return found_s

        moved = uneven.moved(problem, best.order, step_s, seed, part)
        best = min(best, candidate(problem, moved, num_buckets), key=lambda found: found.step_s)
    work.add(part)
    return best


def _place_pinned(problem: Problem) -> Plan | Unplaced:
    order = pinned_order(problem)
    if isinstance(order, Unplaced):
        return order
    best = min((candidate(problem, order, buckets) for buckets in NUM_BUCKETS), key=lambda found: found.step_s)
    return _plan(problem, best, 0.0, iterations=len(NUM_BUCKETS))


def _search(problem: Problem, work: Work) -> tuple[list[Choice], float]:
    """What searches over regions chose, and the seconds below which no step can be."""
    graphs = region_graphs(problem)
    optimistic = WorkerSearch(problem, graphs.optimistic, work)
    if graphs.alike:
        choice, bound_s = optimistic.run()
        return [choice] if choice else [], bound_s
    typical = WorkerSearch(problem, graphs.typical, work)
    started = typical.start()  # the other search may take all the time, and count on links that few machines have
    choice, bound_s = optimistic.run()
    return [found for found in (choice, started, typical.run()[0]) if found], bound_s


def _arranged(problem: Problem, choices: list[Choice]) -> Iterator[Candidate]:
    """The choices, and the best that needs no link, with machines in them."""
    alone = min(one_machine(problem), key=lambda choice: choice.step_s, default=None)
    for choice in [*choices, alone] if alone else choices:
        yield candidate(problem, arrange(problem, choice), choice.num_buckets)


def _baselines(problem: Problem) -> Iterator[Candidate]:
    """The orders that no plan may be worse than."""
    for baseline in BASELINES.values():
        order = baseline(problem)
        if links_known(problem, order):
            yield from (candidate(problem, order, buckets) for buckets in NUM_BUCKETS)


def _improve(problem: Problem, best: Candidate, bound_s: float, work: Work) -> tuple[Candidate, float]:
    """The better of the candidate and the rings over single machines, and the bound it is measured against."""
    if best.step_s > bound_s:
        best, bound_s = quickest(problem, best, bound_s, work)
    if best.step_s > bound_s:
        best, bound_s = tried_all(problem, best, bound_s, work)
    return best, bound_s


def _plan(problem: Problem, best: Candidate, saved_s: float, iterations: int) -> Plan:
    """The plan of the best found; a better one could save so many seconds of a step."""
    made = make_plan(problem, best.order, best.num_buckets, inner_steps=problem.workload.sync.planned_inner_steps)
    return _explained(problem, made, saved_s, iterations)


def _explained(problem: Problem, made: Plan, saved_s: float, iterations: int) -> Plan:
    """With the proven gap and the reasons."""
    plan = replace(made, iterations=iterations, optimality_gap=_gap(problem, made.prediction, saved_s))
    return replace(plan, why=why.sentences(problem, plan))


def _gap(problem: Problem, prediction: Prediction, saved_s: float) -> float:
    """The share of the predicted step that a better plan could save.

    Where no speed is known the search counts every machine as slow as can be, and the prediction as an assumed figure:
    then plans of as many workers differ in nothing but communication, and only of those something is proven.
    """
    if not is_any_known(problem.workload, problem.topology):
        saved_s = min(saved_s, prediction.communication_s)
    return max(0.0, saved_s / prediction.step_s)
