"""A prediction taken apart: memory by component, traffic by region pair, where a step goes. By hand, and as sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hulk_placement.cost.breakdown import Part, step_parts
from hulk_placement.cost.closed_form.arrays import Cache
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.memory import cell_memory, in_flight
from hulk_placement.cost.pipelines import arrays_of, time_pipelines
from hulk_placement.cost.predict import predict, stage_groups
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.simulation.step import Place
from hulk_placement.cost.ties import ties
from hulk_placement.cost.traffic import link_traffic, traffic
from hulk_placement.model import Layer, Model
from hulk_placement.nccl import Nccl
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.replan.moving import checkpoint_bytes
from hulk_placement.report.view import view
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30


def world(num_regions: int = 2, **link: Any) -> Topology:
    """Two machines of four accelerators in each of the regions a, b, c ...; 1 TFLOP/s each."""
    regions = "abcdef"[:num_regions]
    machines = tuple(Machine(f"{r}{n}", r, "", 4, memory_bytes=GIB, flops_per_s=1e12) for r in regions for n in (0, 1))
    far = Link(**({"rtt_s": 0.2, "bandwidth_bytes_per_s": 1e6} | link))
    return Topology(
        machines, region_links={(p, q): Link(1e-4, 1e9) if p == q else far for p in regions for q in regions}
    )


def job(num_layers: int = 4, tied: bool = False, **changes: Any) -> Workload:
    """Layers of 1,000 parameters, 1 + 2 TFLOP, 100,000 bytes to the next; 300,000 kept, 100,000 by every rank."""
    layers = [Layer(f"layers.{n}", 1000, 1e12, 2e12, 100_000, 300_000, 100_000) for n in range(num_layers)]
    if tied:
        layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=1000)
    given = {"global_batch": 8, "max_workers": 99, "pipeline": None, "tensor": None}
    return Workload("team/job", Model(tuple(layers)), candidates={}, **(given | changes))


def plan(names: str, data: int, pipeline: int, tensor: int = 1, **changes: Any) -> Plan:
    """Machines of cells in rank order, separated by blanks."""
    slots = tuple(WorkerSlot(name, name[0], tensor) for name in names.split())
    first = tuple(range(0, 2 * pipeline, 2)) if pipeline > 1 else (0,)
    given = {"shares": (8 // data,) * data, "micro_batch": 2, "num_buckets": 1, "stages": first}
    return Plan(
        "team/job", 1, slots, prediction=NOT_PREDICTED, layout=Layout(data, pipeline, tensor), **(given | changes)
    )


@given(
    data=st.integers(1, 2),
    cuts=st.sets(st.integers(1, 3)),
    tensor=st.sampled_from([1, 2, 4]),
    micro_batch=st.integers(1, 8),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
    recompute=st.booleans(),
    tied=st.booleans(),
    optimizer=st.sampled_from(["adamw", "sgd"]),
    inner_steps=st.sampled_from([None, 7]),
)
def test_components_sum_to_the_memory_that_is_predicted(
    data: int, cuts: set[int], tensor: int, micro_batch: int, tied: bool, optimizer: str, **chosen: Any
) -> None:
    stages = (0, *sorted(cuts))
    names = " ".join(f"a{replica}" for replica in range(data) for _ in stages)
    made = plan(names, data, len(stages), tensor, stages=stages, micro_batch=micro_batch, **chosen)
    topology, workload = world(), job(tied=tied, optimizer=optimizer)
    expected = time_pipelines(made, workload, topology).memory_DP
    for replica in range(data):
        for stage in range(len(stages)):
            found = cell_memory(made, workload, replica, stage)
            assert found.total == pytest.approx(expected[replica, stage], rel=1e-12)


@pytest.mark.parametrize(
    ("stages", "held", "sent"), [((0, 2), 600, [600]), ((0, 2, 3), 300, [600, 300]), ((0,), 0, [])]
)
def test_a_stage_has_what_its_layers_share_with_an_earlier_one_once(
    stages: tuple[int, ...], held: int, sent: list[int]
) -> None:
    """The last two of four layers use 600 and 300 of the first one's 1,000 parameters."""
    layers = list(job().model.layers)
    for number, shared in ((2, 600), (3, 300)):
        layers[number] = replace(layers[number], tied_to=0, tied_parameters=shared)
    workload, topology = replace(job(), model=Model(tuple(layers))), world()
    names = ("a0", "b0", "b1")[: len(stages)]
    made = plan(" ".join(names), 1, len(stages), stages=stages)
    last, own = len(stages) - 1, 1000 * (len(layers) - stages[-1])
    assert cell_memory(made, workload, 0, last).parameters == 4 * (own + held)
    expected = time_pipelines(made, workload, topology).memory_DP[0]
    assert [cell_memory(made, workload, 0, stage).total for stage in range(len(stages))] == pytest.approx(expected)
    assert [tie.group.num_bytes for tie in ties(made, workload)] == [4 * num for num in sent]
    alone = replace(workload, model=Model((*layers[:3], replace(layers[3], tied_to=None, tied_parameters=0))))
    if len(stages) == 2:  # the larger of two that one stage has is all that is sent
        both_s, one_s = (time_pipelines(made, asked, topology).tied_s for asked in (workload, alone))
        assert both_s == one_s


def test_local_sgd_keeps_where_its_round_began_and_an_outer_velocity() -> None:
    synchronous, local = (
        cell_memory(plan("a0 b0", 2, 1, inner_steps=inner_steps), job(), 0, 0) for inner_steps in (None, 7)
    )
    assert local.optimizer - synchronous.optimizer == 2 * synchronous.parameters
    asked = replace(job(), sync=Sync("local"))
    assert asked.replica_bytes(2) - job().replica_bytes(2) == 2 * synchronous.parameters
    assert checkpoint_bytes(asked) - checkpoint_bytes(job()) == synchronous.parameters


@pytest.mark.parametrize(("tensor", "brought"), [(1, [8000, 10_400]), (2, [4000, 5200])])
def test_replicas_sum_what_their_stage_has_once_more_of_an_earlier_one(tensor: int, brought: list[int]) -> None:
    """The last two of four layers of 1,000 parameters use 600 of the first one's, and 300 of them."""
    layers = list(job().model.layers)
    for number, shared in ((2, 600), (3, 300)):
        layers[number] = replace(layers[number], tied_to=0, tied_parameters=shared)
    workload, made = replace(job(), model=Model(tuple(layers))), plan("a0 a1 b0 b1", 2, 2, tensor)
    groups = stage_groups(made, workload)[::tensor]
    assert [group.num_bytes for group in groups] == brought
    assert [cell_memory(made, workload, 0, stage).gradients for stage in (0, 1)] == brought
    topology = replace(world(), egress_price_per_gb={("a", "b"): 1e6})
    assert traffic(made, workload, topology, stage_groups(made, workload)).sync["a", "b"] == tensor * sum(brought)
    setting, layout = arrays_of(made, workload, topology)
    predicted = predict(made, workload, topology)
    assert evaluate(setting, layout, Cache(2, 2, 2, 4)) == pytest.approx(predicted.step_s)
    in_one = replace(made, layout=Layout(4, 1, tensor), stages=(0,), shares=(2,) * 4)
    assert stage_groups(in_one, workload)[0].num_bytes == 16_000 / tensor


def test_activations_in_flight_follow_the_schedule() -> None:
    for schedule, expected in (("1f1b", [2, 1]), ("gpipe", [4, 4])):
        made = plan("a0 a1", 1, 2, schedule=schedule)
        assert [in_flight(made, 0, stage) for stage in (0, 1)] == expected
        kept = [cell_memory(made, job(), 0, stage).activations for stage in (0, 1)]
        assert kept == [micro_batches * 2 * 2 * 300_000 for micro_batches in expected]


def test_recomputing_keeps_inputs_and_one_layer() -> None:
    found = cell_memory(plan("a0 a1", 1, 2, recompute=True), job(), 0, 0)
    assert (found.activations, found.recompute) == (2 * 2 * 100_000, 2 * 300_000)


TWO_REGIONS = ("a0 b0", 2, 1)  # two replicas of 4 layers of 1,000 parameters: 16,000 bytes of gradients
BY_HAND = {
    "a ring of two sends all bytes each way": (TWO_REGIONS, "ring", {("a", "b"): 16_000, ("b", "a"): 16_000}),
    "a server gets all and gives all back": (TWO_REGIONS, "parameter-server", {("a", "b"): 16_000, ("b", "a"): 16_000}),
    "a ring of four crosses once each way, with 2 (4 - 1) / 4 of the bytes": (
        ("a0 a1 b0 b1", 4, 1),
        "ring",
        {("a", "a"): 24_000, ("a", "b"): 24_000, ("b", "a"): 24_000, ("b", "b"): 24_000},
    ),
    "two levels: the ring of two leaders; inside 2 x 1/2, a gather of 1/2, all back": (
        ("a0 b0 a1 b1", 4, 1),
        "hierarchical",
        {("a", "b"): 16_000, ("b", "a"): 16_000, ("a", "a"): 40_000, ("b", "b"): 40_000},
    ),
    "ranks of one machine send nothing": (("a0 a0", 2, 1), "ring", {}),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_bytes_of_an_all_reduce_by_region(case: str) -> None:
    shape, algorithm, expected = BY_HAND[case]
    made, workload, topology = plan(*shape, algorithm=algorithm), job(), world()
    sent = traffic(made, workload, topology, stage_groups(made, workload))
    assert sent.sync == pytest.approx(expected)
    assert sent.stages == {}


NCCL_BY_HAND = {
    "ring": {("a", "b"): 24_000, ("b", "a"): 24_000},
    "tree": {("a", "b"): 16_000, ("b", "a"): 16_000},
}


@pytest.mark.parametrize("names", ["a0 b0 a0 b0", "a0 a0 b0 b0"])
@pytest.mark.parametrize("algorithm", NCCL_BY_HAND)
def test_nccl_goes_machine_after_machine_whatever_the_order_of_replicas(names: str, algorithm: Any) -> None:
    """A ring of four ranks crosses once each way with 2 (4 - 1) / 4 of 16,000 bytes, both trees with half of them."""
    made, topology = plan(names, 4, 1, algorithm="nccl"), world()
    for protocol, on_wire in ("Simple", 1.0), ("LL", 2.0):
        workload = job(nccl=Nccl(algorithm=algorithm, protocol=protocol))
        sent = traffic(made, workload, topology, stage_groups(made, workload))
        assert sent.sync == {pair: on_wire * num_bytes for pair, num_bytes in NCCL_BY_HAND[algorithm].items()}


def test_a_wire_of_two_machines_own_carries_what_their_regions_link_does_not() -> None:
    """800,000 bytes each way: of a0 and b0 over their wire, of a1 and b1 over the link; the price is of both."""
    wire = Link(0.0, 5e6, own_wire=True)
    topology = replace(world(), node_links={("a0", "b0"): wire, ("b0", "a0"): wire})
    made, workload = plan("a0 b0 a1 b1", 2, 2, algorithm="nccl"), job()
    shared, wired = link_traffic(made, workload, topology, stage_groups(made, workload))
    assert shared.stages == {("a", "b"): 400_000, ("b", "a"): 400_000}
    assert wired.stages == {("a0", "b0"): 400_000, ("b0", "a0"): 400_000}
    assert not wired.sync
    assert traffic(made, workload, topology, stage_groups(made, workload)).stages[("a", "b")] == 800_000
    rows = view(replace(made, prediction=predict(made, workload, topology)), workload, topology).links
    assert {(row.source, row.own_wire) for row in rows if row.stage_bytes} == {
        ("a", False),
        ("b", False),
        ("a0", True),
        ("b0", True),
    }


@given(
    st.permutations(["a0", "a0", "a1", "a1", "b0", "b0", "b1", "b1"]),
    st.sampled_from([(8, 1), (4, 2), (2, 4)]),
    st.sampled_from(["ring", "hierarchical", "parameter-server", "nccl"]),
    st.sampled_from([None, "ring", "tree"]),
    st.sampled_from([None, Link(1e-4, 2e5, own_wire=True), Link(1e-4, 5e6)]),
)
def test_no_link_is_busy_for_longer_than_a_step(
    names: list[str], layout: tuple[int, int], algorithm: str, nccl: Any, own: Link | None
) -> None:
    """In any order of replicas, with two machines' own wire or wider link, where computing takes next to nothing."""
    topology = world(rtt_s=1e-4)
    topology = replace(topology, machines=tuple(replace(each, flops_per_s=1e18) for each in topology.machines))
    if own is not None:
        topology = replace(topology, node_links={("a0", "b0"): own, ("b0", "a0"): own})
    workload = job(num_layers=8, nccl=Nccl(algorithm=nccl))
    layers = tuple(replace(layer, num_parameters=1_000_000) for layer in workload.model.layers)
    workload = replace(workload, model=Model(layers))
    made = plan(" ".join(names), *layout, algorithm=algorithm)
    step_s = predict(made, workload, topology).step_s
    shared, wired = link_traffic(made, workload, topology, stage_groups(made, workload))
    busy_s = [sent / topology.capacity(pair) for pair, sent in shared.total().items() if pair[0] != pair[1]]
    busy_s += [sent / topology.link(*pair).bandwidth_bytes_per_s for pair, sent in wired.total().items()]
    assert max(busy_s, default=0.0) <= step_s * (1.0 if layout[1] == 1 else 1.1)  # sums and transfers that meet
    rows = view(replace(made, prediction=predict(made, workload, topology)), workload, topology).links
    assert max((row.busy_share or 0.0 for row in rows), default=0.0) <= 1.0


def test_activations_cross_there_and_their_gradients_back() -> None:
    made, workload, topology = plan("a0 b0", 1, 2), job(), world()
    sent = traffic(made, workload, topology, stage_groups(made, workload))
    assert sent.stages == {("a", "b"): 800_000, ("b", "a"): 800_000}
    assert sent.total() == sent.stages
    priced = replace(topology, egress_price_per_gb={("a", "b"): 10.0})
    assert predict(made, workload, priced).price == pytest.approx(0.008)


@pytest.mark.parametrize("tensor", [1, 2])
def test_stages_that_share_parameters_send_them_there_and_back(tensor: int) -> None:
    """The first layer's 4,000 bytes of gradients, by two ranks 2,000 each, in both replicas: 8,000 each way.

    Activations: 8 sequences of 100,000 bytes. Inside their region replicas reduce 8,000 bytes of the first stage, and
    12,000 of the last one.
    """
    made, workload, topology = plan("a0 b0 a1 b1", 2, 2, tensor), job(tied=True), world()
    sent = traffic(made, workload, topology, stage_groups(made, workload))
    assert sent.stages == {("a", "b"): 800_000, ("b", "a"): 800_000}
    assert sent.sync == {("a", "b"): 8_000, ("b", "a"): 8_000, ("a", "a"): 16_000, ("b", "b"): 24_000}
    uses = simulate(made, workload, topology).uses
    for pair in ("a", "b"), ("b", "a"):
        carried = math.fsum(use.num_bytes for use in uses if use.place == Place("link", pair))
        assert carried == pytest.approx(sent.total()[pair])
    priced = replace(topology, egress_price_per_gb={("a", "b"): 1000.0, ("b", "a"): 3000.0})
    assert predict(made, workload, priced).price == pytest.approx(0.000808 * 4000)


def test_searches_pay_for_shared_parameters_as_predictions_do() -> None:
    topology = replace(world(), egress_price_per_gb={("a", "b"): 1e6, ("b", "a"): 3e6})
    for tied in (False, True):
        workload, made = job(tied=tied, objective="throughput-per-money"), plan("a0 b0 a1 b1", 2, 2, 2)
        setting, layout = arrays_of(made, workload, topology)
        found = evaluate(setting, layout, Cache(2, 2, 2, 4))
        assert found == pytest.approx(predict(made, workload, topology).price)


def test_tensor_parallel_ranks_share_the_link_over_which_stages_sum_what_they_share() -> None:
    """Four times 100 MB each way, by two replicas of two ranks, over 1 GB/s; inside a region two, over 1 GB/s each.

    Each rank sends half of 50 million parameters, while the next micro-batch computes for 20 ms before it is missed.
    """
    layers = [Layer(f"layers.{n}", 50_000_000, 1e10, 2e10, 1000, 1000) for n in range(4)]
    layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=50_000_000)
    workload = Workload("team/job", Model(tuple(layers)), 8, {}, max_workers=99, pipeline=None, tensor=None)
    topology = world(rtt_s=1e-3, bandwidth_bytes_per_s=1e9)
    for names, expected_s in (("a0 b0 a1 b1", 0.4), ("a0 a1 b0 b1", 0.2)):
        made = plan(names, 2, 2, 2)
        assert time_pipelines(made, workload, topology).tied_s == pytest.approx(expected_s - 0.02, rel=0.01)
        found = simulate(made, workload, topology)
        reduced_s = max(end_s for end_s, group in zip(found.sums.end_S, found.sums.group_S, strict=True) if group < 2)
        assert found.end_s - reduced_s == pytest.approx(expected_s - 0.02, rel=0.01)


@pytest.mark.parametrize(("source", "target"), [("a0", "b0"), ("a0", "a1")])
def test_tensor_parallel_ranks_share_a_link_of_their_machines_own(source: str, target: str) -> None:
    """Two send 200 MB each over 100 MB/s, of which one alone gets 80; what is inherited carries 1 GB/s.

    The next micro-batch of two sequences computes for 2 s, on both ranks, before they are missed.
    """
    own = Link(1e-3, 1e8, flow_bytes_per_s=8e7)
    links = {(source, target): own, (target, source): own}
    topology = replace(world(rtt_s=1e-3, bandwidth_bytes_per_s=1e9), node_links=links)
    workload, made = sharing(100_000_000), plan(f"{source} {target}", 1, 2, 2)
    assert time_pipelines(made, workload, topology).tied_s == pytest.approx(4 - 2, abs=0.01)
    without_s = predict(made, job(), topology).step_s
    assert simulate(made, workload, topology).step_s - without_s == pytest.approx(4 - 2, abs=0.01)


def parts(made: Plan, topology: Topology) -> dict[Part, float]:
    predicted = replace(made, prediction=predict(made, job(), topology))
    found = step_parts(predicted, job(), topology)
    assert math.fsum(part.seconds for part in found) == pytest.approx(predicted.prediction.step_s)
    return {part.part: part.seconds for part in found}


def test_two_stages_fill_for_one_pass_and_wait_for_the_link() -> None:
    """Four micro-batches of 4 s forward and 8 s backward a stage; a transfer takes 0.1 s and then 0.2 s."""
    found = parts(plan("a0 b0", 1, 2), world())
    assert found[Part.COMPUTE] == pytest.approx(48)
    assert found[Part.FILL] == pytest.approx(12)
    assert found.keys() == {Part.COMPUTE, Part.FILL, Part.TRANSFERS}
    no_wait = parts(plan("a0 b0", 1, 2), world(rtt_s=0.0, bandwidth_bytes_per_s=1e15))
    assert no_wait.get(Part.TRANSFERS, 0.0) < 1e-6


def test_passes_that_are_done_again_are_a_third_of_what_is_computed_without() -> None:
    found = parts(plan("a0", 1, 1, recompute=True), world())
    assert found == pytest.approx({Part.COMPUTE: 96, Part.RECOMPUTE: 32})


def test_replicas_wait_for_the_link_that_is_named() -> None:
    made, topology = plan("a0 b0", 2, 1), world()
    predicted = replace(made, prediction=predict(made, job(), topology))
    last = step_parts(predicted, job(), topology)[-1]
    assert (last.part, last.seconds) == (Part.SYNC, predicted.prediction.communication_s)
    assert last.link in {("a0", "b0"), ("b0", "a0")}


def sharing(num_parameters: int) -> Workload:
    """The last layer uses so many parameters of the first one."""
    layers = list(job().model.layers)
    layers[0] = replace(layers[0], num_parameters=num_parameters)
    layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=num_parameters)
    return replace(job(), model=Model(tuple(layers)))


def test_what_stages_share_costs_nothing_that_is_there_before_it_is_needed() -> None:
    """4 MB take 4 s and 0.1 s over 1 MB/s; a micro-batch takes 4.3 s to the next stage, and 8.3 s back."""
    topology, made = world(), plan("a0 b0", 1, 2)
    without, with_few = predict(made, job(), topology), predict(made, sharing(1_000_000), topology)
    assert with_few.step_s == without.step_s
    assert simulate(made, sharing(1_000_000), topology).step_s == pytest.approx(without.step_s)
    assert predict(made, sharing(1_100_000), topology).step_s - without.step_s == pytest.approx(0.2, abs=0.01)
    assert simulate(made, sharing(1_100_000), topology).step_s - without.step_s == pytest.approx(0.2, abs=0.01)


def test_stages_that_share_parameters_sum_them_in_every_step_of_local_sgd() -> None:
    topology, workload = world(), sharing(10_000_000)
    for machines, data in (("a0 b0", 1), ("a0 b0 a1 b1", 2)):
        every = plan(machines, data, 2)
        every = replace(every, prediction=predict(every, workload, topology))
        rarely = replace(every, inner_steps=1000)
        rarely = replace(rarely, prediction=predict(rarely, workload, topology))
        tied_s = time_pipelines(every, workload, topology).tied_s
        assert rarely.prediction.communication_s == pytest.approx(tied_s, rel=0.01)
        parts = {part.part: part.seconds for part in step_parts(rarely, workload, topology)}
        assert parts[Part.TIED] == pytest.approx(tied_s)
        assert simulate(rarely, workload, topology).step_s == pytest.approx(rarely.prediction.step_s, rel=0.05)
    sent = traffic(rarely, workload, topology, stage_groups(rarely, workload)).sync
    one = traffic(every, workload, topology, stage_groups(every, workload)).sync
    assert sent["a", "b"] == one["a", "b"] > 0
    assert sent["a", "a"] == pytest.approx(one["a", "a"] / 1000)


def test_stages_that_share_parameters_sum_them_in_a_part_of_its_own() -> None:
    made, topology, workload = plan("a0 b0", 1, 2), world(), sharing(10_000_000)
    predicted = replace(made, prediction=predict(made, workload, topology))
    found = {part.part: part.seconds for part in step_parts(predicted, workload, topology)}
    assert found[Part.TIED] == pytest.approx(time_pipelines(made, workload, topology).tied_s)
    assert found[Part.TIED] == pytest.approx(predicted.prediction.communication_s)
    assert step_parts(predicted, workload, topology)[-1].link == ("a0", "b0")
    assert Part.SYNC not in found
