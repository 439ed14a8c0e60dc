"""One front for all transports: groups at the same time share links and uplinks."""

from __future__ import annotations

import pytest
import worlds
from hulk_placement.cost.gloo import SOFTWARE_S, Gloo, cut_ring
from hulk_placement.cost.groups import Group
from hulk_placement.cost.hierarchical import Hierarchical
from hulk_placement.cost.parameter_server import ParameterServer
from hulk_placement.cost.predict import allreduce
from hulk_placement.cost.transports import Transport, allreduce_seconds
from hulk_placement.nccl import Nccl
from hulk_placement.topology import Link, Machine, Topology
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20
ALL: list[Transport] = [
    Gloo(),
    Hierarchical(),
    Nccl(),
    Nccl(algorithm="ring", protocol="Simple"),
    Nccl(algorithm="tree"),
    ParameterServer(),
]
EVERY = pytest.mark.parametrize("transport", ALL, ids=str)
FULL = worlds.profile("B")
NARROW = Topology(
    FULL.machines,
    region_links={pair: Link(0.001, 1e5 if pair[0] != pair[1] else 1e9) for pair in FULL.region_links},
)


def seconds(transport: Transport, groups: list[Group], topology: Topology) -> list[float]:
    return [time.seconds for time in allreduce_seconds(transport, groups, topology)]


@EVERY
def test_one_rank_has_nobody_to_talk_to(transport: Transport) -> None:
    time = allreduce_seconds(transport, [Group(("P0",), MIB)], FULL)[0]
    assert (time.seconds, time.worst) == (0.0, None)


@EVERY
def test_groups_over_the_same_links_take_as_long_as_all_of_their_bytes(transport: Transport) -> None:
    """On links that are full nothing but bytes counts: three times the bytes, three times the time."""
    groups = [Group(("P0", "O0", "T0"), 256 * MIB), Group(("P1", "O1", "T1"), 512 * MIB)]
    alone, both = seconds(transport, groups[:1], NARROW)[0], seconds(transport, groups, NARROW)
    assert max(both) == pytest.approx(3 * alone, rel=0.02)


@EVERY
def test_groups_over_links_of_their_own_do_not_slow_each_other(transport: Transport) -> None:
    groups = [Group(("P0", "O0"), MIB), Group(("T0", "T1"), MIB)]
    assert seconds(transport, groups, FULL) == [seconds(transport, [group], FULL)[0] for group in groups]


@EVERY
def test_an_uplink_holds_back_all_that_leaves_a_region(transport: Transport) -> None:
    limited = Topology(FULL.machines, region_links=FULL.region_links, uplinks={"O": 1e5})
    group = Group(("P0", "P1", "O0", "T0", "T1", "O1"), MIB)
    free_s, limited_s = (seconds(transport, [group], topology)[0] for topology in (FULL, limited))
    assert limited_s > 5 * free_s


@EVERY
def test_a_flow_that_gets_less_than_its_link(transport: Transport) -> None:
    capped = {
        pair: Link(link.rtt_s, link.bandwidth_bytes_per_s, flow_bytes_per_s=1e5 if pair[0] != pair[1] else None)
        for pair, link in FULL.region_links.items()
    }
    group = Group(("P0", "O0"), MIB)
    found = seconds(transport, [group], Topology(FULL.machines, region_links=capped))[0]
    assert found > 5 * seconds(transport, [group], FULL)[0]


@EVERY
def test_the_worst_edge_is_named(transport: Transport) -> None:
    """Only T -> P is slow."""
    links = dict(FULL.region_links) | {("T", "P"): Link(0.24, 1e4)}
    group = Group(("P0", "P1", "O0", "O1", "T0", "T1"), MIB)
    for machines in (group.machines, group.machines[::-1]):  # one of them has the edge in a ring
        time = allreduce_seconds(transport, [Group(machines, MIB)], Topology(FULL.machines, region_links=links))[0]
        if time.seconds > 50:
            assert time.worst is not None
            assert (time.worst[0][0], time.worst[1][0]) == ("T", "P")
            return
    pytest.fail("no order used the slow link")


@given(st.data())
def test_another_group_never_speeds_one_up(data: st.DataObject) -> None:
    topology = data.draw(worlds.worlds(own_links=True))
    names = [machine.name for machine in topology.machines]
    transport = data.draw(st.sampled_from(ALL))
    orders = [tuple(data.draw(st.permutations(names))) for _ in range(2)]
    groups = [Group(order, data.draw(st.integers(1, 1 << 24))) for order in orders]
    alone = seconds(transport, groups[:1], topology)[0]
    first, second = seconds(transport, groups, topology)
    assert first >= alone * (1 - 1e-12)
    assert [second, first] == pytest.approx(seconds(transport, groups[::-1], topology))


@given(st.data())
def test_the_evaluators_all_reduce_is_one_group(data: st.DataObject) -> None:
    topology = data.draw(worlds.worlds())
    order = data.draw(st.permutations([machine.name for machine in topology.machines]))
    num_bytes, num_buckets = data.draw(st.integers(1, 1 << 26)), data.draw(st.integers(1, 2))
    time = allreduce_seconds(Gloo(), [Group(tuple(order), num_bytes, num_buckets)], topology)[0]
    assert allreduce(order, num_bytes, num_buckets, topology) == (time.seconds, time.worst)


def test_gloo_with_two_groups_by_hand() -> None:
    """Both rings have one edge on P -> O: q is 1 + half of one for the group of twice the bytes, 3 for the other."""
    links = {(a, b): Link(0.1, 1e6) for a, b in ("PO", "OP")}
    topology = Topology(tuple(Machine(name, name[0]) for name in ("P0", "P1", "O0", "O1")), region_links=links)
    groups = [Group(("P0", "O0"), 2 * MIB), Group(("P1", "O1"), 4 * MIB)]
    expected = [cut_ring(g.num_bytes, 2, 1).edge_s(0.1, 1e6, q) for g, q in zip(groups, (3, 1.5), strict=True)]
    assert seconds(Gloo(), groups, topology) == pytest.approx(expected)


def test_a_server_by_hand() -> None:
    """Two clients in one region send 1 MB each over a shared 1 MB/s, and get as much back."""
    links = {(a, b): Link(0.1 - SOFTWARE_S, 1e6) for a, b in ("PO", "OP")}
    topology = Topology(tuple(Machine(name, name[0]) for name in ("P0", "P1", "O0")), region_links=links)
    time = allreduce_seconds(ParameterServer("O0"), [Group(("P0", "P1", "O0"), 1_000_000)], topology)[0]
    assert time.seconds == pytest.approx(2 * (0.05 + 2.0))


@pytest.mark.parametrize("sizes", [((), 1, 1), (("P0",), 0, 1), (("P0",), 1, 0)])
def test_groups_of_nothing(sizes: tuple[tuple[str, ...], int, int]) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        Group(*sizes)


SLOW_PAIR = Topology(
    tuple(Machine(f"{region}{n}", region) for region in "ab" for n in range(3)),
    node_links={("b0", "a0"): Link(0.02, 1.25e6)},
    region_links={(a, b): Link(0.02 if a != b else 0.0002, 1.25e9) for a in "ab" for b in "ab"},
)


@pytest.mark.parametrize(
    ("transport", "expected"),
    [
        # 10 segments of 1 MiB, twice, and two round trips.
        pytest.param(Gloo(), 2 * 10 * MIB / 1.25e6 + 2 * (0.02 + SOFTWARE_S), id="ring"),
        # 12 MiB from b0 over its own link, back to three over the regions'.
        pytest.param(
            ParameterServer(), 12 * MIB / 1.25e6 + 3 * 12 * MIB / 1.25e9 + 0.02 + SOFTWARE_S, id="parameter-server"
        ),
    ],
)
def test_edges_that_do_not_use_a_machine_pairs_own_link_are_not_counted_on_it(
    transport: Transport, expected: float
) -> None:
    group = Group(("a0", "b0", "a1", "b1", "a2", "b2"), 12 * MIB)
    assert seconds(transport, [group], SLOW_PAIR) == pytest.approx([expected])


def test_edges_share_the_regions_link_whatever_links_of_their_own_they_have() -> None:
    """Three edges of 25 MB/s each at most, over 30 MB/s; of 40 MB/s each, which the regions' link then carries."""
    ring, slow, wide = Group(("a0", "b0", "a1", "b1", "a2", "b2"), 600 * MIB), Link(0.001, 25e6), Link(0.001, 40e6)
    pairs = [("b0", "a0"), ("b1", "a1"), ("b2", "a2")]
    common = {("a", "b"): Link(0.001, 1e12), ("b", "a"): Link(0.001, 30e6)}
    for own, bytes_per_s in ((dict.fromkeys(pairs, slow), 30e6), (dict.fromkeys(pairs, wide), 40e6)):
        topology = Topology(SLOW_PAIR.machines, node_links=own, region_links=common)
        found = seconds(Gloo(), [ring], topology)[0]
        assert found == pytest.approx(3 * 2 * 5 / 6 * 600 * MIB / bytes_per_s, rel=0.01)
