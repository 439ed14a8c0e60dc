"""Plans of data parallelism for money: against all rings and sets there are, by hand, within the limit or refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from depth import num_examples
from hulk_placement.cost.money import accelerators_per_s, judged
from hulk_placement.layouts.data_parallel import LAYOUT_SHARE
from hulk_placement.layouts.place import place
from hulk_placement.model import Model
from hulk_placement.plan import Plan
from hulk_placement.search.making import make_plan
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.wished import Wish
from hulk_placement.solution import Unplaced
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import jobs, orders, workload, worlds

from bench.plans.cases import questions

MONEY = "throughput-per-money"


def planned(job: Workload, topology: Topology) -> Plan | Unplaced:
    solution = solve([job], [], topology)
    return solution.plans.get(job.key) or solution.unplaced[job.key]


def per_hour(plan: Plan, topology: Topology) -> float:
    return accelerators_per_s(plan, topology) * 3600


def market(egress: float = 0.0) -> Topology:
    """A fast dear machine and a slow cheap one in each of two regions."""
    kinds = (("fast", 4e12, 4.0), ("slow", 1e12, 0.5))
    machines = tuple(
        Machine(f"{region}-{name}", region, flops_per_s=speed, price_per_hour=price)
        for region in ("eu", "us")
        for name, speed, price in kinds
    )
    links = {
        (a, b): Link(1e-4 if a == b else 0.002, 1e9 if a == b else 1e8) for a in ("eu", "us") for b in ("eu", "us")
    }
    prices = {("eu", "us"): egress, ("us", "eu"): egress}
    return Topology(machines, region_links=links, egress_price_per_gb=prices)


MODEL = Model.of_totals(100_000, 1e10, 0)


@pytest.mark.parametrize("shares", ["equal", "planned"])
def test_slow_machines_do_more_for_the_price(shares: str) -> None:
    """2e12 FLOP an hour's price against 1e12: one cheap machine alone, or both of them where two are asked for."""
    topology = market(egress=10.0)
    job = workload(topology, model=MODEL, shares=shares, objective=MONEY)
    alone, two = planned(job, topology), planned(replace(job, min_workers=2), topology)
    assert isinstance(alone, Plan)
    assert [slot.machine for slot in alone.workers] in (["eu-slow"], ["us-slow"])
    assert alone.prediction.price == pytest.approx(0.64 * 0.5 / 3600)
    assert alone.optimality_gap == pytest.approx(0, abs=1e-9)
    assert isinstance(two, Plan)
    assert len({slot.region for slot in two.workers}) == 1  # traffic is dearer than a dear machine
    assert any(sentence.startswith("Its accelerators cost 4.5 an hour") for sentence in two.why)


@pytest.mark.parametrize(("limit", "machines"), [(1.0, 2), (5.0, 3), (100.0, 4)])
def test_the_shortest_step_within_a_limit(limit: float, machines: int) -> None:
    topology = market()
    job = workload(topology, model=MODEL, shares="planned", max_price_per_hour=limit)
    plan = planned(job, topology)
    assert isinstance(plan, Plan)
    assert per_hour(plan, topology) <= limit
    assert len(plan.workers) == machines


def test_a_limit_that_nothing_keeps_is_said_with_the_least() -> None:
    topology = market()
    found = planned(workload(topology, model=MODEL, min_workers=3, max_price_per_hour=4.9), topology)
    assert isinstance(found, Unplaced)
    assert found.reason == "PriceLimit"
    assert "costs at most 4.9 an hour: the cheapest, of 3 workers, costs 5." in found.message


def test_the_cheapest_of_all_need_no_link_to_each_other() -> None:
    """One in each region would cost least, and no links join them; two of one region keep the limit too."""
    prices = {"eu-fast": 1.0, "eu-slow": 0.5, "us-fast": 3.0, "us-slow": 0.5}
    machines = tuple(replace(m, price_per_hour=prices[m.name], flops_per_s=1e12) for m in market().machines)
    links = {(name, name): Link(rtt_s, 1e9) for name, rtt_s in (("eu", 1e-3), ("us", 3e-4))}
    topology = replace(market(), machines=machines, region_links=links)
    plan = planned(workload(topology, model=MODEL, min_workers=2, max_workers=2, max_price_per_hour=2.0), topology)
    assert isinstance(plan, Plan)
    assert {slot.machine for slot in plan.workers} == {"eu-fast", "eu-slow"}


@pytest.mark.parametrize("objective", ["time", MONEY])
def test_the_cheapest_that_have_links_to_each_other_are_in_two_regions(objective: str) -> None:
    """Two of 1 an hour are joined with one of 2 only; all that are in one region cost 10 each."""
    prices = {"a0": 1.0, "b0": 1.0, "c0": 2.0, "d0": 10.0, "d1": 10.0}
    machines = tuple(Machine(name, name[0], flops_per_s=1e12, price_per_hour=price) for name, price in prices.items())
    pairs = ("ac", "ca", "bc", "cb", "dd")
    topology = Topology(machines, region_links={(a, b): Link(0.01, 1e8) for a, b in pairs})
    job = workload(topology, model=MODEL, min_workers=2, max_workers=2, objective=objective, max_price_per_hour=3.5)
    plan = planned(job, topology)
    assert isinstance(plan, Plan), plan
    assert sorted(slot.machine for slot in plan.workers) in (["a0", "c0"], ["b0", "c0"])
    assert per_hour(plan, topology) == pytest.approx(3.0)


def test_named_machines_that_cost_too_much_are_refused() -> None:
    topology = market()
    found = planned(workload(topology, model=MODEL, pins=("eu-fast",), max_price_per_hour=1), topology)
    assert isinstance(found, Unplaced)
    assert found.reason == "PriceLimit"
    assert found.message.startswith("The machines of 1 worker are given, which cost ")
    assert "; at most 1 an hour is asked for" in found.message


@pytest.mark.parametrize("mode", ["ring", "auto", "wan", "local"])
def test_it_is_run_as_the_job_says(mode: str) -> None:
    topology = market()
    plan = planned(workload(topology, model=MODEL, min_workers=4, sync=Sync(mode), objective=MONEY), topology)
    assert isinstance(plan, Plan)
    assert plan.algorithm in {"ring": ("ring",), "wan": ("wan",)}.get(mode, ("ring", "wan"))
    assert (plan.inner_steps is not None) == (mode == "local")


@pytest.mark.parametrize(("mode", "objective"), list(product(["ring", "local"], ["time", MONEY])))
def test_orders_are_judged_by_what_their_plans_state(mode: str, objective: str) -> None:
    """Also where several steps share what an all-reduce takes and costs, and inside regions, where that costs too."""
    chance, topology = Random(0), market()
    prices = {pair: chance.uniform(1.0, 100.0) for pair in topology.region_links}
    topology = replace(topology, egress_price_per_gb=prices)
    for shares in ("equal", "planned"):
        job = workload(topology, model=MODEL, shares=shares, sync=Sync(mode), objective=objective)
        problem = build(job, topology)
        assert isinstance(problem, Problem)
        wish = Wish(problem, tuple(topology.machine(name).price_per_hour for name in problem.names))
        for _ in range(20):
            order = tuple(chance.choices(range(4), k=chance.randint(1, 5)))
            num_buckets = chance.randint(1, 2) if len(order) > 1 else 1
            plan = make_plan(problem, order, num_buckets, inner_steps=job.sync.planned_inner_steps)
            assert wish.value(num_buckets, order)[1] == pytest.approx(judged(plan, job), rel=1e-9)


@pytest.mark.parametrize(
    "name", ["whole models, seed 1, below a price", "32 machines in racks of 4, whole models"], ids=["limit", "links"]
)
def test_no_worse_than_the_search_over_layouts(name: str) -> None:
    """Below a price, and where machine pairs have links of their own: moves of single workers end at 1.5 times this."""
    asked = next(question for question in questions() if question.name == name).draw()
    (job,) = asked.jobs
    plan = solve([job], [], asked.topology, asked.budget).plans[job.key]
    part = replace(asked.budget, iterations=int(asked.budget.iterations * LAYOUT_SHARE))
    found = place(replace(job, sync=Sync("ring")), asked.topology, part)
    assert isinstance(found, Plan)
    assert plan.prediction.step_s <= found.prediction.step_s
    prices = [sentence for sentence in plan.why if sentence.startswith("Its accelerators cost ")]
    assert len(prices) == job.goes_by_prices


@settings(max_examples=num_examples(50), deadline=None)
@given(st.data())
def test_close_to_the_best_of_all_and_within_the_limit(data: st.DataObject) -> None:
    topology = data.draw(worlds(max_machines=4, slots=data.draw(st.booleans())))
    prices = st.sampled_from([0.5, 1.0, 3.0, 8.0])
    topology = replace(
        topology, machines=tuple(replace(machine, price_per_hour=data.draw(prices)) for machine in topology.machines)
    )
    job = replace(
        data.draw(jobs(topology)),
        shares=data.draw(st.sampled_from(["equal", "planned"])),
        objective=data.draw(st.sampled_from(["time", MONEY])),
        max_price_per_hour=data.draw(st.sampled_from([2.0, 5.0, 1000.0])),
    )
    problem = build(job, topology)
    if isinstance(problem, Unplaced):
        return
    wish = Wish(problem, tuple(topology.machine(name).price_per_hour for name in problem.names))
    found, best = planned(job, topology), best_by_trying_all(problem, wish)
    if best is None or best[0] > 0:
        assert isinstance(found, Unplaced)
        return
    assert isinstance(found, Plan)
    assert per_hour(found, topology) <= job.max_price_per_hour * (1 + 1e-9)  # type: ignore[operator]
    assert best[1] * (1 - 1e-9) <= wish.reached(found) <= best[1] * 1.05
    assert 1 - best[1] / wish.reached(found) <= found.optimality_gap + 1e-9


def best_by_trying_all(problem: Problem, wish: Wish) -> tuple[float, float] | None:
    number = {name: machine for machine, name in enumerate(problem.names)}
    found = [
        wish.least(tuple(number[name] for name in order))
        for order in orders(problem.workload, problem.topology)
        if number.keys() >= set(order)
    ]
    return min(found, default=None)
