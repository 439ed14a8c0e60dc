"""Plans of data parallelism for the most sequences for the price, or under a limit of the price.

The search for the shortest step, the cheapest workers and every machine alone are starts; from each, single workers are
added, left out, exchanged and moved while that brings the price under its limit and then the wish nearer. The order of
machines that comes out is planned like one that a person has named.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hulk_placement.cost.known import work
from hulk_placement.cost.money import LIMIT_ROUNDING, judged, price_words, ring_egress
from hulk_placement.plan import Plan
from hulk_placement.search import uneven
from hulk_placement.search.evaluate import Order, evaluate, links_known
from hulk_placement.search.job import place
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.sizes import NUM_BUCKETS
from hulk_placement.search.why import none_better, unproven
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.sync import Sync
from hulk_placement.topology import Topology
from hulk_placement.words import counted
from hulk_placement.workload import Workload

TIME_SHARE = 0.4
"""Of iterations and seconds, for the shortest step."""

NUM_IMPROVED = 4
"""Starts from which moves are made, the best ones."""


def place_wished(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float] = time.monotonic
) -> Plan | Unplaced:
    """The best plan that was found, or why there is none."""
    end_s = clock() + budget.seconds
    plain = replace(workload, objective="time", max_price_per_hour=None)
    part = replace(budget, iterations=max(1, int(budget.iterations * TIME_SHARE)), seconds=budget.seconds * TIME_SHARE)
    quickest, problem = place(plain, topology, part, clock), build(workload, topology)
    if isinstance(quickest, Unplaced) or isinstance(problem, Unplaced):
        return quickest if isinstance(quickest, Unplaced) else problem  # type: ignore[return-value]
    wish = Wish(problem, tuple(topology.machine(name).price_per_hour for name in problem.names))
    order = _number(problem, quickest)
    affordable = [quickest] if wish.excess(order) == 0 else []
    if affordable and workload.objective == "time":
        return wish.told(quickest, quickest)
    if not workload.pins:
        num_left, now_s = budget.iterations - part.iterations, clock()
        work = Work.begun(budget, workload, num_left, now_s, end_s - now_s, clock)
        order = _best(problem, wish, order, budget.seed, work)
    if wish.excess(order) > 0:
        return wish.refusal(order)
    named = replace(plain, pins=tuple(problem.names[machine] for machine in order))
    found = [place(replace(named, sync=sync), topology, part, clock) for sync in _syncs(workload)]
    plans = affordable + [plan for plan in found if isinstance(plan, Plan)]
    return wish.told(min(plans, key=wish.reached), quickest) if plans else found[0]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be least, and the limit; `prices` of an accelerator of each machine for an hour."""

    problem: Problem
    prices: tuple[float, ...]

    def per_hour(self, order: Order) -> float:
        """Price of all accelerators."""
        return sum(self.prices[machine] for machine in order) * self.problem.workload.accelerators_per_worker

    def excess(self, order: Order) -> float:
        """By how much the price an hour is over its limit."""
        limit = self.problem.workload.max_price_per_hour or math.inf
        return max(0.0, self.per_hour(order) - limit * LIMIT_ROUNDING)

    def value(self, num_buckets: int, order: Order) -> tuple[float, float]:
        """The excess, then a step's seconds or price by gloo's ring; of local SGD's it bears its part."""
        workload = self.problem.workload
        num_steps = workload.sync.planned_inner_steps or 1
        step_s = evaluate(self.problem, order, num_buckets, num_steps)
        if workload.objective == "time":
            return self.excess(order), step_s
        ranks = [self.problem.names[machine] for machine in order for _ in range(workload.accelerators_per_worker)]
        traffic = ring_egress(ranks, workload.model.gradient_bytes, self.problem.topology)
        return self.excess(order), self.per_hour(order) / 3600 * step_s + traffic / num_steps

    def least(self, order: Order) -> tuple[float, float]:
        """The value in the best number of buckets."""
        return min(self.value(num_buckets, order) for num_buckets in NUM_BUCKETS)

    def reached(self, plan: Plan) -> float:
        """What a plan is judged by."""
        return judged(plan, self.problem.workload)

    def refusal(self, order: Order) -> Unplaced:
        """That the limit is too low."""
        asked = self.problem.workload
        if asked.pins:
            return Unplaced(
                "PriceLimit",
                f"The machines of {counted(len(order), 'worker')} are given, which cost {self.per_hour(order):g} an "
                f"hour; at most {asked.max_price_per_hour:g} an hour is asked for: the two exclude each other.",
            )
        return Unplaced(
            "PriceLimit",
            f"No plan of {counted(asked.min_workers, 'worker')} or more was found that costs at most "
            f"{asked.max_price_per_hour:g} an hour: the cheapest, of {counted(len(order), 'worker')}, costs "
            f"{self.per_hour(order):g}.",
        )

    def told(self, plan: Plan, quickest: Plan) -> Plan:
        """The plan with its gap and what it costs."""
        asked = self.problem.workload
        quickest_s, found = (1 - quickest.optimality_gap) * quickest.prediction.step_s, self.reached(plan)
        least = quickest_s if asked.objective == "time" else self._least_price()
        plan = replace(plan, optimality_gap=max(0.0, 1 - least / found) if found else 0.0)
        why = [sentence for sentence in unproven(plan) if not sentence.startswith("Left out")]
        why += [
            price_words(plan, asked, self.problem.topology),
            f"The shortest step of all is {quickest.prediction.step_s:.3f} s, for {quickest.prediction.price:.4g}.",
            *none_better(plan, asked.objective),
        ]
        return replace(plan, why=tuple(why))

    def _least_price(self) -> float:
        """What no step costs less than: all sequences on the machine with most speed for its price, nothing sent."""
        problem = self.problem
        flops = problem.workload.global_batch * work(problem.workload)
        return flops / 3600 * min(price / speed for price, speed in zip(self.prices, problem.speed, strict=True))


def _syncs(workload: Workload) -> tuple[Sync, ...]:
    """As asked; where that leaves the choice, also the ring, which may be slower and send less between regions."""
    sync = workload.sync
    return (sync, Sync("ring")) if sync.mode == "auto" and sync.on_region_loss == "restart" else (sync,)


def _best(problem: Problem, wish: Wish, quickest: Order, seed: int, work: Work) -> Order:
    starts = dict.fromkeys([quickest, *_alone(problem), *_cheapest(problem, wish)])
    ranked = sorted((order for order in starts if links_known(problem, order)), key=wish.least)
    best = ranked[0]
    for start in ranked[:NUM_IMPROVED]:
        for num_buckets in NUM_BUCKETS:
            moved = uneven.moved(problem, start, partial(wish.value, num_buckets), seed, work)
            best = min(best, moved, key=wish.least)
    return best


def _alone(problem: Problem) -> Iterator[Order]:
    """As few workers as may be, all on one machine."""
    num = problem.workload.min_workers
    yield from ((machine,) * num for machine, slots in enumerate(problem.useful_slots) if slots >= num)


def _cheapest(problem: Problem, wish: Wish) -> Iterator[Order]:
    """The workers that cost least for their speed, and those that cost least, region by region; twice as many each.

    Of all machines, of each region's, and of each region's and those joined with it: those that cost least of all may
    have no links between them.
    """
    slots = [machine for machine, num in enumerate(problem.useful_slots) for _ in range(num)]
    for worth in (lambda m: (wish.prices[m] / problem.speed[m], m), lambda m: (wish.prices[m], m)):
        ranked = sorted(slots, key=worth)
        yield from _more_and_more(problem, ranked)
        for region in sorted(set(problem.region_of)):
            yield from _more_and_more(problem, [machine for machine in ranked if problem.region_of[machine] == region])
            yield from _more_and_more(problem, _joined(problem, ranked, region))


def _more_and_more(problem: Problem, ranked: Sequence[int]) -> Iterator[Order]:
    """As few of the first as may be, then twice as many each time, up to all."""
    num, most = problem.workload.min_workers, min(problem.max_workers, len(ranked))
    while num <= most:
        yield tuple(sorted(ranked[:num], key=lambda machine: (problem.region_of[machine], machine)))
        num = most if num < most < 2 * num else 2 * num


def _joined(problem: Problem, ranked: Sequence[int], region: int) -> list[int]:
    """Those in the region, and in others, the first ones first, as long as every two have links there and back."""
    first: dict[int, int] = {}
    is_in = {region: True}
    for machine in [machine for machine in ranked if problem.region_of[machine] == region][:1] + list(ranked):
        here = problem.region_of[machine]
        if here not in is_in:
            is_in[here] = all(links_known(problem, (machine, other)) for other in first.values())
        if is_in[here]:
            first.setdefault(here, machine)
    return [machine for machine in ranked if is_in[problem.region_of[machine]]]


def _number(problem: Problem, plan: Plan) -> Order:
    number = {name: machine for machine, name in enumerate(problem.names)}
    return tuple(number[slot.machine] for slot in plan.workers)
