"""The event simulation of gloo's rings by hand, and the closed forms beside it."""

from __future__ import annotations

import pytest
from hulk_placement.cost.gloo import SOFTWARE_S
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group
from hulk_placement.topology import Link, Machine, Topology

from bench.gloo_model import drawn
from bench.gloo_model.buckets import Bucket, Gradients, ddp_seconds, ddp_simulated
from bench.gloo_model.events import Collective, simulate

MIB = 1 << 20
MACHINES = tuple(Machine(name + i, name) for name in "PQ" for i in "01")


def world(rtt_s: float = 0.3 - SOFTWARE_S, rate: float = 10 * MIB, **changes: object) -> Topology:
    """Two regions; a segment of 1 MiB takes 0.1 s, a round trip 0.3 s."""
    links = {(a, b): Link(rtt_s, rate) for a, b in ("PQ", "QP")} | {(a, a): Link(0.0, 1e12) for a in "PQ"}
    return Topology(MACHINES, region_links=links, **changes)  # type: ignore[arg-type]


PAIR = ("P0", "Q0")


def test_two_ranks_by_hand() -> None:
    """4 MiB, two segments in each half: ready messages take 0.15 s, segments leave until 0.35 and take 0.15 s more."""
    assert simulate([Collective(PAIR, 4 * MIB)], world()) == pytest.approx((1.0,))


def test_three_at_once_run_two_at_a_time() -> None:
    """The third begins when the first is done, and finds the link as the first did."""
    first, second, third = simulate([Collective(PAIR, 4 * MIB)] * 3, world())
    assert first < second < third
    assert third - first == pytest.approx(first, rel=0.2)
    alone = simulate([Collective(PAIR, 4 * MIB, group=group) for group in range(3)], world())
    assert max(alone) < third


@pytest.mark.parametrize("num_buckets", [2, 3, 8])
def test_the_closed_form_has_two_under_way_at_a_time(num_buckets: int) -> None:
    together = ring_times([Group(PAIR, num_buckets * 32 * MIB, num_buckets)], world())[0].seconds
    one_by_one = simulate([Collective(PAIR, 32 * MIB)] * num_buckets, world())
    assert together == pytest.approx(max(one_by_one), rel=0.05)


def test_machines_of_a_region_share_the_link_between_them() -> None:
    """Four ranks on two machines: both send each other two edges' bytes over one link."""
    slow = Topology(MACHINES, region_links={("P", "P"): Link(0.001, 1e7)})
    order = ("P0", "P1", "P0", "P1")
    closed_s = ring_times([Group(order, 16 * MIB)], slow)[0].seconds
    assert simulate([Collective(order, 16 * MIB)], slow)[0] == pytest.approx(closed_s, rel=0.02)


def test_data_that_come_late() -> None:
    assert simulate([Collective(PAIR, 4 * MIB, ready_s=2.0)], world()) == pytest.approx((3.0,))


def test_groups_share_a_link() -> None:
    """Two rings over one link that is full: twice as many bytes."""
    narrow = world(rtt_s=0.001, rate=1e6)
    one = simulate([Collective(PAIR, 8 * MIB)], narrow)[0]
    both = simulate([Collective(PAIR, 8 * MIB), Collective(("P1", "Q1"), 8 * MIB, group=1)], narrow)
    assert max(both) == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize("uplinks", [{"P": 1e6}, {"Q": 1e6}])
def test_an_uplink_holds_back(uplinks: dict[str, float]) -> None:
    found = simulate([Collective(PAIR, 8 * MIB)], world(uplinks=uplinks))[0]
    assert found == pytest.approx(simulate([Collective(PAIR, 8 * MIB)], world(rate=1e6))[0], rel=0.01)


def test_a_flow_that_gets_less_than_its_link() -> None:
    links = {(a, b): Link(0.1, 1e8, flow_bytes_per_s=1e6) for a, b in ("PQ", "QP")}
    slow = Topology(MACHINES, region_links=links)
    assert simulate([Collective(PAIR, MIB)], slow) == simulate([Collective(PAIR, MIB)], world(0.1, 1e6))


@pytest.mark.parametrize("num_buckets", [1, 2])
def test_the_closed_form_of_rings(num_buckets: int) -> None:
    found = drawn.rings(num_buckets, 300)
    assert found.mean < 0.005
    assert max(-found.least, found.most) < 0.06


@pytest.mark.parametrize(("equal", "mean"), [(True, 0.01), (False, 0.03)])
def test_the_closed_form_of_buckets(equal: bool, mean: float) -> None:
    assert drawn.buckets(equal, 300).mean < mean


@pytest.mark.parametrize("seconds", [ddp_seconds, ddp_simulated])
def test_buckets_that_were_done_before_the_end_are_not_waited_for(seconds: object) -> None:
    early, late = Bucket(4 * MIB, -5.0), Bucket(4 * MIB)
    assert callable(seconds)
    assert seconds([Gradients(PAIR, (early,))], world()) == (0.0,)
    assert seconds([Gradients(PAIR, (early, late))], world())[0] == pytest.approx(1.0)
    assert seconds([Gradients(("P0",), (late,))], world()) == (0.0,)


@pytest.mark.parametrize("seconds", [ddp_seconds, ddp_simulated])
def test_stages_that_synchronise_at_the_same_time_share_links(seconds: object) -> None:
    narrow = world(rtt_s=0.001, rate=1e6)
    stages = [Gradients(PAIR, (Bucket(8 * MIB),)), Gradients(("P1", "Q1"), (Bucket(8 * MIB),))]
    assert callable(seconds)
    alone, both = seconds(stages[:1], narrow)[0], seconds(stages, narrow)
    assert max(both) == pytest.approx(2 * alone, rel=0.01)
