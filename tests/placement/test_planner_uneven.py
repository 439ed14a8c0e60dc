"""Shares by speed: by hand, against all shares and rings there are, never worse than equal ones, bounds that hold."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from depth import num_examples
from hulk_placement.cost.compute import share_by_speed
from hulk_placement.cost.predict import predict
from hulk_placement.layouts.data_parallel import place_replicas
from hulk_placement.layouts.place import place as place_layout
from hulk_placement.model import Model
from hulk_placement.plan import Plan
from hulk_placement.search.evaluate import evaluate
from hulk_placement.search.job import place
from hulk_placement.search.problem import Problem, build
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import jobs, orders, profile, workload, worlds

from bench.layout_searches import SEARCHES

SPEEDS = st.lists(st.sampled_from([1e11, 3e11, 1e12, 2.5e12]), min_size=1, max_size=4)


def slowest(shares: tuple[int, ...], speeds: list[float]) -> float:
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))


@given(SPEEDS, st.integers(0, 12))
def test_no_other_shares_are_quicker(speeds: list[float], more: int) -> None:
    batch = len(speeds) + more
    ways = (way for way in itertools.product(range(1, batch + 1), repeat=len(speeds)) if sum(way) == batch)
    shares = share_by_speed(batch, speeds)
    assert sum(shares) == batch
    assert slowest(shares, speeds) == pytest.approx(min(slowest(way, speeds) for way in ways))


def test_a_great_batch_is_shared_in_proportion() -> None:
    assert share_by_speed(1 << 20, [1.0, 2.0, 5.0]) == (131_072, 262_144, 655_360)


def unequal(slow: float = 2.5e11) -> Topology:
    """Two fast machines and a slow one in one region, on links that take next to nothing."""
    machines = tuple(Machine(name, "eu", flops_per_s=speed) for name, speed in (("a", 1e12), ("b", 1e12), ("c", slow)))
    return Topology(machines, region_links={("eu", "eu"): Link(1e-6, 1e12)})


def planned(job: Workload, topology: Topology) -> Plan:
    return solve([job], [], topology).plans[job.key]


@pytest.mark.parametrize("mode", ["ring", "auto", "local"])
def test_a_slow_machine_helps_with_shares_by_speed_and_is_left_out_with_equal_ones(mode: str) -> None:
    """36 sequences of 10 GFLOP: 18 each on two machines take 0.18 s; 16, 16 and 4 on three 0.16 s; 12 each 0.48 s."""
    topology = unequal()
    model = Model.of_totals(1000, 1e10, 0)
    job = workload(topology, shares="planned", model=model, global_batch=36, sync=Sync(mode))
    plan, equal = planned(job, topology), planned(replace(job, shares="equal"), topology)
    assert sorted(plan.shares) == [4, 16, 16]
    assert plan.prediction.step_s == pytest.approx(0.16, rel=0.05)
    assert equal.shares == (18, 18)
    assert equal.prediction.step_s == pytest.approx(0.18, rel=0.05)
    [said] = [sentence for sentence in plan.why if sentence.startswith("Shares go by speed")]
    assert said.startswith("Shares go by speed: equal ones would take 0.48")
    assert not any(sentence.startswith("Shares go by speed") for sentence in equal.why)


def test_machines_that_are_alike_get_the_proven_plan_of_equal_shares() -> None:
    topology = profile("A")
    job = workload(topology)
    plan, equal = (planned(replace(job, shares=shares), topology) for shares in ("planned", "equal"))
    assert (plan.shares, plan.optimality_gap) == (equal.shares, 0.0)


def test_pinned_machines_get_shares_by_speed() -> None:
    topology = unequal()
    job = workload(topology, shares="planned", global_batch=36, pins=("c", "a", "b"))
    plan = planned(job, topology)
    assert (plan.shares, plan.optimality_gap) == ((4, 16, 16), 0.0)


def test_workers_of_several_accelerators_get_shares_by_speed() -> None:
    topology = unequal()
    topology = replace(topology, machines=tuple(replace(m, num_accelerators=2) for m in topology.machines))
    model = Model.of_totals(1000, 1e10, 0)
    job = workload(topology, shares="planned", model=model, global_batch=36, accelerators_per_worker=2)
    plan = planned(job, topology)
    assert {(worker.machine, worker.num_accelerators) for worker in plan.workers} == {("a", 2), ("b", 2), ("c", 2)}
    assert sorted(plan.shares) == [2, 2, 8, 8, 8, 8]


def best_by_trying_all(problem: Problem) -> float | None:
    number = {name: machine for machine, name in enumerate(problem.names)}
    found = [
        evaluate(problem, tuple(number[name] for name in order), num_buckets)
        for order in orders(problem.workload, problem.topology)
        if number.keys() >= set(order)
        for num_buckets in (1, 2)
    ]
    return min(found, default=None)


@settings(max_examples=num_examples(60), deadline=None)
@given(st.data())
def test_close_to_the_best_of_all_and_never_beyond_the_stated_bound(data: st.DataObject) -> None:
    topology = data.draw(worlds(max_machines=5, own_links=data.draw(st.booleans()), slots=data.draw(st.booleans())))
    job = replace(data.draw(jobs(topology)), shares="planned")
    job = replace(job, global_batch=job.global_batch * data.draw(st.sampled_from([1, 8])))
    problem = build(job, topology)
    if isinstance(problem, Unplaced):
        return
    best_s = best_by_trying_all(problem)
    plan = place(job, topology, Budget())
    if best_s is None:
        assert isinstance(plan, Unplaced)
        return
    assert isinstance(plan, Plan)
    assert plan.prediction == predict(plan, job, topology)
    assert best_s * (1 - 1e-9) <= plan.prediction.step_s <= best_s * (1 + 1e-9)
    assert 1 - best_s / plan.prediction.step_s <= plan.optimality_gap + 1e-9
    equal = place(replace(job, shares="equal"), topology, Budget())
    assert isinstance(equal, Plan)
    assert plan.prediction.step_s <= equal.prediction.step_s * (1 + 1e-9)


@settings(max_examples=num_examples(30), deadline=None)
@given(st.data())
def test_with_layouts_beside_it_is_no_worse_and_the_bound_still_holds(data: st.DataObject) -> None:
    topology = data.draw(worlds(max_machines=4))
    job = replace(data.draw(jobs(topology)), shares="planned")
    alone, both = (search(job, topology, Budget(3000)) for search in (place, place_replicas))
    if isinstance(alone, Unplaced):
        return
    assert isinstance(both, Plan)
    assert both.algorithm == "ring"
    assert both.layout.data == len(both.workers)
    problem = build(job, topology)
    assert isinstance(problem, Problem)
    best_s = best_by_trying_all(problem)
    assert best_s is not None
    assert best_s * (1 - 1e-9) <= both.prediction.step_s <= best_s * 1.02
    assert 1 - best_s / both.prediction.step_s <= both.optimality_gap + 1e-9


@pytest.mark.parametrize("search", ["portfolio", "exact", "local", "evolutionary", "random", "greedy"])
def test_layouts_with_equal_shares_have_equal_shares(search: str) -> None:
    topology = unequal(slow=9e11)
    job = workload(topology, shares="equal", global_batch=34, min_workers=3, sync=Sync("ring"))
    plan = place_layout(job, topology, Budget(3000), search=SEARCHES[search])
    assert isinstance(plan, Plan)
    shares = dict(zip(plan.rank_machines, plan.shares, strict=True))
    assert shares == {"a": 12, "b": 11, "c": 11} or shares == {"a": 11, "b": 12, "c": 11}


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="shares 'fair' must be one of planned, equal"):
        workload(profile("A"), shares="fair")
