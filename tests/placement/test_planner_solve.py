"""`solve` against a planner that makes every plan, and the properties every plan must have."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from depth import num_examples
from hulk_placement.cost.predict import predict
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow
from hulk_placement.plan import Plan, WorkerSlot
from hulk_placement.search.baselines import BASELINES
from hulk_placement.search.evaluate import evaluate, links_known
from hulk_placement.search.job import place
from hulk_placement.search.problem import Problem, build
from hulk_placement.solution import Budget, Record, Unplaced
from hulk_placement.solve import solve
from hulk_placement.solve.together import RING_SHARE
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from worlds import best_by_trying_all, jobs, plan_of, profile, workload, worlds

QUICK = Budget(iterations=2_000)


@settings(max_examples=num_examples(150), deadline=None)
@given(st.data())
def test_best_of_all_when_regions_are_uniform(data: st.DataObject) -> None:
    check_best(data, data.draw(worlds()))


@settings(max_examples=num_examples(80), deadline=None)
@given(st.data())
def test_best_of_all_when_machine_pairs_have_own_links(data: st.DataObject) -> None:
    check_best(data, data.draw(worlds(max_machines=5, own_links=True)))


@settings(max_examples=num_examples(80), deadline=None)
@given(st.data())
def test_best_of_all_when_machines_hold_several_workers(data: st.DataObject) -> None:
    check_best(data, data.draw(worlds(max_machines=4, own_links=True, slots=True)))


def check_best(data: st.DataObject, topology: Topology) -> None:
    job = data.draw(jobs(topology))
    best = best_by_trying_all(job, topology)
    solution = solve([job], [], topology)
    if best is None:
        assert solution.unplaced[job.key].reason == "OnlyUnknownLinks"
        return
    found = solution.plans[job.key]
    assert abs(found.prediction.step_s / best.prediction.step_s - 1) < 1e-9
    assert found.optimality_gap < 1e-9


@settings(max_examples=num_examples(100), deadline=None)
@given(st.data())
def test_every_plan_is_valid(data: st.DataObject) -> None:
    topology = data.draw(worlds(own_links=True, slots=True))
    job = data.draw(jobs(topology))
    for plan in solve([job], [], topology).plans.values():
        assert job.min_workers <= len(plan.workers) <= job.max_workers
        assert sum(plan.shares) == job.global_batch
        assert max(plan.shares) - min(plan.shares) <= 1
        assert plan.prediction == predict(plan, job, topology)
        assert all(count <= topology.machine(name).num_accelerators for name, count in plan.accelerators().items())
        names = [slot.machine for slot in plan.workers]
        assert all(
            topology.link(names[rank], names[rank - 1]).kind is not LinkKind.UNKNOWN for rank in range(len(names))
        )


@settings(max_examples=num_examples(60), deadline=None)
@given(st.data())
def test_removing_a_link_never_improves_a_plan(data: st.DataObject) -> None:
    topology = data.draw(worlds(slots=True))
    job = data.draw(jobs(topology))
    pairs = sorted(pair for pair in topology.region_links if pair[0] != pair[1])
    assume(pairs)
    gone = data.draw(st.sampled_from(pairs))
    fewer = replace(topology, region_links={p: link for p, link in topology.region_links.items() if p != gone})
    assert step_s(job, fewer) >= step_s(job, topology) * (1 - 1e-9)


@settings(max_examples=num_examples(60), deadline=None)
@given(st.data())
def test_renaming_machines_never_changes_the_step(data: st.DataObject) -> None:
    topology = data.draw(worlds(own_links=True, slots=True))
    job = data.draw(jobs(topology))
    names = [machine.name for machine in topology.machines]
    new = dict(zip(names, data.draw(st.permutations(names)), strict=True))
    renamed = Topology(
        tuple(replace(machine, name=new[machine.name]) for machine in topology.machines),
        {(new[a], new[b]): link for (a, b), link in topology.node_links.items()},
        topology.region_links,
        topology.uplinks,
    )
    assert step_s(job, renamed) == step_s(job, topology)


@settings(max_examples=num_examples(40), deadline=None)
@given(st.data())
def test_never_worse_than_what_one_would_do_without_a_planner(data: st.DataObject) -> None:
    """Also where a search gives up early: 30 iterations are not enough for most of these worlds."""
    topology = data.draw(worlds(max_regions=5, max_machines=15, own_links=True, slots=True))
    job = data.draw(jobs(topology))
    budget = Budget(iterations=data.draw(st.sampled_from([1, 30, 10_000])))
    problem = build(job, topology)
    assume(isinstance(problem, Problem) and not isinstance(place(job, topology, budget), Unplaced))
    found = step_s(job, topology, budget)
    for baseline in BASELINES.values():
        order = baseline(problem)
        if links_known(problem, order):
            assert found <= min(evaluate(problem, order, buckets) for buckets in (1, 2)) * (1 + 1e-9)


@settings(max_examples=num_examples(40), deadline=None)
@given(st.data())
def test_the_stated_gap_is_true(data: st.DataObject) -> None:
    """Also where no speed is known: then among plans of as many workers."""
    topology = data.draw(worlds(max_machines=5, own_links=True))
    known = data.draw(st.booleans())
    if not known:
        machines = tuple(replace(machine, flops_per_s=None) for machine in topology.machines)
        topology = replace(topology, machines=machines)
    job = data.draw(jobs(topology))
    for plan in solve([job], [], topology, Budget(iterations=data.draw(st.integers(1, 40)))).plans.values():
        assert plan.prediction.calibrated is known
        num = len(plan.workers)
        best = best_by_trying_all(job if known else replace(job, min_workers=num, max_workers=num), topology)
        assert best is not None
        gap = 1 - best.prediction.step_s / plan.prediction.step_s
        assert gap <= plan.optimality_gap + 1e-9


@settings(max_examples=num_examples(40), deadline=None)
@given(st.data())
def test_two_jobs_never_get_the_same_accelerator(data: st.DataObject) -> None:
    topology = data.draw(worlds(slots=True))
    first, second, third = (replace(data.draw(jobs(topology)), key=f"team/{name}") for name in "abc")
    before = solve([first], [], topology).plans
    solution = solve([second, third], list(before.values()), topology)
    held: Counter[str] = Counter()
    for plan in [*before.values(), *solution.plans.values()]:
        held.update(plan.accelerators())
    assert all(count <= topology.machine(name).num_accelerators for name, count in held.items())
    assert {*solution.plans, *solution.unplaced} == {"team/b", "team/c"}


def test_same_arguments_same_plans() -> None:
    topology = profile("A")
    job = workload(topology)
    assert solve([job], [], topology) == solve([job], [], topology)


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("num_bytes", [1 << 18, 1 << 22, 1 << 24])
def test_the_fold_through_the_hub_wins_where_it_was_measured_to_win(name: str, num_bytes: int) -> None:
    """Neither region order nor the least sum of latencies finds it: out through O and back, never P to T."""
    topology = profile(name)
    job = workload(topology, model=Model.of_totals(num_bytes // 4, 1e9, 0), min_workers=6)
    plan = solve([job], [], topology).plans[job.key]
    crossings = Counter((a.region, b.region) for a, b in edges(plan) if a.region != b.region)
    assert crossings == {("P", "O"): 1, ("O", "T"): 1, ("T", "O"): 1, ("O", "P"): 1}
    assert plan.optimality_gap == 0
    in_region_order = plan_of(job, topology, ("P0", "P1", "O0", "O1", "T0", "T1"), plan.num_buckets)
    assert in_region_order.prediction.communication_s > 1.4 * plan.prediction.communication_s


def test_a_far_machine_is_left_out() -> None:
    near = profile("B")
    far = replace(
        near,
        machines=(*near.machines, Machine("X0", "X", flops_per_s=1e12)),
        region_links={**near.region_links, ("X", "O"): Link(5.0, 1e4), ("O", "X"): Link(5.0, 1e4)},
    )
    plan = solve([workload(far, min_workers=6)], [], far).plans["team/job"]
    assert "X0" not in plan.accelerators()
    assert any("X0" in sentence and sentence.startswith("Left out") for sentence in plan.why)


def test_one_machine_alone_where_only_the_best_link_of_its_region_is_fast() -> None:
    """The bound looks at the best link of a region; the pair of fast machines has a slow one and loses to one alone."""
    machines = (Machine("a", "r", flops_per_s=1e11), *(Machine(name, "r", flops_per_s=1e12) for name in "bc"))
    topology = Topology(machines, {("b", "c"): Link(0.0003, 2e5)}, {("r", "r"): Link(0.0003, 1e6)})
    job = workload(topology, model=Model.of_totals(1000, 1e10, 0), global_batch=2, max_workers=2)
    plan = solve([job], [], topology).plans[job.key]
    assert plan.prediction.step_s == pytest.approx(0.02)
    assert len(plan.workers) == 1


def test_a_slow_machine_is_left_out() -> None:
    topology = profile("B")
    slow = tuple(replace(m, flops_per_s=1e9) if m.name == "O1" else m for m in topology.machines)
    plan = solve([workload(replace(topology, machines=slow))], [], replace(topology, machines=slow)).plans["team/job"]
    assert "O1" not in plan.accelerators()


def test_jobs_go_by_priority_then_age_and_none_waits_behind_one_that_cannot_run() -> None:
    topology = profile("A")
    two = {"min_workers": 2, "max_workers": 2}
    waiting = [
        workload(topology, key="team/late", created_s=9, **two),
        workload(topology, key="team/early", created_s=1, **two),
        workload(topology, key="team/urgent", created_s=10, priority=5, **two),
        workload(topology, key="team/huge", created_s=0, min_workers=7, max_workers=7),
        workload(topology, key="team/last", created_s=11, **two),
    ]
    solution = solve(waiting, [], topology)
    assert list(solution.plans) == ["team/urgent", "team/early", "team/late"]
    assert {key: found.reason for key, found in solution.unplaced.items()} == {
        "team/huge": "NotEnoughAccelerators",
        "team/last": "NotEnoughAccelerators",
    }


def test_one_key_twice_is_refused() -> None:
    topology = profile("A")
    with pytest.raises(ValueError, match="2 workloads have only 1 different keys"):
        solve([workload(topology), workload(topology)], [], topology)


def test_pins_are_the_rank_order() -> None:
    topology = profile("A")
    pins = ("T0", "P1", "O0")
    plan = solve([workload(topology, pins=pins)], [], topology).plans["team/job"]
    assert tuple(slot.machine for slot in plan.workers) == pins


@pytest.mark.parametrize(
    "asked",
    [
        {"pipeline": None, "tensor": None},
        {"data": 3},
        {"max_price_per_hour": 1e6},
        {"objective": "throughput-per-money"},
    ],
)
def test_pins_are_the_rank_order_whatever_else_is_asked(asked: dict[str, Any]) -> None:
    topology = profile("A")
    topology = replace(topology, machines=tuple(replace(m, price_per_hour=1.0) for m in topology.machines))
    pins = ("T0", "P1", "O0")
    plan = solve([workload(topology, pins=pins, **asked)], [], topology).plans["team/job"]
    assert tuple(slot.machine for slot in plan.workers) == pins


def test_accelerators_of_one_worker_are_neighbouring_ranks() -> None:
    topology = profile("A")
    larger = replace(topology, machines=tuple(replace(m, num_accelerators=4) for m in topology.machines))
    job = workload(larger, accelerators_per_worker=2, min_workers=3, max_workers=3)
    plan = solve([job], [], larger).plans["team/job"]
    assert [slot.num_accelerators for slot in plan.workers] == [2, 2, 2]
    assert len(plan.shares) == plan.layout.data == 6
    assert plan.rank_machines[0] == plan.rank_machines[1]


def test_the_largest_micro_batch_that_fits_is_chosen() -> None:
    topology = profile("A")
    model = Model.of_totals(num_parameters=1000, flops_per_sequence=1e9, activation_bytes_per_sequence=10_000)
    small = replace(topology, machines=tuple(replace(m, memory_bytes=20_000 + 35_000) for m in topology.machines))
    job = workload(small, model=model, min_workers=6)
    plan = solve([job], [], small).plans["team/job"]
    assert (max(plan.shares), plan.micro_batch, plan.prediction.memory_bytes) == (11, 3, 20_000 + 30_000)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"shares": "planned"},
        {"pipeline": None, "tensor": None, "shares": "planned"},
        {"accelerators_per_worker": 2, "min_workers": 2},
        {"objective": "throughput-per-money"},
        {"max_price_per_hour": 5.0},
    ],
)
def test_a_model_known_by_measured_seconds_alone_is_planned_like_one_with_flops(asked: dict[str, Any]) -> None:
    """Where all products were measured, FLOPs say nothing more: the plan is the same without them."""
    topology = measured_machines(num_accelerators=2)
    told, timed = workload(topology, model=measured_model(3e9)), workload(topology, model=measured_model(0.0))
    plans = [solve([replace(job, **asked)], [], topology, QUICK).plans["team/job"] for job in (told, timed)]
    assert plans[1].workers == plans[0].workers
    assert plans[1].shares == plans[0].shares
    assert plans[1].prediction.step_s == pytest.approx(plans[0].prediction.step_s)
    assert plans[1].optimality_gap == pytest.approx(plans[0].optimality_gap, abs=1e-9)


def test_seconds_that_were_measured_are_what_a_step_computes() -> None:
    """3 s a sequence on quick machines, 6 s on slow ones; 64 sequences by speed on two of each: 22, 21, 11, 10."""
    topology = measured_machines()
    job = workload(topology, model=measured_model(0.0), shares="planned", min_workers=4)
    plan = solve([job], [], topology).plans["team/job"]
    by_machine = dict(zip(plan.rank_machines, plan.shares, strict=True))
    assert sorted(by_machine.values()) == [10, 11, 21, 22]
    assert plan.prediction.compute_s == pytest.approx(66.0)
    assert {name for name, share in by_machine.items() if share > 20} == {"a0", "b0"}


def measured_machines(num_accelerators: int = 1) -> Topology:
    """A quick and a slow machine in each of two regions."""
    machines = tuple(
        Machine(f"{region}{n}", region, num_accelerators=num_accelerators, product=product, price_per_hour=price)
        for region in "ab"
        for n, (product, price) in enumerate((("quick", 4.0), ("slow", 1.0)))
    )
    links = {(a, b): Link(1e-4 if a == b else 0.02, 1e9 if a == b else 1e8) for a in "ab" for b in "ab"}
    return Topology(machines, region_links=links)


def measured_model(flops: float) -> Model:
    """Two layers of 1 s forward and backward together and of 2 s on a quick machine, twice that on a slow one."""
    layers = tuple(Layer(f"l{n}", 1_000, flops, 2 * flops, 1_000, 1_000) for n in range(2))
    rows = tuple(
        TimesRow(product, 1, 1, (0.25 * slowness, 0.5 * slowness), (0.75 * slowness, 1.5 * slowness))
        for product, slowness in (("quick", 1), ("slow", 2))
    )
    return Model(layers, times=LayerTimes(rows))


def test_a_thousand_machines_within_the_budget() -> None:
    topology = many_machines(1000, random.Random(7))
    job = workload(topology, model=Model.of_totals(10_000_000, 6e10, 10), global_batch=8192, min_workers=400)
    plan = solve([job], [], topology, Budget(iterations=50_000)).plans["team/job"]
    assert len(plan.workers) >= 400
    assert plan.iterations < 52_000
    assert plan.optimality_gap < 0.1


def many_machines(num_machines: int, draw: random.Random) -> Topology:
    """Machines of different speeds in eight regions."""
    regions = [f"r{number}" for number in range(8)]
    machines = tuple(
        Machine(f"m{n}", draw.choice(regions), flops_per_s=draw.uniform(1e13, 4e13)) for n in range(num_machines)
    )
    links = {(a, b): Link(draw.uniform(0.02, 0.3), draw.uniform(1e6, 1e9)) for a in regions for b in regions}
    links |= {(a, a): Link(0.0005, 1e9) for a in regions}
    return Topology(machines, region_links=links)


class Ticks:
    """A clock that goes on by a second whenever it is asked."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.mark.parametrize("seconds", [1, *range(2, 40), 50, 100])
def test_a_search_that_takes_too_long_gives_its_best_and_can_be_made_again(seconds: float) -> None:
    topology = many_machines(20, random.Random(3))
    job = workload(topology, global_batch=100, min_workers=18)
    whole = solve([job], [], topology).plans[job.key]
    plan = solve([job], [], topology, Budget(seconds=seconds), Ticks()).plans[job.key]
    assert plan.prediction.step_s >= whole.prediction.step_s
    *why, last = plan.why
    found = re.fullmatch(r"The search was stopped after .* s, at iteration (\d+): the best found until then\.", last)
    assert found is not None, last
    again = solve([job], [], topology, Budget(record=Record([{int(found[1]): 100}]))).plans[job.key]
    assert again == replace(plan, why=tuple(why))


def test_time_is_shared_by_the_jobs_of_a_pass() -> None:
    topology = many_machines(60, random.Random(3))
    jobs = [workload(topology, key=f"team/{most}", max_workers=most) for most in (19, 20, 21)]
    plans = solve(jobs, [], topology, Budget(seconds=180), Ticks()).plans
    stopped = [re.search(r"stopped after (\S+) s", " ".join(plan.why)) for plan in plans.values()]
    rings_s = RING_SHARE * 180
    assert all(found and 0.8 * rings_s / 3 <= float(found[1]) <= rings_s / 3 for found in stopped)


def edges(plan: Plan) -> list[tuple[WorkerSlot, WorkerSlot]]:
    """(source, target) of every ring edge, in the direction of the data."""
    return [(slot, plan.workers[worker - 1]) for worker, slot in enumerate(plan.workers)]


def step_s(job: Workload, topology: Topology, budget: Budget | None = None) -> float:
    """The planned step; infinite without a plan."""
    plan = solve([job], [], topology, budget).plans.get(job.key)
    return plan.prediction.step_s if plan else math.inf
