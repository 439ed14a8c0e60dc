"""One workload to one plan: problem, search, arrangement, improvement, proof, plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hulk_placement.cost import predict
from hulk_placement.cost.compute import SLOWEST_FLOPS_PER_S, is_any_known, share_out
from hulk_placement.plan import Layout, Plan, Prediction, WorkerSlot
from hulk_placement.ring.machines import best_order
from hulk_placement.ring.polish import polish
from hulk_placement.ring.region_graph import Work
from hulk_placement.search import why
from hulk_placement.search.arrange import arrange
from hulk_placement.search.baselines import BASELINES
from hulk_placement.search.choice import Choice, one_machine
from hulk_placement.search.evaluate import Order, evaluate, links_known
from hulk_placement.search.graph import machine_graph, region_graphs
from hulk_placement.search.pins import pinned_order
from hulk_placement.search.problem import Budget, Problem, Unplaced, build
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, size_of
from hulk_placement.search.workers import WorkerSearch
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MAX_EXACT_SLOTS = 24
"""Up to this many worker slots enumerating the rings over machines is tried, on half of the work that is left."""

SEARCH_SHARE = 0.9
"""Of the seconds; the others are for making the plan of what was found."""

NOT_PREDICTED = Prediction(0.0, 0.0, 0.0, None, (), 0, calibrated=False)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Machines in rank order, and how many buckets."""

    order: Order
    num_buckets: int
    step_s: float


def place(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float] = time.monotonic
) -> Plan | Unplaced:
    """The best plan found within the budget, with the proven gap to the best possible; or why there is none."""
    built = build(workload, topology)
    if isinstance(built, Unplaced):
        return built
    if workload.pins:
        return _place_pinned(built)
    problem = (
        built if is_any_known(workload, topology) else replace(built, speed=(SLOWEST_FLOPS_PER_S,) * len(built.speed))
    )
    search_s = SEARCH_SHARE * budget.seconds
    work = Work(budget.iterations, stop_at=budget.stop_at, end_s=clock() + search_s, clock=clock)
    plain = list(_baselines(problem))
    choices, bound_s = _search(problem, work)
    best = min([*_arranged(problem, choices), *plain], key=lambda found: found.step_s, default=None)
    if best is None:
        return why.not_found(problem, work.done) if work.incomplete else why.no_ring(problem)
    if best.step_s > bound_s:
        best, bound_s = _improve(problem, best, bound_s, budget.seed, work)
    plan = _plan(built, best, bound_s, work.done)
    if work.stopped_at is not None:
        plan = replace(plan, why=(*plan.why, why.stopped(search_s, work.stopped_at)))
    return plan


def _place_pinned(problem: Problem) -> Plan | Unplaced:
    order = pinned_order(problem)
    if isinstance(order, Unplaced):
        return order
    best = min((_candidate(problem, order, buckets) for buckets in NUM_BUCKETS), key=lambda found: found.step_s)
    return _plan(problem, best, best.step_s, iterations=len(NUM_BUCKETS))


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
        yield _candidate(problem, arrange(problem, choice), choice.num_buckets)


def _baselines(problem: Problem) -> Iterator[Candidate]:
    """The orders that no plan may be worse than."""
    for baseline in BASELINES.values():
        order = baseline(problem)
        if links_known(problem, order):
            yield from (_candidate(problem, order, buckets) for buckets in NUM_BUCKETS)


def _candidate(problem: Problem, order: Order, num_buckets: int) -> Candidate:
    return Candidate(order, num_buckets, evaluate(problem, order, num_buckets)[0])


def _improve(problem: Problem, best: Candidate, bound_s: float, seed: int, work: Work) -> tuple[Candidate, float]:
    """The candidate made better over single machines, and the bound it is measured against."""
    if work.exhausted:
        return best, bound_s
    if sum(problem.num_slots) <= MAX_EXACT_SLOTS:
        half = work.part((work.limit - work.done) // 2)
        best = _enumerate(problem, best, half)
        work.add(half)
        if not half.exhausted:
            return best, best.step_s
    same_region = [
        [b for b, other in enumerate(problem.region_of) if other == region and b != a]
        for a, region in enumerate(problem.region_of)
    ]
    order = polish(best.order, lambda order: evaluate(problem, order, best.num_buckets), same_region, seed, work)
    return _candidate(problem, order, best.num_buckets), bound_s


def _enumerate(problem: Problem, best: Candidate, work: Work) -> Candidate:
    graph = machine_graph(problem)
    for num_workers in range(max(2, problem.workload.min_workers), problem.max_workers + 1):
        for num_buckets in NUM_BUCKETS:
            size = size_of(problem, Shares(problem, num_workers), num_buckets)
            found = best_order(graph, size, best.step_s, work)
            if found is not None:
                best = Candidate(found[0], num_buckets, found[1])
    return best


def _plan(problem: Problem, best: Candidate, bound_s: float, iterations: int) -> Plan:
    workload, per_worker = problem.workload, problem.workload.accelerators_per_worker
    shares = share_out(workload.global_batch, [problem.speed[m] for m in best.order for _ in range(per_worker)])
    plan = Plan(
        key=workload.key,
        attempt=workload.attempt,
        workers=tuple(
            WorkerSlot(problem.names[m], problem.regions[problem.region_of[m]], per_worker) for m in best.order
        ),
        shares=shares,
        micro_batch=_micro_batch(problem, best.order, max(shares)),
        num_buckets=best.num_buckets if len(shares) > 1 else 1,
        prediction=NOT_PREDICTED,
        layout=Layout(data=len(shares)),
        iterations=iterations,
    )
    plan = replace(plan, prediction=predict(plan, workload, problem.topology))
    plan = replace(plan, optimality_gap=_gap(problem, plan.prediction, best.step_s - bound_s))
    return replace(plan, why=why.sentences(problem, plan))


def _gap(problem: Problem, prediction: Prediction, saved_s: float) -> float:
    """The share of the predicted step that a better plan could save.

    Where no speed is known the search counts every machine as slow as can be, and the prediction as an assumed figure:
    then plans of as many workers differ in nothing but communication, and only of those something is proven.
    """
    if not is_any_known(problem.workload, problem.topology):
        saved_s = min(saved_s, prediction.communication_s)
    return max(0.0, saved_s / prediction.step_s)


def _micro_batch(problem: Problem, order: Order, largest_share: int) -> int:
    """The asked micro-batch, else the largest that fits the accelerators; a share at most. Unknown memory fits all."""
    workload = problem.workload
    if workload.micro_batch is not None:
        return min(workload.micro_batch, largest_share)
    memory = [m for m in (problem.topology.machine(problem.names[a]).memory_bytes for a in order) if m]
    model, optimizer = workload.model, workload.optimizer
    fits = [n for n in range(1, largest_share + 1) if not memory or model.memory_bytes(n, optimizer) <= min(memory)]
    return max(fits)
