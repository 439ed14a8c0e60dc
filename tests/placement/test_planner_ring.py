"""The ring over regions against every order, up to eight machines, two or three a region."""

from __future__ import annotations

import itertools

import pytest
from hulk_placement.cost.compute import share_out
from hulk_placement.cost.gloo import cut_ring
from hulk_placement.cost.predict import allreduce
from hulk_placement.search.ring.region_graph import Demand, RegionGraph, Work
from hulk_placement.search.ring.regions import Walk, best_walk
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.topology import Link, Machine, Topology
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import BANDWIDTHS, LINKS, profile, workload


def regions_of(topology: Topology) -> list[str]:
    return sorted({machine.region for machine in topology.machines})


def graph_of(topology: Topology) -> RegionGraph:
    regions = regions_of(topology)
    known = topology.region_links
    links = [[topology.region_link(a, b) if (a, b) in known else None for b in regions] for a in regions]
    return RegionGraph(
        rtt_s=tuple(tuple(link.rtt_s if link else 0.0 for link in row) for row in links),
        bandwidth=tuple(tuple(link.bandwidth_bytes_per_s if link else 0.0 for link in row) for row in links),
        flow=tuple(tuple(link.one_flow_bytes_per_s if link else 0.0 for link in row) for row in links),
        uplink=tuple(topology.uplinks.get(region, 0.0) for region in regions),
        roomy=tuple(False for _ in regions),
    )


@st.composite
def full_worlds(draw: st.DrawFn, sizes: tuple[int, ...]) -> Topology:
    regions = [f"r{number}" for number in range(len(sizes))]
    machines = tuple(Machine(f"{r}-{n}", r) for r, size in zip(regions, sizes, strict=True) for n in range(size))
    uplinks = {region: draw(BANDWIDTHS) for region in regions if draw(st.integers(0, 3)) == 0}
    inside = {(region, region): Link(0.0005, 1e9) for region in regions}
    between = {(a, b): draw(LINKS) for a in regions for b in regions if a != b}
    return Topology(machines, region_links=inside | between, uplinks=uplinks)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (2, 2, 2), (2, 2, 3), (3, 3, 2), (2, 2, 2, 2)])
def test_no_order_is_faster(sizes: tuple[int, ...]) -> None:
    @settings(max_examples=4 if sum(sizes) > 7 else 15, deadline=None)
    @given(full_worlds(sizes), st.sampled_from([1 << 16, 1 << 22, 1 << 25]), st.integers(1, 2))
    def check(topology: Topology, num_bytes: int, num_buckets: int) -> None:
        names = [machine.name for machine in topology.machines]
        alike = [topology.machine(name).region for name in names]
        seen = {tuple(rest) for rest in itertools.permutations(alike[1:])}
        least = min(
            allreduce(as_machines((alike[0], *rest)), num_bytes, num_buckets, topology)[0] for rest in sorted(seen)
        )
        assert walk_over(topology, num_bytes, num_buckets).communication_s == pytest.approx(least, rel=1e-12)

    check()


def as_machines(regions: tuple[str, ...]) -> list[str]:
    """The machines of a sequence of regions, each region's in turn."""
    return [f"{region}-{regions[:position].count(region)}" for position, region in enumerate(regions)]


def walk_over(topology: Topology, num_bytes: int, num_buckets: int) -> Walk:
    regions = regions_of(topology)
    slots = tuple(sum(machine.region == region for machine in topology.machines) for region in regions)
    num_workers = sum(slots)
    ring = cut_ring(num_bytes, num_workers, num_buckets)
    work = Work(100_000)
    walk = best_walk(graph_of(topology), ring, Demand(num_workers, 0, slots, slots), float("inf"), work)
    assert walk is not None
    assert not work.num_given_up
    return walk


def test_out_through_the_hub_and_back() -> None:
    walk = walk_over(profile("A"), 1 << 20, 1)
    regions = [regions_of(profile("A"))[region] for region in walk.visits]
    assert sorted(regions) == ["O", "O", "P", "T"]
    assert walk.communication_s == pytest.approx(1.557, abs=0.001)


def test_no_walk_where_links_lead_only_one_way() -> None:
    bandwidth = ((1e9, 1e6), (0.0, 1e9))
    graph = RegionGraph(((0.001, 0.1), (0.1, 0.001)), bandwidth, bandwidth, (0.0, 0.0), (False, False))
    ring = cut_ring(1 << 20, 4, 1)
    demand = Demand(4, 0, (2, 2), (2, 2))
    assert best_walk(graph, ring, demand, float("inf"), Work(1000)) is None


def test_a_search_that_ran_out_says_so_instead_of_no_ring() -> None:
    """Joined one way round, with a shorter link that leads the nearest-first order astray."""
    machines = tuple(Machine(name, name) for name in "abc")
    around = {pair: Link(0.1, 1e6) for pair in (("a", "b"), ("b", "c"), ("c", "a"))}
    topology = Topology(machines, region_links={**around, ("a", "c"): Link(0.01, 1e6)})
    job = workload(topology, min_workers=3)
    assert solve([job], [], topology).plans[job.key].optimality_gap == 0
    short = solve([job], [], topology, Budget(iterations=1)).unplaced[job.key]
    assert (short.reason, "3 workers over 3 regions" in short.message) == ("SearchExhausted", True)


@given(st.integers(1, 200), st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=1, max_size=20))
def test_shares_are_equal_but_for_one_and_the_faster_get_more(global_batch: int, rank_speeds: list[float]) -> None:
    shares = share_out(global_batch, rank_speeds)
    assert sum(shares) == global_batch
    assert max(shares) - min(shares) <= 1
    larger = [speed for speed, share in zip(rank_speeds, shares, strict=True) if share > min(shares)]
    smaller = [speed for speed, share in zip(rank_speeds, shares, strict=True) if share == min(shares)]
    assert not larger or min(larger) >= max(smaller)
