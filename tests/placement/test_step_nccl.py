"""A step over NCCL, NICs, wires and sizes of messages, against values worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hulk_placement.cost.blocking import blocking_ends
from hulk_placement.cost.breakdown import Part, step_parts
from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.groups import Group
from hulk_placement.cost.nccl import nccl_times
from hulk_placement.cost.nccl_tuning import tuned
from hulk_placement.cost.overhead import MEMORY_SHARE, UPDATE_BYTES, end_s, optimizer_s
from hulk_placement.cost.predict import predict
from hulk_placement.cost.simulate import simulate
from hulk_placement.cost.simulation.schedule import Schedule, schedule
from hulk_placement.cost.simulation.step import Replica, Way
from hulk_placement.cost.where import where
from hulk_placement.model import OPTIMIZER_BYTES_PER_PARAMETER, Layer, Model
from hulk_placement.nccl import PROTOCOLS, Nccl
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

from bench.step_model.drawn import draw

RING = Nccl(algorithm="ring", protocol="Simple")
MB = 1_000_000


def world(rate: float = 1e8, rtt_s: float = 0.05, flow: float | None = None, **changes: Any) -> Topology:
    """Eight machines of 1 TFLOP/s in each of two regions."""
    machines = tuple(
        Machine(f"{region}{n}", region, num_accelerators=4, flops_per_s=1e12, **changes)
        for region in "ab"
        for n in range(8)
    )
    far = Link(rtt_s, rate, flow_bytes_per_s=flow)
    return Topology(machines, region_links={(a, b): Link(0.0, 1e9) if a == b else far for a in "ab" for b in "ab"})


def job(output: int = 10 * MB, num_layers: int = 2, **changes: Any) -> Workload:
    """Layers of a third of a second forward and two thirds backward, a sequence."""
    layers = [Layer(f"layer.{n}", 1000, 1e12 / 3, 2e12 / 3, output, 2 * output) for n in range(num_layers)]
    return Workload("team/job", Model(tuple(layers)), 8, {}, allow_unknown_links=True, **changes)


def plan(machines: str, layout: Layout, **changes: Any) -> Plan:
    """On these machines in rank order, one stage for each layer."""
    options: Mapping[str, Any] = {"shares": (1,) * layout.data, "stages": tuple(range(layout.pipeline))}
    workers = tuple(WorkerSlot(name, name[0], layout.tensor) for name in machines.split())
    usual: dict[str, Any] = {"micro_batch": 1, "num_buckets": 1, "prediction": NOT_PREDICTED}
    return Plan("team/job", 0, workers, layout=layout, **{**usual, **options, **changes})


def test_rings_over_different_pairs_share_the_machines_nics() -> None:
    """Two rings over four machines in different orders, 1.5 x 100 MB each: no two edges have a pair in common."""
    groups = [Group(tuple(order), 100 * MB) for order in ("abcd", "dcba")]
    links = {("r", "r"): Link(0.0, 1e8)}
    apart = Topology(tuple(Machine(name, "r") for name in "abcd"), region_links=links)
    one_nic = replace(apart, machines=tuple(replace(machine, nic_bytes_per_s=1e8) for machine in apart.machines))
    assert [time.seconds for time in nccl_times(groups, apart, RING)] == pytest.approx([1.5] * 2, rel=1e-3)
    assert [time.seconds for time in nccl_times(groups, one_nic, RING)] == pytest.approx([3.0] * 2, rel=1e-3)


def test_a_ring_visits_machine_after_machine() -> None:
    """Ranks in turn on two machines: one edge leaves each of them, as where a machine's ranks are numbered together."""
    topology = Topology((Machine("a", "r"), Machine("b", "r")), region_links={("r", "r"): Link(0.0, 1e8)})
    orders = [Group(tuple(order), 100 * MB) for order in ("aabb", "abab")]
    together, in_turn = (nccl_times([group], topology, RING)[0].seconds for group in orders)
    assert together == in_turn == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize(
    ("num_machines", "num_bytes", "chosen"),
    [
        (8, 4, ("tree", "LL")),  # 6.8 + 2 x 3 x 5 us; a ring: 6.6 + 14 x 5 us
        (8, 100 * MB, ("ring", "Simple")),  # a tree: 100 MB / (1.25 GB/s x 0.92 / 2); a ring: / (1.25 GB/s x 8 / 14)
        (2, 4, ("ring", "LL")),
        (2, 100 * MB, ("ring", "Simple")),
        (64, 100 * MB, ("ring", "Simple")),
    ],
)
def test_the_tuner_takes_a_tree_for_small_sums_only(num_machines: int, num_bytes: int, chosen: Any) -> None:
    """Whatever the links: the tuner does not know that a hop takes 100 ms."""
    names = tuple(f"m{n}" for n in range(num_machines))
    topology = Topology(tuple(Machine(name, "r") for name in names), region_links={("r", "r"): Link(0.2, 1e9)})
    found = tuned(Nccl(), Group(names, num_bytes), topology)
    assert (found.algorithm, found.protocol) == chosen


def test_what_is_set_is_what_runs() -> None:
    topology, group = world(), Group(("a0", "a1", "b0", "b1"), 100 * MB)
    found = tuned(Nccl(algorithm="tree", protocol="LL"), group, topology)
    assert (found.algorithm, found.protocol) == ("tree", "LL")


def test_a_tensor_pays_one_way_and_its_bytes() -> None:
    """F 1/3, there 0.025 + 0.1, F and B 1, back 0.125, B 2/3; then twice two hops of 0.025 s and NCCL's own.

    Two ranks send each other 4 bytes of a small all-reduce: two channels have 8 slots of 16 KiB a round trip.
    """
    given = plan("a0 b0", Layout(1, 2)), job(stage_transport="nccl"), world()
    hops_s = 2 * 2 * (0.025 + PROTOCOLS["LL"].hop_s) + 2 * 4 / (2 * 8 * (16 << 10) / 0.05)
    for found in (predict(*given), foresee(*given)):
        assert found.step_s == pytest.approx(2.25 + hops_s, rel=1e-5)
        assert found.overhead_s == pytest.approx(hops_s, rel=1e-5)
    over_gloo = predict(given[0], replace(given[1], stage_transport="gloo"), given[2])
    assert over_gloo.step_s > found.step_s  # its windows have to grow
    assert over_gloo.overhead_s == 0


def test_stages_take_the_sums_transport_where_none_is_stated() -> None:
    made, topology = plan("a0 b0 a1 b1", Layout(2, 2), algorithm="nccl"), world()
    assert predict(made, job(), topology) == predict(made, job(stage_transport="nccl"), topology)
    assert predict(made, job(), topology).step_s < predict(made, job(stage_transport="gloo"), topology).step_s


@pytest.mark.parametrize(("algorithm", "num_replicas", "sums_s"), [("ring", 2, 0.4), ("parameter-server", 4, 0.8)])
def test_sums_over_gloo_leave_accelerators_links_to_stages(algorithm: Any, num_replicas: int, sums_s: float) -> None:
    """On one machine, 400 MB of gradients a stage through its memory at 1 GB/s, whatever stages send over.

    Two replicas exchange them; a server gets those of the others together, and sends them the sum.
    """
    layers = tuple(Layer(f"layer.{n}", 100 * MB, 1e12 / 3, 2e12 / 3, 4, 4) for n in range(2))
    machine = Machine("a0", "a", num_accelerators=8, flops_per_s=1e12, inside=Link(0.0, 1e12))
    made = plan("a0 " * 2 * num_replicas, Layout(num_replicas, 2), algorithm=algorithm)
    workload = replace(job(stage_transport="nccl", end_collectives=0), model=Model(layers))
    for step in (predict, simulate):
        assert step(made, workload, Topology((machine,))).step_s == pytest.approx(2.0 + sums_s, rel=1e-3)


@pytest.mark.parametrize(
    ("nccl", "rate"), [(Nccl(), 2e6), (Nccl(num_sockets=16), 3.2e7), (Nccl(num_channels=4, num_sockets=64), 1e8)]
)
def test_a_peer_gets_all_its_connections(nccl: Nccl, rate: float) -> None:
    """Each of 1 MB/s, together no more than the link's 100 MB/s."""
    given = plan("a0 b0", Layout(1, 2)), job(stage_transport="nccl", nccl=nccl, end_collectives=0), world(flow=1e6)
    assert predict(*given).step_s == pytest.approx(2.05 + 2 * 10 * MB / rate, rel=1e-5)
    assert simulate(*given).step_s == pytest.approx(predict(*given).step_s)


def test_pipelines_to_different_machines_share_a_nic() -> None:
    """Two activations of 1 GB leave a0 together, to a1 and a2: a second each alone, two over one NIC; so back."""
    made, workload = plan("a0 a1 a0 a2", Layout(2, 2)), job(output=1000 * MB, stage_transport="gloo")
    apart = simulate(made, workload, world()).step_s
    shared = simulate(made, workload, world(nic_bytes_per_s=1e9))
    assert shared.step_s == pytest.approx(apart + 2.0, rel=1e-3)
    for evaluator in (foresee, predict):
        assert evaluator(made, workload, world(nic_bytes_per_s=1e9)).step_s == pytest.approx(shared.step_s)
    scarce_s = {str(use.place): use.scarce_s for use in shared.uses if use.scarce_s > 0.01}
    assert scarce_s == {"NIC out of a0": pytest.approx(2.0), "NIC into a0": pytest.approx(2.0)}
    over_nccl = simulate(made, replace(workload, stage_transport="nccl", end_collectives=0), world())
    assert over_nccl.step_s == pytest.approx(shared.step_s, rel=1e-3)  # one NIC, as wide as the widest link


def test_a_wire_of_their_own() -> None:
    """Two pairs over the regions' link of 100 MB/s wait for each other; one of them with a wire does not."""
    made, workload = plan("a0 b0 a1 b1", Layout(2, 2)), job(output=1000 * MB)
    wire = Link(0.05, 1e8, own_wire=True)
    both = {("a0", "b0"): wire, ("b0", "a0"): wire}
    shared, apart = (simulate(made, workload, replace(world(), node_links=links)) for links in ({}, both))
    alone = simulate(plan("a0 b0", Layout(1, 2)), workload, world())
    assert apart.step_s == pytest.approx(alone.step_s, rel=1e-3)
    assert shared.step_s == pytest.approx(alone.step_s + 20.0, rel=0.01)
    assert predict(made, workload, replace(world(), node_links=both)).step_s == pytest.approx(apart.step_s, rel=1e-3)


def test_small_messages_get_less() -> None:
    """10 MB at the middle of 1 MB (20 MB/s) and 100 MB (80 MB/s): 0.2 s in all, 0.025 of them on the way."""
    sized = Link(0.05, 1e8, by_size=((1e6, 2e7), (1e8, 8e7)))
    topology = replace(world(), region_links={("a", "b"): sized, ("b", "a"): sized})
    given = plan("a0 b0", Layout(1, 2)), job(stage_transport="nccl", end_collectives=0), topology
    assert predict(*given).step_s == pytest.approx(2.0 + 2 * 0.2, rel=1e-5)
    assert simulate(*given).step_s == pytest.approx(predict(*given).step_s)


def test_sums_get_the_rate_of_what_crosses_an_edge() -> None:
    """Two ranks, 1,000 parameters of 4 bytes: 4,000 bytes cross each edge, at the first point's rate."""
    sized = Link(0.0, 1e8, by_size=((1e6, 1e4), (1e8, 1e8)))
    topology = replace(world(), region_links={("a", "b"): sized, ("b", "a"): sized})
    made, workload = plan("a0 b0", Layout(2), stages=(0,)), job(num_layers=1, nccl=RING, optimizer_s=0.0)
    found = predict(replace(made, algorithm="nccl"), workload, topology)
    assert found.communication_s == pytest.approx(0.4, rel=1e-3)


def test_ties_get_the_rate_of_their_own_bytes() -> None:
    """100 MB at the largest rate, 1.25 s after 25 ms; an activation of 4 bytes, at another rate, takes 50 ms."""
    sized = Link(0.05, 1e8, by_size=((4.0, 4 / 0.05), (1e8, 8e7)))
    topology = replace(world(), region_links={("a", "b"): sized, ("b", "a"): sized})
    layers = [Layer(f"layer.{n}", 25 * MB, 1e9, 2e9, 4, 4) for n in range(2)]
    layers[1] = replace(layers[1], tied_to=0, tied_parameters=25 * MB)
    given = plan("a0 b0", Layout(1, 2)), replace(job(), model=Model(tuple(layers))), topology
    assert predict(*given).tied_s == pytest.approx(0.025 + 1.25 - 0.05, rel=1e-3)
    assert simulate(*given).step_s == pytest.approx(predict(*given).step_s, rel=1e-3)


WAY = Way((0,), 1.0, 0.0)


def test_a_blocking_send_holds_both_stages() -> None:
    """By hand: F0 0..1, sent until 1.5; F1 1.5..2.5 beside F0 on stage 1 1.5..2.5, sent until 3; F1 3..4; B0 4..6,
    sent until 6.5; B1 6.5..8.5 beside B0 on stage 0 6.5..8.5, sent until 9; B1 9..11."""
    two = Replica.alike(schedule("gpipe", 2, 2), (1.0, 1.0), (2.0, 2.0), (0.5,), [(WAY, WAY)])
    assert blocking_ends(two).tolist() == [11.0, 8.5]


def test_neighbours_of_1f1b_exchange() -> None:
    """Stage 0: F0 0..1, sent until 1.5. Then F1 1.5..2.5 beside stage 1's F0 1.5..2.5 and B0 2.5..4.5. Both post then:
    gradient and activation cross together until 5; B0 5..7 beside F1 and B1 5..8, sent until 8.5; B1 8.5..10.5."""
    two = Replica.alike(schedule("1f1b", 2, 2), (1.0, 1.0), (2.0, 2.0), (0.5,), [(WAY, WAY)])
    assert blocking_ends(two).tolist() == [10.5, 8.0]


@pytest.mark.parametrize(
    ("name", "num_stages", "num"), list(itertools.product(("gpipe", "1f1b"), (2, 3, 5), (1, 2, 4, 9)))
)
def test_usual_schedules_never_wait_for_ever(name: str, num_stages: int, num: int) -> None:
    """And are no quicker than where nobody waits for a send."""
    ways = [(WAY, WAY)] * (num_stages - 1)
    order = schedule(name, num_stages, num)
    pipe = Replica.alike(order, (1.0,) * num_stages, (2.0,) * num_stages, (0.5,) * (num_stages - 1), ways)
    assert blocking_ends(pipe).max() >= 3 * num + (num_stages - 1) * (3 + 2 * 0.5)


def test_orders_that_wait_for_each_other_are_told() -> None:
    """Stage 0 offers micro-batch 0 first, stage 1 asks for 1."""
    usual = schedule("gpipe", 2, 2).orders
    order = Schedule((usual[0], (usual[1][1], usual[1][0], *usual[1][2:])))
    pipe = Replica(order, np.ones((2, 2)), np.ones((2, 2)), np.ones((1, 2)), ((WAY, WAY),))
    with pytest.raises(ValueError, match=r"stage 0: with blocking sends its block 1 of 4 never gets its turn"):
        blocking_ends(pipe)


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_a_plan_without_overlap_waits_for_its_sends(order: str) -> None:
    """Both speeds say the same of one replica, and the simulation says where the time goes."""
    made = plan("a0 b0", Layout(1, 2), shares=(4,), schedule=order, overlap=False)
    given = made, job(output=50 * MB, stage_transport="nccl"), world()
    simulated = simulate(*given)
    assert predict(*given).step_s == pytest.approx(simulated.step_s)
    assert where(simulated).step_s == pytest.approx(simulated.step_s)
    assert predict(*given).step_s > predict(replace(made, overlap=True), *given[1:]).step_s


def test_the_optimizer_by_its_bytes_or_as_stated() -> None:
    """1,000 million parameters on a V100 of 900 GB/s; nothing where its memory's rate is not known, or over gloo."""
    layers = (Layer("layer", 1000 * MB, 1e12, 2e12, 0, 0),)
    workload = Workload("team/job", Model(layers), 8, {}, optimizer_s=None)
    machines = (Machine("a0", "a", memory_bandwidth_bytes_per_s=9e11), Machine("a1", "a"))
    topology = Topology(machines, region_links={("a", "a"): Link(0.0, 1e9)})
    over_nccl = plan("a0 a1", Layout(2), algorithm="nccl", stages=(0,))
    expected_s = UPDATE_BYTES["adamw"] * 1000 * MB / (MEMORY_SHARE * 9e11)
    assert optimizer_s(over_nccl, workload, topology) == pytest.approx(expected_s)
    assert optimizer_s(plan("a1 a1", Layout(2), algorithm="nccl", stages=(0,)), workload, topology) == 0
    assert optimizer_s(replace(over_nccl, algorithm="ring"), workload, topology) == 0
    assert optimizer_s(replace(over_nccl, algorithm="ring"), replace(workload, optimizer_s=0.7), topology) == 0.7


def test_what_ends_a_step_is_the_last_of_its_parts() -> None:
    """Stated seconds come whatever the transport; parts sum to the step, simulated ones too."""
    made, workload = plan("a0 b0", Layout(1, 2)), job(optimizer_s=0.25, step_overhead_s=0.5)
    found = replace(made, prediction=foresee(made, workload, world()))
    parts = step_parts(found, workload, world())
    assert (parts[-1].part, parts[-1].seconds) == (Part.END, pytest.approx(0.75))
    assert sum(part.seconds for part in parts) == pytest.approx(found.prediction.step_s)
    rows = where(simulate(made, workload, world())).rows
    assert (rows[-1].part, rows[-1].seconds) == ("end of step", pytest.approx(0.75))


def test_small_all_reduces_grow_with_the_latency_alone() -> None:
    """Of eight stages in turn in two regions: a tree, as the tuner says; not with micro-batches."""
    names = " ".join(f"{region}{n}" for n in range(4) for region in "ab")
    made, workload = plan(names, Layout(1, 8)), job(num_layers=8, stage_transport="nccl")
    far, farther = (end_s(made, workload, world(rtt_s=rtt_s)) for rtt_s in (0.05, 0.1))
    assert farther == pytest.approx(2 * far, rel=0.01)
    assert far == end_s(replace(made, shares=(8,)), workload, world())
    assert end_s(made, replace(workload, end_collectives=4), world()) == pytest.approx(2 * far)
    assert end_s(made, replace(workload, end_collectives=0), world()) == 0


@pytest.mark.parametrize("seed", range(0, 120, 3))
def test_a_limit_never_makes_a_step_shorter(seed: int) -> None:
    """Any plan, where the machines' NICs come to be known: of half a link, then of a tenth of it."""
    case = draw(seed)
    workload = replace(case.workload, nccl=RING)
    rates = [case.topology.link(a, b).bandwidth_bytes_per_s for a, b in itertools.pairwise(case.plan.rank_machines)]
    before_s = predict(case.plan, workload, case.topology).step_s
    for share in (0.5, 0.1):
        nic = share * max(rates, default=1e9)
        machines = tuple(replace(machine, nic_bytes_per_s=nic) for machine in case.topology.machines)
        limited_s = predict(case.plan, workload, replace(case.topology, machines=machines)).step_s
        assert limited_s >= before_s * (1 - 1e-9)
        before_s = limited_s


@pytest.mark.parametrize("optimizer", OPTIMIZER_BYTES_PER_PARAMETER)
def test_every_optimizer_of_a_workload_has_its_update_priced(optimizer: str) -> None:
    """An update at least reads the gradient and writes the parameter, and what it keeps of it is read and written."""
    assert UPDATE_BYTES[optimizer] >= 12 + 2 * OPTIMIZER_BYTES_PER_PARAMETER[optimizer]
    made = plan("a0 b0", Layout(1, 2)), job(stage_transport="nccl", optimizer=optimizer), world()
    assert predict(*made).overhead_s == pytest.approx(optimizer_s(*made) + end_s(*made))
