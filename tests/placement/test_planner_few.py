"""The quickest ring of a handful of machines, against all there are; what it proves where machines differ."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hulk_placement.cost.gloo import cut_ring
from hulk_placement.search.graph import machine_graph
from hulk_placement.search.problem import Problem, build
from hulk_placement.search.ring.few import quickest_ring
from hulk_placement.search.ring.machines import MachineGraph
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from worlds import workload

RING = cut_ring(1 << 20, 4, 1)


def world(draw: random.Random, num_machines: int, num_regions: int, own: int) -> Topology:
    """Machines of three speeds; every two regions have a link, and some pairs of machines their own."""
    machines = tuple(
        Machine(f"m{n}", f"r{n % num_regions}", flops_per_s=draw.choice((1e12, 2e12, 3e12)))
        for n in range(num_machines)
    )
    regions = sorted({machine.region for machine in machines})
    between = {
        (a, b): Link(draw.uniform(0.01, 0.3), 10 ** draw.uniform(6, 8)) if a != b else Link(0.0005, 1e9)
        for a in regions
        for b in regions
    }
    pairs = draw.sample([(a, b) for a in machines for b in machines if a.region != b.region], own)
    mine = {
        (a.name, b.name): Link(draw.uniform(1, 1.1) * link.rtt_s, draw.uniform(0.8, 1) * link.bandwidth_bytes_per_s)
        for a, b in pairs
        for link in [between[a.region, b.region]]
    }
    return Topology(machines, node_links=mine, region_links=between)


def graph_of(topology: Topology, **changes: object) -> MachineGraph:
    problem = build(workload(topology, **changes), topology)
    assert isinstance(problem, Problem)
    return machine_graph(problem)


def least_of_all(graph: MachineGraph, num_workers: int) -> float:
    """The seconds of the slowest edge, alone on its links, of the best of all rings."""
    return min(
        max(graph.alone_s(RING, a, b) for a, b in zip(order, (*order[1:], order[0]), strict=True))
        for order in itertools.permutations(range(len(graph.num_slots)), num_workers)
    )


@pytest.mark.parametrize("seed", range(12))
def test_no_other_ring_has_a_quicker_slowest_edge(seed: int) -> None:
    draw = random.Random(seed)
    graph = graph_of(world(draw, 6, draw.randint(2, 4), own=draw.randint(0, 8)))
    for num_workers in range(2, 7):
        found = quickest_ring(graph, RING, num_workers, math.inf, Work(10_000))
        assert found is not None
        order, slowest_s = found
        assert len(set(order)) == num_workers
        assert slowest_s == least_of_all(graph, num_workers)
        edges = [graph.alone_s(RING, a, b) for a, b in zip(order, (order[-1], *order[:-1]), strict=True)]
        assert max(edges) == slowest_s
        assert quickest_ring(graph, RING, num_workers, slowest_s, Work(10_000)) is None


def test_a_machine_with_room_for_two_workers_has_both() -> None:
    machines = (Machine("a", "r0", num_accelerators=2, flops_per_s=1e12), Machine("b", "r1", flops_per_s=1e12))
    links = {("r0", "r1"): Link(0.1, 1e6), ("r1", "r0"): Link(0.1, 1e6)}
    graph = graph_of(Topology(machines, region_links=links), max_workers=3)
    found = quickest_ring(graph, RING, 3, math.inf, Work(10_000))
    assert found is not None
    assert sorted(found[0]) == [0, 0, 1]


def test_links_that_may_not_be_used_join_nobody() -> None:
    machines = (Machine("a", "r0", flops_per_s=1e12), Machine("b", "r1", flops_per_s=1e12))
    graph = graph_of(Topology(machines), allow_unknown_links=False)
    assert quickest_ring(graph, RING, 2, math.inf, Work(10_000)) is None


def test_without_work_nothing_is_found_and_that_is_said() -> None:
    work = Work(1)
    assert quickest_ring(graph_of(world(random.Random(0), 6, 3, own=0)), RING, 6, math.inf, work) is None
    assert work.exhausted


@pytest.mark.parametrize("own", [0, 12])
@pytest.mark.parametrize("shares", ["planned", "equal"])
@pytest.mark.parametrize("least", [1, 12])
def test_rings_of_twelve_unequal_machines_are_proven(own: int, shares: str, least: int) -> None:
    for seed in range(4):
        topology = world(random.Random(seed), 12, 3 + seed % 3, own=own)
        job = workload(topology, shares=shares, min_workers=least, global_batch=96)
        assert solve([job], [], topology).plans[job.key].optimality_gap < 1e-9


@pytest.mark.parametrize("own", [0, 12])
def test_rings_of_forty_unequal_machines_have_a_close_bound(own: int) -> None:
    """Not all of them can be tried, but the best walk over their regions bounds them."""
    topology = world(random.Random(1), 40, 4, own=own)
    job = workload(topology, shares="planned", min_workers=40, global_batch=320)
    assert solve([job], [], topology).plans[job.key].optimality_gap < 0.01
