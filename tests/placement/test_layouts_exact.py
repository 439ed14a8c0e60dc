"""The search that looks at every layout: it ends in time, and what it proves is true of layouts that are possible."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hulk_placement.cost.closed_form.arrays import Layout
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.fit import misfits, unknown_links
from hulk_placement.layer_pins import LayerPin
from hulk_placement.layouts.place import place
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Shape, Trials
from hulk_placement.model import Layer, Model
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from split_cases import model, topology, workload

from bench.compare.__main__ import outcome_words
from bench.layout_searches import SEARCHES
from bench.layout_searches.compare import Comparison, compare


def test_looking_at_every_layout_ends_with_the_time_where_no_machine_has_the_memory() -> None:
    """Nothing is evaluated there: no cells hold the model's state."""
    world = topology({"a0": 1e12, "a1": 2e12, "a2": 3e12}, memory_bytes=1)
    trials = Trials(Ground.of(workload(world, trained=model(1), global_batch=24), world, world.machines))
    asked = iter(range(20))
    SEARCHES["exact"](trials, Space((Option(1),), (1,), data=2), lambda: next(asked) < 1, 0)
    assert next(asked) == 2
    assert (trials.num_evaluations, trials.is_proven) == (0, False)


@pytest.mark.parametrize("search", ["exact", "portfolio"])
def test_searches_end_in_time_with_the_largest_batch_that_files_allow(search: str) -> None:
    """1,048,576 micro-batches on unequal machines, each second of the clock asked for."""
    world = topology({"a0": 1e12, "a1": 2e12, "b0": 3e12}, num_accelerators=2)
    trials = Trials(Ground.of(workload(world, trained=model(4), global_batch=1 << 20), world, world.machines))
    end_s = time.monotonic() + 0.5
    SEARCHES[search](trials, space_of(trials.ground), lambda: time.monotonic() < end_s, 0)
    assert time.monotonic() < end_s + 30
    assert trials.best_cost < math.inf


TIGHT = Machine("a0", "a", flops_per_s=1e13, memory_bytes=2_900_000_000), Machine("b0", "a", flops_per_s=1e12)
"""The model holds 2.8 GB, a micro-batch 0.2; the faster machine has a little less, the other as much as it takes."""


def tight(*machines: Machine) -> tuple[Workload, Topology]:
    world = Topology(machines, region_links={("a", "a"): Link(1e-4, 1e9)})
    trained = Model((Layer("only", 140_000_000, 1e12, 2e12, 0, 200_000_000),))
    return workload(world, trained=trained, max_workers=1), world


def test_what_is_proven_is_proven_of_layouts_that_are_possible() -> None:
    """Ten times as fast and 3 % too small: cheaper, with what it lacks counted, and no plan."""
    job, world = tight(*TIGHT)
    found = compare(job, world, 100.0, lambda: 0.0, ["exact"])
    assert isinstance(found, Comparison)
    assert found.rows[0].is_proven
    assert found.rows[0].cost == pytest.approx(4 * 3e12 / 1e12)


def test_impossible_is_said_only_where_everything_was_looked_at() -> None:
    job, world = tight(TIGHT[0], replace(TIGHT[0], name="a1", flops_per_s=2e13))
    found = compare(job, world, 100.0, lambda: 0.0, ["exact", "greedy"])
    assert isinstance(found, Comparison)
    words = [outcome_words(row) for row in found.rows]
    assert words == ["impossible: it has looked at everything", "no plan found in what it tries"]
    ticks = iter(range(1_000))
    found = compare(job, world, 1.0, lambda: float(next(ticks)), ["exact"])
    assert isinstance(found, Comparison)
    (row,) = found.rows
    assert outcome_words(row) == f"no plan found when the time ended, after {row.seconds:.2f} s"
    assert row.seconds >= 1.0


@pytest.mark.parametrize("search", ["exact", "portfolio"])
def test_what_lacks_a_little_hides_no_layout_that_is_possible(search: str) -> None:
    """The one machine where pins allow the layers is dearer and slower than another in its region, and still found."""
    machines = (
        Machine("a0", "a", num_accelerators=2, flops_per_s=7e12, price_per_hour=0.5),
        Machine("a1", "a", num_accelerators=2, flops_per_s=1e12, price_per_hour=2.0),
    )
    world = Topology(machines, region_links={("a", "a"): Link(1e-4, 1e9)})
    pin = LayerPin((0, 1), machines=("a1",))
    asked = workload(
        world, trained=model(2), layer_pins=(pin,), objective="throughput-per-money", max_price_per_hour=4.0
    )
    found = place(asked, world, Budget(4000), search=SEARCHES[search])
    assert isinstance(found, Plan), found
    assert {worker.machine for worker in found.workers} == {"a1"}


@pytest.mark.parametrize("search", ["exact", "portfolio", "random"])
def test_what_a_step_costs_is_not_taken_for_its_seconds(search: str) -> None:
    """24 s on the machine with most speed for its price cost 0.0067: no price is as much as any step's seconds."""
    machines = (
        Machine("a0", "a", flops_per_s=8e12, price_per_hour=16.0),
        Machine("a1", "a", flops_per_s=1e12, price_per_hour=1.0),
    )
    world = Topology(machines, region_links={("a", "a"): Link(1e-4, 1e9)})
    asked = workload(world, objective="throughput-per-money")
    found = place(asked, world, Budget(2000), search=SEARCHES[search])
    assert isinstance(found, Plan)
    assert [worker.machine for worker in found.workers] == ["a1"]
    assert found.prediction.price == pytest.approx(24 / 3600)
    assert found.optimality_gap == pytest.approx(0, abs=1e-9)


def test_a_tour_over_an_unknown_link_does_not_end_the_look_at_others() -> None:
    """Of three replicas in three regions only a -> c -> b -> a is known; the bound on the batch asks for all three."""
    machines = tuple(Machine(f"{region}0", region, flops_per_s=1e12) for region in "abc")
    links = {(a, b): Link(0.01, 1e9) for a, b in ("ac", "cb", "ba", "aa", "bb", "cc")}
    world = Topology(machines, region_links=links)
    asked = workload(world, trained=model(1), data=3, pipeline=1, global_batch=3)
    trials = Trials(Ground.of(asked, world, world.machines))
    SEARCHES["exact"](trials, space_of(trials.ground), lambda: True, 0)
    assert trials.is_proven
    assert trials.best_cost < math.inf


def test_prices_that_sum_to_the_limit_keep_it() -> None:
    """Three times 0.1 is a little more than 0.3 in binary."""
    world = topology({"a0": 1e12, "a1": 1e12, "a2": 1e12}, price_per_hour=0.1)
    asked = workload(world, trained=model(3), pipeline=3, max_price_per_hour=0.3)
    found = place(asked, world, Budget(2000))
    assert isinstance(found, Plan), found
    assert not list(misfits(found, asked, world))


def test_more_replicas_than_micro_batches_are_refused_with_both_numbers() -> None:
    world = topology({"a0": 1e12, "a1": 1e12, "a2": 1e12}, memory_bytes=1 << 30)
    found = place(workload(world, data=3, micro_batch=2), world, Budget(2000))
    assert found == Unplaced(
        "BatchTooSmall",
        "3 replicas need a micro-batch each, and a global batch of 4 in micro-batches of 2 has 2.",
    )


def test_more_stages_than_layers_are_refused_with_both_numbers() -> None:
    world = topology({"a0": 1e12, "a1": 1e12})
    found = place(workload(world, trained=model(1), pipeline=2), world, Budget(2000))
    assert found == Unplaced(
        "MoreStagesThanLayers", "2 stages are asked for, and the model has 1 layer: each stage needs one at least."
    )


@pytest.mark.parametrize("search", list(SEARCHES))
def test_searches_end_where_no_shape_has_room(search: str) -> None:
    """One layer and two micro-batches are two accelerators at most, and three are asked for."""
    world = topology({"a0": 1e12, "a1": 1e12, "a2": 1e12})
    asked = workload(world, trained=model(1), micro_batch=2, min_workers=3)
    found = place(asked, world, Budget(2000), search=SEARCHES[search])
    assert found == Unplaced(
        "ContradictoryPlacement",
        "Layouts have at most 2 accelerators, with 1 layer and a global batch of 4; at least 3 are asked for: the two "
        "exclude each other.",
    )


def test_where_there_are_few_layouts_the_only_possible_one_is_found() -> None:
    """The first two layers fit the slow machine alone, pins keep the third on a fast one; greedy tries neither."""
    machines = (
        Machine("a0", "a", num_accelerators=2, flops_per_s=7e12, memory_bytes=270_000_000),
        Machine("a1", "a", flops_per_s=1e12),
    )
    world = Topology(machines, region_links={("a", "a"): Link(1e-4, 1e9)})
    sizes = (20_000_000, 20_000_000, 4_000_000)
    trained = Model(tuple(Layer(f"layer.{n}", size, 1e12, 2e12, 1000, 1000) for n, size in enumerate(sizes)))
    asked = workload(world, trained=trained, layer_pins=(LayerPin((2,), machines=("a0",)),))
    found = place(asked, world, Budget(1), search=SEARCHES["greedy"])
    assert isinstance(found, Plan), found
    assert ([worker.machine for worker in found.workers], found.stages) == (["a1", "a0"], (0, 2))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("each", [1, 2])
def test_machines_of_other_sizes_are_told_apart(each: int, order: int) -> None:
    """One replica beside another inside the larger machine, over a slow link else: whichever machine comes first."""
    world = topology({"a0": 1e12, "a1": 1e12})
    machines = [replace(m, num_accelerators=(n + 1) * each) for n, m in enumerate(world.machines)][::order]
    world = replace(world, machines=tuple(machines), region_links={("a", "a"): Link(0.5, 1e5)})
    asked = workload(world, trained=model(num_layers=2, flops=1e11), min_workers=2, max_workers=2, tensor=1)
    asked = replace(asked, accelerators_per_worker=each, candidates={"a0": 1, "a1": 2})
    found = place(asked, world, Budget(100_000), clock=lambda: 0.0, search=SEARCHES["exact"])
    assert isinstance(found, Plan)
    assert found.accelerators() == {"a1": 2 * each}


def test_machines_that_a_pin_tells_apart_are_not_alike() -> None:
    world = topology({"a0": 1e12, "a1": 1e12})
    asked = workload(world, pipeline=1, tensor=1, data=1, layer_pins=(LayerPin((0,), machines=("a1",)),))
    found = place(asked, world, Budget(1000), clock=lambda: 0.0, search=SEARCHES["exact"])
    assert isinstance(found, Plan)
    assert set(found.accelerators()) == {"a1"}


@pytest.mark.parametrize(("global_batch", "micro_batch"), [(6, 4), (9, 8), (12, 8), (11, 3), (6, 2), (8, 4), (16, 4)])
def test_no_other_shares_are_better_than_proven_ones(global_batch: int, micro_batch: int) -> None:
    """3 and 3 sequences are better than 4 and 2; so they may be where micro-batches divide the batch."""
    world = topology({"a0": 1e12, "a1": 1e12, "a2": 2e12, "a3": 2e12})
    degrees = {"data": 2, "pipeline": 2, "tensor": 1}
    asked = workload(world, global_batch=global_batch, micro_batch=micro_batch, schedule="1f1b", **degrees)
    found = place(asked, world, Budget(100_000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    assert found.optimality_gap == 0.0
    others = [replace(found, shares=(first, global_batch - first)) for first in range(1, global_batch)]
    best_s = min(predict(other, asked, world).step_s for other in others)
    assert found.prediction.step_s == pytest.approx(best_s, rel=1e-9)


@pytest.mark.parametrize("search", ["exact", "portfolio", "local"])
def test_whole_micro_batches_are_shared_by_sequences(search: str) -> None:
    """1 and 3 sequences keep a machine and one of three times the speed busy as long; 2 and 2 do not."""
    world = topology({"a0": 1e12, "a1": 3e12})
    asked = workload(world, global_batch=4, micro_batch=2, data=2, pipeline=1, tensor=1)
    found = place(asked, world, Budget(2_000), clock=lambda: 0.0, search=SEARCHES[search])
    assert isinstance(found, Plan)
    assert dict(zip(found.rank_machines, found.shares, strict=True)) == {"a0": 1, "a1": 3}


def test_a_tensor_degree_that_leaves_no_whole_worker_is_passed_over() -> None:
    """Two ranks of three accelerators are no worker of three, and where two are asked for that is said."""
    layers = [Layer(f"l{n}", 40_000_000, 1e12, 2e12, 8, 8, tensor_bytes=8, num_tensor_allreduces=2) for n in range(9)]
    world = topology({"a0": 1e12, "a1": 1e12}, num_accelerators=3, memory_bytes=1 << 30)
    asked = workload(world, trained=Model(tuple(layers)), accelerators_per_worker=3, max_workers=9)
    found = place(asked, world, Budget(2000), clock=lambda: 0.0)
    assert isinstance(found, Unplaced)
    assert found.message.endswith("At least 3 machines of 3 accelerators of 1.00 GiB (unknown) would do.")
    found = place(replace(asked, tensor=2), world, Budget(2000), clock=lambda: 0.0)
    assert isinstance(found, Unplaced)
    assert "2 without room for a whole worker of 3 in tensor-parallel ranks of 2 (a0, a1)" in found.message


@pytest.mark.parametrize("each", [5, 7])
def test_stages_of_whole_workers_are_tried_whatever_their_number(each: int) -> None:
    """One worker, and no more micro-batches than leave one replica of as many stages as it has accelerators."""
    world = topology({"a0": 1e12}, num_accelerators=each)
    asked = workload(world, trained=model(num_layers=12), global_batch=2, tensor=1, accelerators_per_worker=each)
    found = place(replace(asked, max_workers=3), world, Budget(1000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    assert (found.layout.data, found.layout.pipeline) == (1, each)


@pytest.mark.parametrize("micro_batch", [1, 2, 8])
def test_micro_batches_of_one_sequence_are_as_long_whatever_they_might_hold(micro_batch: int) -> None:
    """Also what stages that share parameters wait for, with recomputation and without."""
    layers = [Layer(f"l{k}", 50_000_000, 1e11, 2e11, 100_000, 200_000) for k in range(4)]
    layers.append(Layer("head", 0, 1e11, 2e11, 1000, 2000, tied_to=0, tied_parameters=50_000_000))
    world = topology({f"a{n}": 1e12 for n in range(4)})
    asked = workload(world, trained=Model(tuple(layers)), global_batch=2, data=2, pipeline=2, tensor=1)
    found = place(asked, world, Budget(2000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    for recompute in (False, True):
        one = replace(found, schedule="1f1b", blocks=(), recompute=recompute)
        more, larger = replace(one, micro_batch=micro_batch), replace(asked, micro_batch=micro_batch)
        for evaluator in (predict, simulate):
            step_s = evaluator(one, asked, world).step_s
            assert evaluator(more, larger, world).step_s == pytest.approx(step_s, rel=1e-12)


@pytest.mark.parametrize(("data", "is_proven"), [(None, False), (1, True)])
def test_rings_over_links_of_single_machines_are_not_proven_best(data: int | None, is_proven: bool) -> None:
    """Of the region's link a ring takes 28 s, of the machines' own one 530 s: then a pipeline is better."""
    layers = [
        Layer(f"l{n}", num, 2e12, 4e12, 1000, 1000) for n, num in enumerate((40_000_000, 200_000_000, 40_000_000))
    ]
    world = topology({"a0": 3e12, "a1": 1e12})
    world = replace(world, node_links={("a0", "a1"): Link(0.05, 2.5e6), ("a1", "a0"): Link(0.05, 2.5e6)})
    asked = workload(world, trained=Model(tuple(layers)), global_batch=3, min_workers=2, tensor=1, data=data)
    found = place(replace(asked, schedule="1f1b"), world, Budget(100_000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    assert (found.layout.data, found.layout.pipeline) == (1, 2)
    assert (found.optimality_gap == 0.0) is is_proven


@pytest.mark.parametrize("speeds", [(1e12, 1e12), (1e12, 1e12, 1e12), (3e12, 1e12, 1e12)])
def test_one_machine_alone_is_planned_where_the_links_between_machines_are_slow(speeds: tuple[float, ...]) -> None:
    """By the region's link all of them are best; by the machines' own ones a ring takes hundreds of seconds."""
    world = topology({f"a{n}": speed for n, speed in enumerate(speeds)})
    names = [machine.name for machine in world.machines]
    slow = {pair: Link(0.2, 5e5) for pair in itertools.permutations(names, 2)}
    every_layer = LayerPin((0, 1), regions=("a",))
    asked = workload(world, trained=model(parameters=50_000_000), pipeline=1, layer_pins=(every_layer,))
    found = place(asked, replace(world, node_links=slow), Budget(2_000), clock=lambda: 0.0)
    assert isinstance(found, Plan), found
    assert [worker.machine for worker in found.workers] == ["a0"]


def test_a_slower_machine_in_place_of_one_that_is_badly_joined_gets_a_smaller_share() -> None:
    world = topology({"a0": 3e12, "a1": 3e12, "a2": 1e12})
    slow = {pair: Link(0.2, 5e5) for pair in itertools.permutations(("a0", "a1"), 2)}
    world = replace(world, node_links=slow | {pair: Link(0.2, 5e5) for pair in (("a1", "a2"), ("a2", "a1"))})
    asked = workload(world, max_workers=2, tensor=1, pipeline=1, recompute=False)
    found = place(asked, world, Budget(2_000), clock=lambda: 0.0)
    assert isinstance(found, Plan), found
    assert {worker.machine: share for worker, share in zip(found.workers, found.shares, strict=True)} == {
        "a0": 3,
        "a2": 1,
    }


def hubs(counts: dict[str, int], good: set[str]) -> tuple[Workload, Topology]:
    """A replica on each of so many machines a region; links of 10 ms between regions that are paired, of 500 else."""
    machines = tuple(Machine(f"{r}{n}", r, flops_per_s=1e12) for r, num in counts.items() for n in range(num))
    near, far = Link(0.01, 1e8), Link(0.5, 1e6)
    links = {(a, b): near if {a + b, b + a} & good else far for a in counts for b in counts if a != b}
    world = Topology(machines, region_links=links | {(a, a): Link(1e-4, 1e10) for a in counts})
    asked = workload(world, trained=model(1, parameters=1_000_000), global_batch=len(machines))
    return replace(asked, data=len(machines), pipeline=1, tensor=1), world


@pytest.mark.parametrize(
    ("counts", "good"),
    [
        ({"h": 3, "a": 1, "b": 1, "c": 1}, {"ha", "hb", "hc"}),
        ({"a": 1, "h": 2, "k": 2, "b": 1}, {"ah", "hk", "kb"}),
    ],
    ids=["a hub that is visited three times", "two hubs that are visited twice"],
)
def test_rings_that_come_back_to_hubs_are_looked_at(counts: dict[str, int], good: set[str]) -> None:
    asked, world = hubs(counts, good)
    found = place(asked, world, Budget(100_000), clock=lambda: 0.0, search=SEARCHES["exact"])
    assert isinstance(found, Plan)
    assert found.optimality_gap == 0.0
    best_s = math.inf
    for rest in itertools.permutations(found.workers[1:]):
        for num_buckets in (1, 2):
            other = replace(found, workers=(found.workers[0], *rest), num_buckets=num_buckets)
            best_s = min(best_s, predict(other, asked, world).step_s)
    assert found.prediction.step_s == pytest.approx(best_s, rel=1e-9)


def test_machines_are_chosen_by_their_own_links() -> None:
    """Of four machines in a region all but one pair has a slow link of its own, which no search's rings know."""
    machines = tuple(Machine(f"a{n}", "a", flops_per_s=1e12) for n in range(4))
    slow = {(a.name, b.name): Link(0.3, 1e6) for a, b in itertools.permutations(machines, 2)}
    for pair in (("a1", "a3"), ("a3", "a1")):
        del slow[pair]
    world = Topology(machines, slow, {("a", "a"): Link(1e-4, 1e9)})
    asked = workload(world, trained=model(2), global_batch=4, data=2, pipeline=1, tensor=1)
    found = place(asked, world, Budget(2_000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    assert set(found.accelerators()) == {"a1", "a3"}
    assert found.prediction.communication_s < 0.1
    assert not list(misfits(found, asked, world))


def test_replicas_follow_each_other_by_their_machines_own_links() -> None:
    """Data flow from a replica to the one before it: of the ways round four machines one is quick."""
    machines = tuple(Machine(f"a{n}", "a", flops_per_s=1e12) for n in range(4))
    slow = {(a.name, b.name): Link(0.3, 1e6) for a, b in itertools.permutations(machines, 2)}
    for pair in itertools.pairwise(("a0", "a2", "a1", "a3", "a0")):
        del slow[pair]
    world = Topology(machines, slow, {("a", "a"): Link(1e-4, 1e9)})
    asked = workload(world, trained=model(2), global_batch=4, data=4, pipeline=1, tensor=1)
    found = place(asked, world, Budget(2_000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    assert found.prediction.communication_s < 0.1


def crossed() -> tuple[Workload, Topology]:
    """Two machines in each of three regions, activations so large that pipelines stay inside a region."""
    machines = tuple(Machine(f"{r}{n}", r, flops_per_s=1e12, memory_bytes=4_500_000_000) for r in "abc" for n in "01")
    links = {(a, b): Link(1e-4, 1e10) if a == b else Link(0.02, 1.25e7) for a in "abc" for b in "abc"}
    layers = tuple(Layer(f"l{n}", 50_000_000, 1e12, 2e12, 400_000_000, 400_000_000) for n in range(2))
    world = Topology(machines, region_links=links)
    asked = workload(world, trained=Model(layers), global_batch=6, schedule="1f1b", recompute=False)
    return replace(asked, data=3, pipeline=2, tensor=1), world


def test_rings_of_stages_are_turned_round_and_not_proven_best() -> None:
    """Both stages' rings cross the three regions: in opposite directions they share no link."""
    asked, world = crossed()
    found = place(asked, world, Budget(20_000), clock=lambda: 0.0)
    assert isinstance(found, Plan)
    ways = itertools.product([(0, 1, 2), (0, 2, 1)], repeat=2)
    best_s = min(predict(replace(found, rings=rings), asked, world).step_s for rings in ways)
    assert found.prediction.step_s == pytest.approx(best_s, rel=1e-9)
    assert found.prediction.step_s < 0.6 * predict(replace(found, rings=()), asked, world).step_s
    assert 0.0 < found.optimality_gap < 1.0


def test_no_ring_is_turned_onto_links_of_which_nothing_is_known() -> None:
    """They would be taken for quicker than what is known."""
    asked, world = crossed()
    links = {(a, b): Link(0.02, 1e4) if a != b else link for (a, b), link in world.region_links.items()}
    world = replace(
        world, region_links={pair: links[pair] for pair in links if "".join(pair) not in ("ba", "cb", "ac")}
    )
    found = place(asked, world, Budget(2_000), clock=lambda: 0.0)
    assert isinstance(found, Plan), found
    assert not unknown_links(found, asked, world)


def test_a_search_that_looked_at_one_tour_for_all_stages_is_not_proven_best() -> None:
    asked, world = crossed()
    found = compare(asked, world, 100.0, lambda: 0.0, ["exact"])
    assert isinstance(found, Comparison)
    assert not found.rows[0].is_proven


def test_rings_over_links_of_machines_own_are_not_proven_best() -> None:
    """The search prices them by their regions' link."""
    machines = tuple(Machine(name, "a", flops_per_s=1e12) for name in ("a0", "a1", "a2"))
    near = {pair: Link(1e-4, 1e9) for pair in (("a0", "a2"), ("a2", "a0"))}
    world = Topology(machines, region_links={("a", "a"): Link(0.05, 1e6)}, node_links=near)
    trained = Model((Layer("only", 1_000_000, 1e12, 2e12, 0, 1_000_000),))
    asked = replace(workload(world, trained=trained), data=2)
    for given, proven in ((world, False), (replace(world, node_links={}), True)):
        found = compare(asked, given, 100.0, lambda: 0.0, ["exact"])
        assert isinstance(found, Comparison)
        assert found.rows[0].is_proven == proven


def test_few_placements_of_many_cells_are_all_looked_at() -> None:
    """Four machines of two accelerators each hold a layout of just one size: two replicas of two stages of two."""
    machines = tuple(
        Machine(name, name[0], num_accelerators=2, flops_per_s=speed, memory_bytes=memory)
        for name, speed, memory in (("a0", 5e11, 0), ("b1", 3e12, 0), ("c2", 1e12, 400_000_000), ("c3", 1e12, 0))
    )
    rates = {"ab": 1e8, "ac": 1e8, "ba": 2e7, "bc": 1e8, "ca": 5e6, "cb": 5e6}
    links = {(a, b): Link(2e-4, 1e9) if a == b else Link(0.1, rates[a + b]) for a in "abc" for b in "abc"}
    world = Topology(machines, region_links=links, uplinks={"b": 1e6})
    figures = ((1_000_000, 1e11, 1_000_000, 0), (8_000_000, 1e12, 1000, 100_000), (1_000_000, 1e12, 1_000_000, 100_000))
    layers = tuple(
        Layer(
            f"l{n}", parameters, forward, 2e12, out, 1000, tensor_bytes=shared, num_tensor_allreduces=2 * bool(shared)
        )
        for n, (parameters, forward, out, shared) in enumerate(figures)
    )
    asked = workload(world, trained=Model(layers), global_batch=2, accelerators_per_worker=2, min_workers=4)
    asked = replace(asked, candidates=dict.fromkeys(asked.candidates, 1), max_workers=4)
    trials = Trials(Ground.of(asked, world, world.machines))
    SEARCHES["portfolio"](trials, space_of(trials.ground), lambda: trials.num_evaluations < 20_000, 0)
    assert trials.is_exhausted


def test_a_ring_waits_for_the_uplinks_that_it_crosses_alone() -> None:
    """The first stage sends 2 MB twice over the uplink at 1 MB/s, which the second stage does not use."""
    machines = tuple(Machine(f"{r}{n}", r, flops_per_s=1e12) for n, r in enumerate("abcc"))
    links = {(a, b): Link(1e-3, 1e9) if a == b else Link(0.01, 1e8) for a in "abc" for b in "abc"}
    world = Topology(machines, region_links=links, uplinks={"a": 1e6})
    layers = tuple(Layer(f"l{n}", 1_000_000, flops, flops, 1000, 1000) for n, flops in enumerate((1e11, 2e12)))
    asked = workload(world, trained=Model(layers), global_batch=2, data=2, pipeline=2, tensor=1, recompute=False)
    trials = Trials(Ground.of(asked, world, world.machines))
    number = {machine.name: n for n, machine in enumerate(trials.ground.machines)}
    cells = np.array([[number["a0"], number["c2"]], [number["b1"], number["c3"]]])
    layout = Layout(cells, np.array([0, 1, 2]), np.array([1, 1]), np.arange(len(trials.ground.regions)))
    shape = Shape(Option(1), 2, 2)
    cost = evaluate(trials.setting(shape.option), layout, trials.cache(shape))
    plan = plan_of(trials, trials.keep(shape, layout, cost))
    assert cost == pytest.approx(predict(plan, asked, world).step_s, rel=1e-9)
    first_s, second_s = trials.cache(shape).sync_P[:2]
    assert first_s == pytest.approx(4.0, rel=0.01)
    assert second_s < 0.1
