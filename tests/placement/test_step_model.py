"""The evaluator's two speeds beside each other: plans by chance, and each reason why they differ."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hulk_placement.cost.breakdown import Part, StepPart, step_parts
from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.predict import predict, step_seconds
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.simulation.plans import step_of
from hulk_placement.cost.simulation.step import Place
from hulk_placement.cost.timeline import chain
from hulk_placement.cost.where import where
from hulk_placement.model import Layer, Model
from hulk_placement.model.times import LayerTimes, TimesRow
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.search.flows import flows_of
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.step_model.drawn import draw

NUM_DRAWN = 280
LEAST_WITHIN = 250
TOLERANCE = 0.05
"""Of a step: nine of ten plans by chance are no further apart."""


def difference(plan: Plan, workload: Workload, topology: Topology) -> float:
    """How much longer the simulation says that a step is."""
    return simulate(plan, workload, topology).step_s / predict(plan, workload, topology).step_s - 1


def test_both_speeds_are_near_each_other_on_most_plans() -> None:
    """Data x pipeline x tensor, uneven stages and shares, both schedules, all options and algorithms."""
    differences, kinds = [], set()
    for seed in range(NUM_DRAWN):
        case = draw(seed)
        differences.append(abs(difference(case.plan, case.workload, case.topology)))
        plan = case.plan
        kinds |= {plan.algorithm, plan.schedule, plan.overlap, plan.num_buckets, plan.recompute, plan.layout.tensor}
    assert sum(found <= TOLERANCE for found in differences) >= LEAST_WITHIN
    assert float(np.median(differences)) < 0.001
    assert kinds >= {"ring", "wan", "hierarchical", "nccl", "parameter-server", "gpipe", "1f1b", False, 1, 2, 4}


def test_the_parts_of_a_step_are_the_step() -> None:
    for seed in range(100):
        case = draw(seed)
        found = simulate(case.plan, case.workload, case.topology)
        parts, spans = where(found), chain(found)
        assert parts.step_s == pytest.approx(found.step_s), seed
        assert min(row.seconds for row in parts.rows) > -1e-9 * found.step_s, seed
        assert [span.start_s for span in spans] == pytest.approx([0.0, *(span.end_s for span in spans[:-1])]), seed


def world(rate: float = 1e8, rtt_s: float = 0.01, **changes: Any) -> Topology:
    """Four machines in each of two regions, 1 TFLOP/s."""
    machines = tuple(
        Machine(f"{region}{n}", region, num_accelerators=4, flops_per_s=1e12) for region in "ab" for n in range(4)
    )
    links = {(a, b): Link(1e-4, 1e9) if a == b else Link(rtt_s, rate) for a in "ab" for b in "ab"}
    return replace(Topology(machines, region_links=links), **changes)


def job(
    parameters: tuple[int, ...] = (1000, 1000), output: int = 1000, seconds: float = 1.0, tied: int = 0
) -> Workload:
    """Layers of so many seconds (both passes, a sequence, at 1 TFLOP/s); the last may use the first parameters."""
    layers = [
        Layer(f"layer.{n}", number, seconds * 1e12 / 3, seconds * 2e12 / 3, output, 2 * output)
        for n, number in enumerate(parameters)
    ]
    if tied:
        layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=tied)
    return Workload("team/job", Model(tuple(layers)), 8, {}, allow_unknown_links=True)


def plan(machines: str, layout: Layout, **changes: Any) -> Plan:
    """On these machines in rank order, one stage for each layer."""
    options: Mapping[str, Any] = {
        "shares": (1,) * layout.data,
        "micro_batch": 1,
        "num_buckets": 1,
        "stages": tuple(range(layout.pipeline)),
    }
    workers = tuple(WorkerSlot(name, name[0], layout.tensor) for name in machines.split())
    return Plan("team/job", 0, workers, prediction=NOT_PREDICTED, layout=layout, **{**options, **changes})


TWO_STAGES = Layout(2, 2)
FOUR_PIPELINES = (
    plan("a0 b0 a1 b1 a2 b2 a3 b3", Layout(4, 2), shares=(2,) * 4),
    job(output=50_000_000, seconds=0.5),
    world(),
)
TIES_MEET = plan("a0 a1 a0 a1", TWO_STAGES), job((100_000_000, 1000), seconds=0.1, tied=100_000_000), world()
APART = {
    "transfers meet": (
        plan("a0 b0 a1 b1", Layout(1, 4), shares=(8,)),
        job((1000,) * 4, output=5_000_000, seconds=0.05),
        world(rate=2e7, rtt_s=0.0),
    ),
    "all reduces meet": (
        plan("a0 a1 b0 b1 b2 b3", Layout(3, 2)),
        job((40_000_000, 20_000_000), seconds=0.01),
        world(rtt_s=0.02),
    ),
    "all reduces apart": (
        plan("a0 a1 b0 b1", TWO_STAGES),
        job((10_000_000, 10_000_000), seconds=2.0),
        world(rtt_s=0.001),
    ),
    "all reduces among transfers": (
        plan("a0 a1 b0 a2 a3 a1", Layout(2, 3)),
        job((1000, 1000, 10_000_000), output=20_000_000, seconds=0.1),
        world(rtt_s=0.001),
    ),
    "uplinks full": (
        plan("a0 a1 b0 b1", Layout(2, 2, 4)),
        job((1_000_000, 1000), seconds=0.01),
        world(rtt_s=0.2, uplinks={"b": 1e7}),
    ),
    "early buckets": (
        plan("a0 b0", Layout(2), num_buckets=2, stages=(0,)),
        job((20_000_000,), seconds=3.0),
        world(rtt_s=0.001),
    ),
}


def test_pipelines_that_go_in_step_share_a_link_alike_at_both_speeds() -> None:
    assert difference(*FOUR_PIPELINES) == pytest.approx(0.0, abs=1e-9)


def test_a_schedule_given_block_by_block_is_that_of_its_name() -> None:
    topology, workload = world(), job(output=1_000_000)
    named = plan("a0 b0", Layout(1, 2), shares=(3,))
    blocks = (
        (("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)),
        (("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)),
    )
    own = replace(named, schedule="explicit", blocks=blocks)
    for evaluator in (predict, simulate):
        found, expected = (evaluator(one, workload, topology) for one in (own, named))
        assert found.step_s == pytest.approx(expected.step_s)
    assert predict(own, workload, topology).memory_bytes == predict(named, workload, topology).memory_bytes


def test_a_schedule_for_other_micro_batches_is_refused() -> None:
    own = plan("a0 b0", Layout(1, 2), shares=(3,), schedule="explicit", blocks=((("F", 0), ("B", 0)),) * 2)
    with pytest.raises(ValueError, match="the schedule has 1 micro-batches, a replica's share 3"):
        simulate(own, job(), world())


def test_tensor_parallel_ranks_share_the_link_between_their_machines() -> None:
    """Four rings, each with 100 MB over either edge, at 1 GB/s."""
    four, workload = plan("a0 a1", Layout(2, 1, 4), stages=(0,)), job((100_000_000,), seconds=0.01)
    for evaluator in (predict, simulate):
        assert evaluator(four, workload, world()).step_s == pytest.approx(0.4 + 0.01 / 4, rel=0.01)


def test_where_names_the_link_and_the_uplink_that_hold_a_step_back() -> None:
    workload, two = job((20_000_000,), seconds=0.1), plan("a0 b0", Layout(2), stages=(0,))
    for topology, places in (
        (world(rate=1e7), {Place("link", ("a", "b")), Place("link", ("b", "a"))}),
        (world(uplinks={"b": 1e7}), {Place("uplink out of", ("b",)), Place("uplink into", ("b",))}),
    ):
        found = where(simulate(two, workload, topology))
        assert found.rows[-1].part == "all-reduce"
        assert found.rows[-1].place in places
        assert found.seconds("all-reduce") == pytest.approx(8.0, rel=0.01)
        assert found.seconds("compute") == pytest.approx(0.1)


@pytest.mark.parametrize("reason", APART)
def test_a_promise_is_simulated_whatever_sets_the_two_speeds_apart(reason: str) -> None:
    found, simulated_s = foresee(*APART[reason]), simulate(*APART[reason]).step_s
    assert abs(difference(*APART[reason])) > TOLERANCE
    assert found.step_s == simulated_s
    assert found.compute_s + found.bubble_s + found.communication_s == pytest.approx(simulated_s)
    assert min(found.bubble_s, found.communication_s) >= 0.0


def promised_parts(made: Plan, workload: Workload, topology: Topology) -> dict[Part, StepPart]:
    promised = replace(made, prediction=foresee(made, workload, topology))
    found = {part.part: part for part in step_parts(promised, workload, topology)}
    assert sum(part.seconds for part in found.values()) == pytest.approx(promised.prediction.step_s)
    return found


def test_what_transfers_wait_for_each_other_is_booked_as_transfers() -> None:
    """Four pipelines share the ocean's link; their replicas have 8 kB to sum, inside the regions."""
    given = FOUR_PIPELINES
    found, simulated = promised_parts(*given), where(simulate(*given))
    assert found[Part.TRANSFERS].seconds == pytest.approx(simulated.seconds("transfer"), rel=0.01)
    assert found[Part.TRANSFERS].link in {("a0", "b0"), ("b0", "a0")}
    assert found[Part.SYNC].seconds == pytest.approx(simulated.seconds("all-reduce"), rel=0.01)


def test_what_stages_share_is_booked_apart_where_several_replicas_sum_it_over_one_link() -> None:
    made, workload, topology = TIES_MEET
    found, simulated = promised_parts(made, workload, topology), simulate(made, workload, topology)
    assert found[Part.TIED].seconds == pytest.approx(simulated.end_s - simulated.reduced_s)


@pytest.mark.parametrize(
    ("machines", "changes", "sent_s"),
    [
        ("a0 a1 a0 a1", {}, 0.8),
        ("a0 a1 a0 a2", {}, 0.4),
        ("a0 a1 a0 a2", {"nic_bytes_per_s": 1e9}, 0.8),
        ("a0 b0 a0 b0", {"own": Link(1e-4, 5e8), "pairs": "00"}, 1.6),
        ("a0 b0 a1 b1", {"own": Link(1e-4, 5e8), "pairs": "0011", "uplinks": {"a": 5e8}}, 1.6),
        ("a0 b0 a1 b1", {"own": Link(1e-4, 5e8, own_wire=True), "pairs": "0011", "uplinks": {"a": 5e8}}, 0.8),
    ],
    ids=["one pair", "two pairs", "one NIC", "one pair's own link", "two pairs over an uplink", "two wires"],
)
def test_ties_wait_for_those_with_which_they_share(machines: str, changes: dict[str, Any], sent_s: float) -> None:
    """Two replicas, 400 MB each way of each, at 1 GB/s inside a region; the next micro-batch hides its forward pass."""
    topology = world(rate=2e9, uplinks=changes.get("uplinks", {}))
    nics = (replace(machine, nic_bytes_per_s=changes.get("nic_bytes_per_s")) for machine in topology.machines)
    pairs = {(f"a{n}", f"b{n}") for n in changes.get("pairs", "")}
    own = {ends[::way]: changes["own"] for ends in pairs for way in (1, -1)}
    topology = replace(topology, machines=tuple(nics), node_links=own)
    made, workload = plan(machines, TWO_STAGES), TIES_MEET[1]
    simulated = simulate(made, workload, topology)
    for tied_s in (predict(made, workload, topology).tied_s, simulated.end_s - simulated.reduced_s):
        assert tied_s == pytest.approx(sent_s - 0.1 / 3, rel=0.01)


def test_one_replica_has_nothing_to_synchronise_however_its_transfers_meet() -> None:
    """Both boundaries send over one uplink, which is not the slowest link of any."""
    topology = world(rate=2e7, rtt_s=0.0, uplinks={"a": 1e7})
    given = plan("a0 b0 a1 b1", Layout(1, 4), shares=(8,), schedule="gpipe"), job((1000,) * 4, 10_000_000), topology
    found = promised_parts(*given)
    assert found.keys() == {Part.COMPUTE, Part.FILL, Part.TRANSFERS}


def test_the_link_of_transfers_is_the_one_that_all_together_keep_busy_longest() -> None:
    """One pipeline alone sends over 15 MB/s from c to b, three over 20 MB/s from a to b."""
    machines = tuple(Machine(f"{region}{n}", region, flops_per_s=1e12) for region in "abc" for n in range(4))
    rates = {("a", "b"): 2e7, ("b", "a"): 2e7, ("c", "b"): 1.5e7, ("b", "c"): 1.5e7}
    links = {**{pair: Link(0.001, rate) for pair, rate in rates.items()}, **{(r, r): Link(1e-4, 1e9) for r in "abc"}}
    made = plan("c0 b0 a1 b1 a2 b2 a3 b3", Layout(4, 2), shares=(2,) * 4)
    found = promised_parts(made, job(output=10_000_000), Topology(machines, region_links=links))
    assert found[Part.TRANSFERS].link in {("a1", "b1"), ("b1", "a1")}


def test_a_bucket_is_ready_when_the_layers_that_it_holds_are() -> None:
    """Half of the parameters are the first layer's, which takes a tenth of the backward pass."""
    layers = [Layer("layer.0", 30_000_000, 0.4e12, 0.8e12, 1000, 1000)]
    layers += [Layer(f"layer.{n}", 10_000_000, 1.2e12, 2.4e12, 1000, 1000) for n in (1, 2, 3)]
    workload = Workload("team/job", Model(tuple(layers)), 8, {})
    for num_buckets, ready in ((1, [1.0]), (2, [0.9, 1.0]), (3, [0.6, 0.9 + 0.1 / 3, 1.0])):
        step = step_of(plan("a0 b0", Layout(2), num_buckets=num_buckets, stages=(0,)), workload, world())
        assert [bucket.ready for bucket in step.all_reduces[0].buckets] == pytest.approx(ready)


def test_an_unknown_link_has_its_price_whether_the_workload_allows_it_or_not() -> None:
    """Three micro-batches of 250,000 bytes each way, back in 2 s each and 1 s of latency, there 5 ms.

    1/3 s forward and 2/3 s back on either stage. Of each there are 23 packets on every connection, so that the last two
    leave two round trips of 1.005 s after the first began, at 1/3, and are there 5 ms later: 2 x 1/3 + 2/3 until the
    first one goes back; 3 x 2 + 1 until the last one is there, and 2/3.
    """
    links = {("a", "b"): Link(0.01, 1e8), **{(r, r): Link(1e-4, 1e9) for r in "ab"}}
    topology, workload = world(region_links=links), replace(job(output=250_000), allow_unknown_links=False)
    made = plan("a0 b0", Layout(1, 2), shares=(3,), schedule="gpipe")
    for evaluator in (predict, simulate, foresee):
        assert evaluator(made, workload, topology).step_s == pytest.approx(1 / 3 + 2.01 + 0.005 + 4 / 3 + 7 + 2 / 3)


@pytest.mark.parametrize(("rate", "step"), [(1e-300, "inf"), (1e-12, "3e+21")])
def test_a_step_without_an_end_is_refused_with_its_slowest_link(rate: float, step: str) -> None:
    """Two micro-batches of 10^9 bytes, there and back: the first goes back while the second is still on its way."""
    words = f"team/job: a step would take {step} s, 2 s of them computing; its slowest link, a0 -> b0, carries {rate}"
    with pytest.raises(ValueError, match=f"^{re.escape(words)} B/s"):
        foresee(plan("a0 b0", Layout(1, 2), shares=(2,)), job(output=10**9), world(rate=rate))


def test_a_promise_of_another_step_costs_as_much_more_of_its_accelerators() -> None:
    """Four accelerators at 3600 an hour are 4 a second; traffic costs what it costs, 3 x 8 x 5 MB each way."""
    made, workload, topology = APART["transfers meet"]
    machines = tuple(replace(machine, price_per_hour=3600.0) for machine in topology.machines)
    priced = replace(topology, machines=machines, egress_price_per_gb={("a", "b"): 10.0, ("b", "a"): 20.0})
    closed_form, promised = predict(made, workload, priced), foresee(made, workload, priced)
    assert promised.step_s > closed_form.step_s + 1.0
    assert closed_form.price == pytest.approx(4 * closed_form.step_s + 0.12 * 30)
    assert promised.price == pytest.approx(4 * promised.step_s + 0.12 * 30)


def test_buckets_that_two_stages_send_each_other_share_a_connection() -> None:
    """A flow that gets a tenth of its link carries both buckets, 8 MB at 10 MB/s, in the closed form and simulated."""
    links = {("a", "a"): Link(1e-4, 1e8, flow_bytes_per_s=1e7)}
    given = (
        plan("a0 a1 a2 a3", Layout(2, 2), num_buckets=2),
        job((2_000_000, 1000), seconds=0.01),
        world(region_links=links),
    )
    assert abs(difference(*given)) < 0.01


@pytest.mark.parametrize("machines", ["a0 a0", "a0 a0 a0 a0"])
def test_nccl_inside_one_machine_is_simulated(machines: str) -> None:
    given = plan(machines, Layout(len(machines.split())), algorithm="nccl"), job((50_000_000, 1000)), world()
    assert abs(difference(*given)) < TOLERANCE


SLOW_INSIDE = world(region_links={(a, b): Link(1e-4, 2e7) if a == b else Link(0.15, 2e8) for a in "ab" for b in "ab"})
REDUCED = {
    "two levels in two buckets": (
        plan("a0 b0", Layout(2), num_buckets=2, algorithm="hierarchical", stages=(0,)),
        job((2_000_000,), seconds=0.01),
        world(rate=1e7, rtt_s=0.15),
    ),
    "tensor-parallel ranks share a link inside a region that each alone does not fill": (
        plan("a0 a1 b0", Layout(3, 1, 2), stages=(0,)),
        job((7_000_000,), seconds=0.01),
        SLOW_INSIDE,
    ),
    "eight buckets": (
        plan("a0 b0", Layout(2), num_buckets=8, stages=(0,)),
        job((10_000_000,), seconds=0.01),
        world(rtt_s=0.3),
    ),
}


@pytest.mark.parametrize("name", REDUCED)
def test_an_all_reduce_takes_the_same_in_both(name: str) -> None:
    assert abs(difference(*REDUCED[name])) < 0.02


def test_buckets_of_a_ring_take_as_long_in_both() -> None:
    """Whatever holds a ring back: the way there and back, one flow or its link, on the edge that waits or on another.

    Two ranks, two buckets over slow flows: one round trip less than two rings one after the other.
    """
    for seed in range(150):
        rng = random.Random(seed)
        links = {(region, region): Link(1e-4, 1e9) for region in "ab"}
        for pair in (("a", "b"), ("b", "a")):
            rate = 10 ** rng.uniform(6.5, 9)
            flow = rate * rng.choice((1.0, 0.3, 0.05))
            links[pair] = Link(10 ** rng.uniform(-2.5, -0.7), rate, flow_bytes_per_s=flow)
        machines = ("a0 b0", "a0 b0", "a0 a1 b0", "b0 a0 b1 a1")[seed % 4]
        asked = job((int(10 ** rng.uniform(5, 8)),), seconds=1e-6)
        options = {"num_buckets": rng.choice((1, 2, 2, 3, 8)), "stages": (0,), "overlap": False}
        given = plan(machines, Layout(len(machines.split())), **options), asked, world(region_links=links)
        assert abs(difference(*given)) < 1e-3, seed


FAST_PAIR = {("a0", "b0"): Link(0.01, 1e8), ("b0", "a0"): Link(0.01, 1e8)}


@pytest.mark.parametrize("tied", [0, 1_000_000])
def test_machines_whose_own_link_is_faster_than_their_regions_have_that(tied: int) -> None:
    """100 MB/s of their own, where the regions' link is known for 1 MB/s, or for no more than the others' median."""
    asked = job((1_000_000, 1000), 10_000_000, seconds=0.1, tied=tied)
    slow = {(f"{a}{n}", f"{b}{n}"): Link(0.01, 1e6) for n in (1, 2) for a, b in ("ab", "ba")}
    inside = {(region, region): Link(1e-4, 1e9) for region in "ab"}
    given = plan("a0 b0", Layout(1, 2), shares=(2,)), asked
    expected = step_seconds(*given, world(region_links=inside, node_links=FAST_PAIR))
    for topology in (world(rate=1e6, node_links=FAST_PAIR), world(region_links=inside, node_links=FAST_PAIR | slow)):
        assert step_seconds(*given, topology) == pytest.approx(expected)
        assert abs(difference(*given, topology)) < TOLERANCE


def test_pipelines_without_links_of_their_own_share_what_their_regions_have() -> None:
    """Two of three pipelines inherit 10 MB/s; 20 MB of each keep that busy for 4 s, then for 4 s back."""
    topology, asked = world(rate=1e7, node_links=FAST_PAIR), job((1000, 1000), 20_000_000, seconds=0.001)
    given = plan("a0 b0 a1 b1 a2 b2", Layout(3, 2)), asked, topology
    assert step_seconds(*given) == pytest.approx(8.0, rel=0.01)
    assert abs(difference(*given)) < 0.01


def test_what_two_stages_send_each_other_takes_each_its_own_way() -> None:
    """A round trip of 0.2 s, of which 0.19 s are the way there: in both evaluators a part of the exchange."""
    links = {(region, region): Link(1e-4, 1e9) for region in "ab"}
    links |= {("a", "b"): Link(0.2, 1e8, one_way_s=0.19), ("b", "a"): Link(0.2, 1e8, one_way_s=0.01)}
    made = plan("a0 a1 b0 b1", Layout(2, 2), overlap=False)
    given = made, job((100_000, 100_000), seconds=0.01), world(region_links=links)
    assert abs(difference(*given)) < 0.01
    assert predict(*given).communication_s == pytest.approx(0.19, rel=0.05)


def test_what_stages_share_inside_a_region_leaves_no_room_on_uplinks() -> None:
    """One pipeline is in one region; the other's 4 MB cross an uplink of 1 MB/s while its activations of 20 MB do."""
    given = (
        plan("a0 a1 b0 a2", Layout(2, 2), inner_steps=5, shares=(2, 2)),
        job((1_000_000, 1000), 10_000_000, seconds=0.1, tied=1_000_000),
        world(rtt_s=0.05, uplinks={"b": 1e6}),
    )
    assert predict(*given).tied_s == simulate(*given).end_s - simulate(*given).reduced_s == 0.0
    assert abs(difference(*given)) < TOLERANCE


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
@pytest.mark.parametrize("num_buckets", [1, 3])
def test_names_of_machines_make_no_step_longer(algorithm: str, num_buckets: int) -> None:
    """Two edges cross one uplink, with different ways there and back."""
    found = []
    for names in ("abc", "cba"):
        machines = tuple(Machine(name, f"r{n}", num_accelerators=2, flops_per_s=1e12) for n, name in enumerate(names))
        rtts_s = {("r0", "r1"): 0.2, ("r1", "r2"): 0.02, ("r0", "r2"): 0.08}
        links = {ends[::way]: Link(rtt_s, 1e8) for ends, rtt_s in rtts_s.items() for way in (1, -1)}
        topology = Topology(machines, region_links=links, uplinks={"r1": 1e6})
        workers = tuple(WorkerSlot(machine.name, machine.region, 2) for machine in machines)
        made = replace(plan("a b c", Layout(3, 1, 2), stages=(0,), num_buckets=num_buckets), workers=workers)
        made = replace(made, algorithm=algorithm)
        found.append(foresee(made, job((500_000,), seconds=0.01), topology).step_s)
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("seed", [415, 1035])
def test_flows_of_hulks_own_that_share_uplinks_take_as_long_in_both(seed: int) -> None:
    """Their chunks go by rank, not by fair shares."""
    case = draw(seed)
    assert case.plan.algorithm == "wan"
    assert case.topology.uplinks
    assert abs(difference(case.plan, case.workload, case.topology)) < 0.01


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("forward_s", [1.0, 2.9, 0.1])
def test_buckets_of_hulks_own_are_ready_by_the_plans_own_backward_seconds(
    forward_s: float, recompute: bool, overlap: bool
) -> None:
    """Measured passes of 3 s together, whose backward part is anything, and 8 buckets."""
    machines = tuple(Machine(name, name, product="x") for name in "abc")
    topology = Topology(machines, region_links={(a, b): Link(0.02, 1.25e8) for a in "abc" for b in "abc" if a != b})
    layers = tuple(Layer(f"layer.{n}", 20_000_000, 1.0, 2.0, 1000, 1000) for n in range(10))
    row = TimesRow("x", 1, 1, (forward_s / 10,) * 10, ((3 - forward_s) / 10,) * 10)
    asked = Workload("team/job", Model(layers, times=LayerTimes((row,))), 3, {})
    flows = flows_of(asked, topology, list("abc"), [8], lambda: True, whole=False)
    options = {"num_buckets": 8, "stages": (0,), "overlap": overlap, "recompute": recompute}
    given = plan("a b c", Layout(3), algorithm="wan", collective=flows, **options)
    assert abs(difference(given, asked, topology)) < 0.01
    late = replace(given, overlap=False)
    assert (step_seconds(late, asked, topology) > step_seconds(given, asked, topology)) == overlap


def test_the_first_replica_is_the_server_whatever_the_order_of_rings() -> None:
    given = plan("a0 a1 b0", Layout(3), stages=(0,), algorithm="parameter-server")
    asked, topology = job((10_000_000,)), world()
    for order in ((1, 0, 2), (2, 1, 0)):
        turned = replace(given, rings=(order,))
        assert step_seconds(turned, asked, topology) == step_seconds(given, asked, topology)
        assert simulate(turned, asked, topology).step_s == simulate(given, asked, topology).step_s
