"""Searches over layouts: known times, optima found by every search, what changes nothing and what never improves."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from depth import num_examples
from hulk_native import anneal
from hulk_placement.cost.closed_form.arrays import Cache
from hulk_placement.cost.closed_form.evaluate import evaluate, memory_bytes
from hulk_placement.cost.closed_form.pipeline import GPIPE, ONE_F_ONE_B, Chain, pipeline_ends
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.cost.closed_form.sync import edge_seconds, ring_cut
from hulk_placement.cost.gloo import cut_ring
from hulk_placement.cost.predict import predict
from hulk_placement.layer_pins import LayerPin
from hulk_placement.layouts.annealing import annealed
from hulk_placement.layouts.place import place
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Shape, Trials, copy_of
from hulk_placement.model import Layer, Model
from hulk_placement.model.presets import preset
from hulk_placement.plan import Layout, Plan
from hulk_placement.solution import Budget, Record, Unplaced
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.layout_searches import SEARCHES

GIB = 1 << 30
SMALL = Space((Option(1),), (1, 2, 3, 4))


def model(num_layers: int = 4, flops: float = 1e12, parameters: int = 1_000_000, output: int = 100_000) -> Model:
    layers = (Layer(f"layer.{n}", parameters, flops, 2 * flops, output, 2 * output) for n in range(num_layers))
    return Model(tuple(layers))


def topology(speeds: dict[str, float], rtt_s: float = 0.05, rate: float = 1e8, **machine: Any) -> Topology:
    """Machines named region-number; links between different regions take longer the farther their letters are apart."""
    machines = tuple(Machine(name, name[0], flops_per_s=speed, **machine) for name, speed in speeds.items())
    regions = sorted({machine.region for machine in machines})
    links = {
        (a, b): Link(1e-4, 1e9) if a == b else Link(rtt_s * (1 + abs(ord(a) - ord(b))), rate / (1 + (a < b)))
        for a in regions
        for b in regions
    }
    return Topology(machines, region_links=links)


def workload(topology: Topology, trained: Model, global_batch: int = 4, **changes: Any) -> Workload:
    free = {"pipeline": None, "tensor": None, "max_workers": 1000, "sync": Sync(mode="ring")}
    candidates = {machine.name: machine.num_accelerators for machine in topology.machines}
    return Workload("team/job", trained, global_batch, candidates, **(free | changes))


def searched(name: str, topology: Topology, job: Workload, evaluations: int, space: Space = SMALL) -> Trials:
    trials = Trials(Ground.of(job, topology, topology.machines))
    SEARCHES[name](trials, space, lambda: trials.num_evaluations < evaluations, 0)
    return trials


@pytest.mark.parametrize("latency_s", [0.0, 20.0, 40.0, 80.0])
def test_one_forward_one_backward_waits_twice_a_link_for_two_micro_batches(latency_s: float) -> None:
    """Four stages, eight micro-batches, forward 10, backward 20, a latency each way between stages 1 and 2."""
    forward_s, none, latencies_s = np.full(4, 10.0), np.zeros(4), np.array([0.0, latency_s, 0.0, 0.0])
    chain = Chain(forward_s, 2 * forward_s, none, latencies_s, none, none, latencies_s, none)
    assert pipeline_ends(ONE_F_ONE_B, 8, chain, True).max() == 330 + 8 * latency_s
    assert pipeline_ends(GPIPE, 8, chain, True).max() == 330 + 2 * latency_s


def test_a_stage_that_cannot_overlap_waits_for_what_it_sends() -> None:
    """Two stages, two micro-batches, every pass 1 s, every transfer 0.5 s; with overlap stage 1 computes 1.5 .. 5.5."""
    one, send_s = np.ones(2), np.array([0.5])
    none = np.zeros(1)
    chain = Chain(one, one, send_s, none, none, send_s, none, none)
    assert pipeline_ends(GPIPE, 2, chain, True).max() == 7.0
    assert pipeline_ends(GPIPE, 2, chain, False).max() == 8.0


@given(
    st.integers(1, 1 << 28),
    st.integers(2, 70),
    st.sampled_from([1, 2]),
    st.floats(2e-4, 2.0),
    st.floats(1e5, 1e10),
    st.integers(1, 5),
)
def test_the_compiled_ring_is_the_closed_form(
    num_bytes: int, num_ranks: int, buckets: int, way_s: float, rate: float, sharing: int
) -> None:
    ring = cut_ring(num_bytes, num_ranks, buckets)
    hops, segment = ring_cut(float(num_bytes), num_ranks, buckets)
    assert (hops, segment) == (ring.num_hops, ring.segment_bytes)
    seconds = edge_seconds(hops, segment, buckets, way_s, rate, sharing * ring.edge_bytes / rate)
    assert seconds == pytest.approx(ring.edge_s(way_s, rate, sharing), rel=1e-12)


def test_rings_and_pipelines_wait_for_there_and_back_however_they_divide_the_round_trip() -> None:
    alike = topology({"a0": 1e12, "b0": 1e12}, rtt_s=0.2)
    links = {
        (a, b): replace(link, one_way_s=link.rtt_s * (0.9 if (a, b) == ("a", "b") else 0.1)) if a != b else link
        for (a, b), link in alike.region_links.items()
    }
    uneven = replace(alike, region_links=links)
    for shape in (Shape(Option(1), 2, 1), Shape(Option(1, schedule="gpipe"), 1, 2)):
        costs = []
        for world in (alike, uneven):
            job = workload(world, model(), 8)
            trials = Trials(Ground.of(job, world, world.machines))
            trial = trials.build(shape, np.arange(2), np.arange(2), by_rows=True)
            costs.append(trial.cost)
            predicted = predict(plan_of(trials, trial), job, world)
            assert predicted.step_s == pytest.approx(trial.cost, rel=0.05)
        assert costs[0] == pytest.approx(costs[1], rel=1e-12)


@pytest.mark.parametrize("num", [3, 5, 7, 15])
def test_regions_that_hold_more_than_may_be_are_used_with_as_many_as_may_be(num: int) -> None:
    """Four regions of four machines: no set of regions holds just so many."""
    world = topology({f"{region}{n}": 1e12 for region in "abcd" for n in range(4)})
    trials = searched("portfolio", world, workload(world, model(), 16), 1, Space((Option(1),), (1,), None, num, num))
    assert [trial.shape.num_accelerators for trial in trials.best(1)] == [num]


def test_memory_of_one_stage_is_the_models() -> None:
    trained = model()
    world = topology({"a0": 1e12})
    job = workload(world, trained)
    setting = Ground.of(job, world, world.machines).setting(Option(micro_batch=3))
    assert memory_bytes(setting, 0, 4, 0, 1, 5) == job.replica_bytes(3)


def test_recomputing_keeps_inputs_and_one_layer() -> None:
    world = topology({"a0": 1e12})
    job = workload(world, model(output=1000))
    setting = Ground.of(job, world, world.machines).setting(Option(1, recompute=True))
    states = 4 * 1_000_000 * (4 * 3 + 8)
    assert memory_bytes(setting, 0, 4, 0, 1, 5) == states + 3 * 1000 + 2000


CASES = {
    "one machine is much faster": ({"a0": 1e13, "a1": 1e11, "b0": 1e11}, 1e12, 1_000_000),
    "two regions of two": ({"a0": 1e12, "a1": 1e12, "b0": 1e12, "b1": 1e12}, 1e12, 1_000_000),
    "gradients are dear, activations cheap": ({"a0": 1e12, "b0": 1e12, "c0": 1e12}, 2e12, 50_000_000),
    "unequal": ({"a0": 3e12, "b0": 2e12, "b1": 1e12}, 1e12, 500_000),
}


@pytest.mark.parametrize("search", ["portfolio", "local", "evolutionary", "random"])
@pytest.mark.parametrize("case", CASES)
def test_every_search_finds_the_optimum_of_a_small_case(case: str, search: str) -> None:
    world, job = small(case)
    assert searched(search, world, job, 40_000).best_cost == pytest.approx(least_cost(case), rel=1e-9)


@cache
def least_cost(case: str) -> float:
    """Proven by looking at every layout."""
    proven = searched("exact", *small(case), 10**9)
    assert proven.is_proven
    return proven.best_cost


def small(case: str) -> tuple[Topology, Workload]:
    """The machines and the job of a case."""
    speeds, flops, parameters = CASES[case]
    world = topology(speeds)
    return world, workload(world, model(flops=flops, parameters=parameters), global_batch=5)


def test_looking_at_every_layout_ends_when_the_time_does() -> None:
    """24 micro-batches on three unequal machines can be shared in 253 ways: the time is asked for between them."""
    world = topology({"a0": 1e12, "a1": 2e12, "a2": 3e12})
    trials = Trials(Ground.of(workload(world, model(1), 24), world, world.machines))
    asked = iter(range(20))
    SEARCHES["exact"](trials, Space((Option(1),), (1,), data=3), lambda: next(asked) < 10, 0)
    assert not trials.is_proven
    assert 10 <= trials.num_evaluations <= 11


@pytest.mark.parametrize("shares", ["planned", "equal"])
def test_planning_ends_after_its_evaluations_however_many_micro_batches_there_are(shares: Any) -> None:
    """4 replicas share 100,000 micro-batches in 1.7e14 ways: no attempt at a proof counts through them."""
    world = topology({"a0": 1e12, "b0": 2e12}, num_accelerators=2)
    job = workload(world, model(), 100_000, micro_batch=1, shares=shares)
    trials = Trials(Ground.of(job, world, world.machines))
    num_asked = 0

    def going_on() -> bool:
        nonlocal num_asked
        num_asked += 1
        assert num_asked < 100_000
        return trials.num_evaluations < 5000

    SEARCHES["portfolio"](trials, space_of(trials.ground), going_on, 0)
    assert 5000 <= trials.num_evaluations < 10_000
    assert not trials.is_proven


def test_looking_at_every_layout_counts_as_it_goes() -> None:
    """A budget of evaluations ends it among the ways to share micro-batches on the same machines."""
    world = topology({"a0": 1e12, "a1": 2e12, "a2": 3e12})
    trials = Trials(Ground.of(workload(world, model(1), 1000), world, world.machines))
    SEARCHES["exact"](trials, Space((Option(1),), (1,), data=3), lambda: trials.num_evaluations < 50, 0)
    assert trials.num_evaluations == 50


def test_equal_shares_are_enumerated_alone() -> None:
    """10,001 micro-batches on three machines alike but in speed: three ways, not all 5e7 compositions."""
    world = topology({"a0": 1e12, "a1": 2e12, "a2": 3e12})
    trials = Trials(Ground.of(workload(world, model(1), 10_001, shares="equal"), world, world.machines))
    SEARCHES["exact"](trials, Space((Option(1),), (1,), data=3), lambda: True, 0)
    assert trials.is_proven
    assert trials.num_evaluations == 3


def test_greedy_finds_the_optimum_where_whole_regions_are_best() -> None:
    world = topology({"a0": 1e12, "a1": 1e12})
    job = workload(world, model(), global_batch=4)
    assert searched("greedy", world, job, 10**6).best_cost == searched("exact", world, job, 10**9).best_cost


@pytest.mark.parametrize("search", list(SEARCHES))
def test_the_same_seed_and_work_give_the_same_layout(search: str) -> None:
    world = topology({"a0": 3e12, "a1": 1e12, "b0": 2e12, "c0": 1e12})
    job = workload(world, model(), global_batch=6)
    first, second = (searched(search, world, job, 5000).best(1)[0] for _ in range(2))
    assert first.cost == second.cost
    assert all((a == b).all() for a, b in zip(first.layout, second.layout, strict=True))


SPEEDS = st.dictionaries(
    st.sampled_from(["a0", "a1", "b0", "b1", "c0"]), st.sampled_from([5e11, 1e12, 3e12]), min_size=2, max_size=4
)


@settings(max_examples=15, deadline=None)
@given(SPEEDS, st.randoms(use_true_random=False), st.integers(2, 4))
def test_order_and_names_of_machines_change_nothing(speeds: dict[str, float], chance: Any, batch: int) -> None:
    world = topology(speeds)
    machines = list(world.machines)
    chance.shuffle(machines)
    renamed = replace(world, machines=tuple(replace(m, name=f"x{n}") for n, m in enumerate(machines)))
    costs = [searched("exact", w, workload(w, model(), batch), 10**9).best_cost for w in (world, renamed)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


@settings(max_examples=15, deadline=None)
@given(SPEEDS, st.data())
def test_losing_a_machine_or_a_link_never_improves_the_optimum(speeds: dict[str, float], data: st.DataObject) -> None:
    world = topology(speeds)
    lost = data.draw(st.sampled_from(sorted(speeds)))
    fewer = replace(world, machines=tuple(m for m in world.machines if m.name != lost))
    pair = data.draw(st.sampled_from(sorted(world.region_links)))
    links = {ends: link for ends, link in world.region_links.items() if ends != pair}
    best = searched("exact", world, workload(world, model(), 3), 10**9).best_cost
    for poorer in (fewer, replace(world, region_links=links)):
        assert searched("exact", poorer, workload(poorer, model(), 3), 10**9).best_cost >= best * (1 - 1e-12)


@settings(max_examples=15, deadline=None)
@given(SPEEDS, st.data())
def test_one_machine_or_link_more_never_worsens_what_the_portfolio_converges_to(
    speeds: dict[str, float], data: st.DataObject
) -> None:
    """Worlds of this size have it look at all layouts before so many."""
    more = topology({**speeds, "d9": data.draw(st.sampled_from([5e11, 1e12, 4e12]))})
    fewer = replace(more, machines=more.machines[:-1])
    pair = data.draw(st.sampled_from(sorted(more.region_links)))
    unlinked = replace(more, region_links={ends: link for ends, link in more.region_links.items() if ends != pair})
    best = searched("portfolio", more, workload(more, model(), 3), 200_000).best_cost
    for poorer in (fewer, unlinked):
        assert best <= searched("portfolio", poorer, workload(poorer, model(), 3), 200_000).best_cost * (1 + 1e-9)


def test_the_prediction_is_what_the_search_went_by() -> None:
    world = topology({"a0": 3e12, "a1": 1e12, "b0": 2e12, "b1": 2e12, "c0": 1e12})
    job = workload(world, model(), global_batch=8)
    trials = searched("portfolio", world, job, 3000)
    for trial in trials.best(8):
        plan = plan_of(trials, trial)
        seconds = [predict(replace(plan, num_buckets=number), job, world).step_s for number in (1, 2)]
        assert min(seconds) == pytest.approx(trial.cost, rel=0.02)


def test_local_sgd_costs_what_it_is_predicted_to() -> None:
    """20 steps bear one all-reduce together, after which nothing is left to overlap with."""
    world = topology({"a0": 3e12, "a1": 1e12, "a2": 2e12, "a3": 2e12})
    world = replace(world, region_links={("a", "a"): Link(0.02, 1e6)})
    job = workload(world, model(), global_batch=8, sync=Sync("local", inner_steps=20))
    trials = searched("portfolio", world, job, 3000)
    for trial in trials.best(20):
        plan = replace(plan_of(trials, trial), inner_steps=20)
        seconds = [predict(replace(plan, num_buckets=number), job, world).step_s for number in (1, 2)]
        assert min(seconds) == pytest.approx(trial.cost, rel=0.02)
    assert trials.best(1)[0].shape.data > 1


@pytest.mark.parametrize("shares", ["equal", "planned"])
@pytest.mark.parametrize(("global_batch", "micro_batch"), [(3, 2), (10, 4), (13, 8), (12, 4), (23, 3)])
def test_micro_batches_that_do_not_divide_cost_what_they_are_predicted_to(
    global_batch: int, micro_batch: int, shares: Any
) -> None:
    """3 sequences in micro-batches of 2 are not 4: each layout that random and annealing searches come by."""
    world = topology({"a0": 3e12, "a1": 1e12, "b0": 2e12, "b1": 2e12, "c0": 1e12})
    sync = Sync(mode="ring")
    job = workload(world, model(), global_batch, micro_batch=micro_batch, shares=shares, sync=sync)
    space, differing = space_of(Ground.of(job, world, world.machines)), set()
    for search in ("random", "portfolio"):
        trials = searched(search, world, job, 3000, space)
        for trial in trials.best(100):
            plan = plan_of(trials, trial)
            assert sum(plan.shares) == global_batch
            assert min(plan.shares) >= 1
            assert sum(-(-share // micro_batch) for share in plan.shares) >= -(-global_batch // micro_batch)
            if shares == "equal":
                assert max(plan.shares) - min(plan.shares) <= 1
            seconds = min(predict(replace(plan, num_buckets=number), job, world).step_s for number in (1, 2))
            assert trial.cost == pytest.approx(seconds, rel=1e-9 if plan.layout.data == 1 else 0.02)
            differing.add(plan.shares)
    assert len(differing) > 1


@pytest.mark.parametrize(("each", "tensor"), [(2, None), (2, 1), (3, 1), (3, 2), (4, None)])
@pytest.mark.parametrize("search", list(SEARCHES))
def test_every_layout_that_is_possible_has_whole_workers(search: str, each: int, tensor: int | None) -> None:
    """Machines of 1 to 7 accelerators, the fastest of them with an odd number."""
    sizes = {"a0": (7, 3e12), "a1": (4, 1e12), "b0": (6, 2e12), "b1": (1, 9e12), "c0": (3, 2e12)}
    machines = tuple(
        Machine(name, name[0], num_accelerators=num, flops_per_s=speed) for name, (num, speed) in sizes.items()
    )
    world = replace(topology({"a0": 1e12, "b0": 1e12, "c0": 1e12}), machines=machines)
    job = workload(world, model(), 12, tensor=tensor, accelerators_per_worker=each, max_workers=3)
    job = replace(job, candidates={machine.name: machine.num_accelerators // each for machine in machines})
    plan = place(job, world, Budget(3000), clock=lambda: 0.0, search=SEARCHES[search])
    assert isinstance(plan, Plan)
    held = plan.accelerators()
    assert all(num % each == 0 and num <= sizes[name][0] for name, num in held.items()), held
    assert each <= plan.layout.num_ranks <= 3 * each


@pytest.mark.parametrize(
    ("num", "asked", "layout"),
    [
        (5, {"data": 1}, (1, 5, 1)),
        (7, {"data": 1, "tensor": 1}, (1, 7, 1)),
        (10, {"data": 2, "tensor": 1}, (2, 5, 1)),
        (9, {"tensor": 1, "micro_batch": 4}, (1, 9, 1)),  # 2 micro-batches, so no more than 2 replicas
        (9, {"data": 3, "pipeline": 3}, (3, 3, 1)),
    ],
)
def test_a_layout_has_as_many_stages_as_the_number_of_accelerators_asks_for(
    num: int, asked: dict[str, int], layout: tuple[int, int, int]
) -> None:
    """Numbers of stages that no search would try by itself."""
    world = topology({f"a{n}": 1e12 for n in range(10)})
    job = workload(world, model(num_layers=11), 8, min_workers=num, max_workers=num, **asked)
    plan = place(job, world, Budget(1000), clock=lambda: 0.0)
    assert isinstance(plan, Plan), plan
    assert plan.layout == Layout(*layout)


@pytest.mark.whole  # in short: the numbers of stages that no search would try by itself
def test_all_numbers_of_stages_are_looked_at_before_a_plan_is_proven() -> None:
    """Five machines that are as fast, a sixth that is not, and gradients that take long: 1 x 5, not 1 x 4 or 1 x 6."""
    world = topology({f"a{n}": 1e12 if n < 5 else 1e7 for n in range(6)})
    trained = model(num_layers=10, parameters=10**9, output=1)
    job = workload(world, trained, 32, micro_batch=1)
    for search in ("exact", "portfolio"):
        plan = place(job, world, Budget(10**6), clock=lambda: 0.0, search=SEARCHES[search])
        assert isinstance(plan, Plan)
        assert plan.layout == Layout(1, 5, 1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"pipeline": 1, "tensor": 2, "min_workers": 3, "max_workers": 3},
            "No layout with pipeline 1, tensor 2 has 3 accelerators, where there are 11 layers and a global batch of 8",
        ),
        (
            {"data": 3, "pipeline": 1, "tensor": 1, "accelerators_per_worker": 2, "max_workers": 5},
            "No layout with data 3, pipeline 1, tensor 1 has 2 to 10 accelerators in whole workers of 2",
        ),
        (
            {"data": 3, "tensor": 1, "min_workers": 4, "max_workers": 5},
            "No layout with data 3, tensor 1 has 4 to 5 accelerators",
        ),
    ],
)
def test_degrees_that_cannot_have_the_accelerators_asked_for_are_named(asked: dict[str, Any], said: str) -> None:
    world = topology({f"a{n}": 1e12 for n in range(5)}, num_accelerators=2)
    job = workload(world, model(num_layers=11), 8, **asked)
    found = place(job, world, Budget(1000), clock=lambda: 0.0)
    assert isinstance(found, Unplaced)
    assert found.reason == "ContradictoryPlacement"
    assert found.message.startswith(said)


def test_layouts_that_need_more_accelerators_than_there_are_say_how_many() -> None:
    """Three replicas are no whole workers of two, six are."""
    world = topology({"a0": 1e12}, num_accelerators=4)
    job = workload(world, model(), 8, data=3, tensor=1, accelerators_per_worker=2, max_workers=3)
    assert place(job, world, Budget(1000), clock=lambda: 0.0) == Unplaced(
        "NotEnoughAccelerators",
        "Layouts with data 3, tensor 1 that have 2 to 6 accelerators in whole workers of 2 have at least 6, and there "
        "are 4.",
    )


def test_annealing_moves_whole_workers() -> None:
    """From four slow machines to four fast ones, two cells of a worker each; cells of other workers stay."""
    world = topology({f"a{n}": 1e12 if n < 4 else 5e12 for n in range(8)}, num_accelerators=4)
    job = workload(world, model(), 8, accelerators_per_worker=2)
    job = replace(job, candidates={machine.name: 2 for machine in world.machines})
    trials = Trials(Ground.of(job, world, world.machines))
    trial = trials.build(Shape(Option(1), 2, 4), np.repeat(np.arange(4), 2), np.zeros(1, np.int64), by_rows=True)
    found = annealed(trials, trial, 5, lambda: True, seed=0)
    assert trials.is_possible(found)
    assert found.layout.machine_DP.min() >= 4
    assert found.cost == evaluate(trials.setting(Option(1)), found.layout, trials.cache(trial.shape))


def test_a_pipeline_is_planned_where_the_model_fits_no_machine_alone() -> None:
    world = topology({"a0": 1e12, "a1": 1e12, "b0": 1e12}, memory_bytes=GIB)
    job = workload(world, model(parameters=20_000_000), global_batch=8)
    plan = place(job, world, Budget(20_000))
    assert isinstance(plan, Plan)
    assert plan.layout.pipeline > 1
    assert plan.why[0].startswith(f"1 replica of {plan.layout.pipeline} stages of 1 accelerator, in ")
    assert plan.prediction.memory_bytes <= GIB
    assert sum(plan.shares) == 8


def test_a_layer_too_large_for_every_machine_is_named() -> None:
    world = topology({"a0": 1e12, "b0": 1e12}, memory_bytes=GIB)
    found = place(workload(world, model(parameters=100_000_000)), world, Budget(2000))
    assert isinstance(found, Unplaced)
    assert found.reason == "NoMemory"
    assert "7.45 GiB" in found.message
    assert (
        "No number of accelerators of 1.00 GiB (unknown) would do: layer 0 (layer.0) alone needs 1.86" in found.message
    )


def test_pinned_layers_are_where_they_must_be() -> None:
    world = topology({"a0": 1e12, "b0": 1e12, "c0": 1e12})
    job = workload(world, model(), 8, layer_pins=(LayerPin((0,), regions=("a",)), LayerPin((3,), machines=("c0",))))
    plan = place(job, world, Budget(20_000))
    assert isinstance(plan, Plan)
    stages = [*plan.stages, 4]
    for replica in range(plan.layout.data):
        homes = {
            layer: plan.machine(replica, stage)
            for stage in range(plan.layout.pipeline)
            for layer in range(stages[stage], stages[stage + 1])
        }
        assert homes[0] == "a0"
        assert homes[3] == "c0"


def test_the_price_stays_below_its_limit_and_money_buys_the_cheapest_step() -> None:
    world = topology({"a0": 4e12, "b0": 1e12})
    dear = replace(world, machines=tuple(replace(m, price_per_hour=m.flops_per_s / 2.5e11) for m in world.machines))
    cheap = replace(dear, machines=tuple(replace(m, price_per_hour=10.0 + (m.name == "a0")) for m in world.machines))
    limited = place(workload(dear, model(), max_price_per_hour=5.0), dear, Budget(5000))
    assert isinstance(limited, Plan)
    assert {worker.machine for worker in limited.workers} == {"b0"}
    thrifty = place(workload(cheap, model(), objective="throughput-per-money"), cheap, Budget(5000))
    assert isinstance(thrifty, Plan)
    assert {worker.machine for worker in thrifty.workers} == {"a0"}


@pytest.mark.parametrize("num_machines", [64, 500])
def test_below_a_price_many_machines_give_no_worse_a_plan_than_two(num_machines: int) -> None:
    """Of 2,000 accelerators 13 may be used."""
    steps_s = []
    for num in (2, num_machines):
        world = topology({f"a{n}": 1.2e14 for n in range(num)}, num_accelerators=4, memory_bytes=40 * GIB)
        world = replace(world, machines=tuple(replace(m, price_per_hour=2.9) for m in world.machines))
        trained = Model.of(preset("gpt2-xl"), "bf16")
        job = workload(world, trained, global_batch=64, micro_batch=1, max_price_per_hour=40.0)
        found = place(job, world, Budget(300))
        assert isinstance(found, Plan)
        steps_s.append(found.prediction.step_s)
    assert steps_s[1] <= steps_s[0]


def test_evaluating_again_gives_the_same_cost() -> None:
    world = topology({"a0": 3e12, "a1": 1e12, "b0": 2e12, "b1": 2e12})
    job = workload(world, model(), global_batch=8)
    trials = searched("portfolio", world, job, 20_000, space_of(Ground.of(job, world, world.machines)))
    for trial in trials.best(8):
        setting, cache = trials.setting(trial.shape.option), trials.cache(trial.shape)
        assert evaluate(setting, trial.layout, cache) == trial.cost


@given(
    st.integers(0, 1000),
    st.sampled_from(["auto", "ring"]),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from(["planned", "equal"]),
)
@settings(max_examples=num_examples(60))
def test_annealing_costs_are_those_of_the_layout_from_scratch(
    seed: int, mode: Any, each: int, micro_batch: int, shares: Any
) -> None:
    """Whatever was tried and undone before, and over several calls of the compiled loop."""
    world = topology({"a0": 1e12, "a1": 2e12, "b0": 1e12, "b1": 1e12, "c0": 3e12, "c1": 1e12}, num_accelerators=6)
    many = {"accelerators_per_worker": each, "shares": shares}
    job = workload(world, model(parameters=10_000_000), global_batch=23, sync=Sync(mode=mode), **many)
    trials = Trials(Ground.of(job, world, world.machines))
    shape, order = Shape(Option(micro_batch), 2, 3), np.repeat(np.arange(6), each)
    trial = trials.build(shape, order, np.arange(3), by_rows=True)
    setting, cache = trials.setting(trial.shape.option), trials.cache(trial.shape)
    layout, best = copy_of(trial.layout), copy_of(trial.layout)
    free = setting.slots_M - np.bincount(layout.machine_DP.ravel(), minlength=6)
    cost = best_cost = evaluate(setting, layout, cache)
    fresh = Cache(2, 3, 3, 6)
    for call in range(60):
        cost, best_cost = anneal(setting, layout, cache, free, best, cost, best_cost, 3, 0.1, 0.01, 60 * seed + call)
        assert evaluate(setting, layout, fresh) == cost
        assert evaluate(setting, best, fresh) == best_cost
        held = np.bincount(layout.machine_DP.ravel(), minlength=6)
        assert (free == setting.slots_M - held).all()
        assert (held % each == 0).all()
        assert layout.shares_D.sum() == 23


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 40), st.integers(1, 3))
def test_no_micro_batch_is_lost_when_they_are_shared(speeds: list[int], num_batches: int, num_stages: int) -> None:
    """Speeds whose quotients are not whole numbers in binary."""
    data = min(len(speeds), num_batches)
    world = topology({f"a{n}": speed * 0.7e11 for n, speed in enumerate(speeds * num_stages)})
    trials = Trials(Ground.of(workload(world, model(), global_batch=num_batches), world, world.machines))
    order = np.arange(data * num_stages)
    trial = trials.build(Shape(Option(1), data, num_stages), order, np.zeros(1, np.int64), by_rows=True)
    assert trial.layout.shares_D.sum() == num_batches
    assert trial.layout.shares_D.min() >= 1


@pytest.mark.parametrize("num_looks", [2, 25, 120])
def test_a_search_that_time_ends_says_so_and_can_be_made_again(num_looks: int) -> None:
    """By a clock on which the search's time is over at some look; annealing evaluates nothing between some of them."""
    there = topology({f"{region}-{number}": 1e12 * (1 + number) for region in "abcd" for number in range(4)})
    job = workload(there, model(num_layers=12), global_batch=32)
    looks = itertools.count()
    ended = Budget(iterations=10**9, seconds=1e6)
    found = place(job, there, ended, clock=lambda: 0.0 if next(looks) < num_looks else 0.9e6)
    assert isinstance(found, Plan)
    *why, last = found.why
    assert last == f"The search was stopped after 8.5e+05 s, at iteration {num_looks}: the best found until then."
    again = place(job, there, Budget(iterations=10**9, record=Record([{num_looks: 100}])))
    assert isinstance(again, Plan)
    assert (again.workers, again.layout, again.iterations) == (found.workers, found.layout, found.iterations)
    assert again.why == tuple(why)
