"""NCCL's model against values worked out by hand: it has no measurements."""

from __future__ import annotations

from typing import Any

import pytest
from hulk_placement.cost.groups import Group
from hulk_placement.cost.nccl_tree import parents
from hulk_placement.cost.nccl_tuning import tuned
from hulk_placement.cost.transports import allreduce_seconds
from hulk_placement.nccl import PROTOCOLS, Nccl
from hulk_placement.topology import Link, Machine, Topology
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20
HOP_S = PROTOCOLS["Simple"].hop_s
RING = Nccl(algorithm="ring", protocol="Simple")


def world(rtt_s: float, rate: float, flow: float | None = None) -> Topology:
    machines = tuple(Machine(name, name, num_accelerators=8) for name in "abcd")
    links = {(x, y): Link(rtt_s, rate, flow_bytes_per_s=flow) for x in "abcd" for y in "abcd" if x != y}
    return Topology(machines, region_links=links)


def ring_s(num_bytes: int, topology: Topology, transport: Nccl = RING, machines: str = "abcd") -> float:
    return allreduce_seconds(transport, [Group(tuple(machines), num_bytes)], topology)[0].seconds


def test_small_sums_pay_one_way_a_step() -> None:
    """Four ranks: six steps; no ready message, so half a round trip each."""
    assert ring_s(1, world(0.1, 1e9)) == pytest.approx(6 * (0.05 + HOP_S), rel=1e-5)


def test_large_sums_pay_their_bytes() -> None:
    """64 MiB over near links: 2 (n - 1) / n of the bytes over each."""
    assert ring_s(64 * MIB, world(0.0, 1e7)) == pytest.approx(1.5 * 64 * MIB / 1e7, rel=1e-3)


def test_a_loop_of_chunks_is_under_way_at_a_time() -> None:
    """Far links: 64 MiB are 4 loops of 4 ranks x 2 channels x 2 MiB, each six steps of one way."""
    quick = world(0.2, 1e13)
    window = Nccl(algorithm="ring", protocol="Simple", window_bytes=1 << 40, buffer_bytes=4 * MIB)
    in_flight_s = 2 * 2 * MIB / (2 * 4 * MIB / 0.2)  # chunks of both channels at the buffers of both a round trip
    assert ring_s(64 * MIB, quick, window) == pytest.approx(4 * 6 * (0.1 + HOP_S + in_flight_s / 2))


@pytest.mark.parametrize(
    ("transport", "rate"),
    [
        (RING, 2 * 4 * MIB / 0.2),
        (Nccl(algorithm="ring", protocol="Simple", num_channels=4), 4 * 4 * MIB / 0.2),
        (Nccl(algorithm="ring", protocol="Simple", window_bytes=MIB), 2 * MIB / 0.2),
        (Nccl(algorithm="ring", protocol="Simple", window_bytes=MIB, num_sockets=2), 4 * MIB / 0.2),
        (Nccl(algorithm="ring", protocol="LL"), 8 * 2 * 32 * 1024 / 0.2 / 2),
    ],
)
def test_what_a_long_link_carries_a_round_trip(transport: Nccl, rate: float) -> None:
    protocol = PROTOCOLS[transport.protocol or "Simple"]
    assert transport.rate(Link(0.2, 1e12), 1.0, protocol, transport.num_channels) == pytest.approx(rate)


def test_sockets_lift_what_one_flow_gets() -> None:
    slow, quick = (Nccl(algorithm="ring", protocol="Simple", num_channels=1, num_sockets=sockets) for sockets in (1, 4))
    limited = world(0.001, 1e9, flow=1e6)
    assert ring_s(64 * MIB, limited, slow) == pytest.approx(4 * ring_s(64 * MIB, limited, quick), rel=0.01)


def test_data_flow_from_a_rank_to_the_next() -> None:
    """Only a -> b is slow: the ring that uses it has b right after a. gloo's goes the other way."""
    links = {(x, y): Link(0.1, 1e3 if x + y == "ab" else 1e8) for x in "abc" for y in "abc" if x != y}
    topology = Topology(tuple(Machine(name, name) for name in "abc"), region_links=links)
    slow, fast = (allreduce_seconds(RING, [Group(tuple(order), MIB)], topology)[0] for order in ("abc", "acb"))
    assert slow.worst == ("a", "b")
    assert slow.seconds > 100 * fast.seconds


def test_inside_a_machine() -> None:
    """Eight ranks of one machine over 200 GB/s; LL128 may be taken there, and is not between machines."""
    topology, group = world(0.1, 1e9), Group(("a",) * 8, 64 * MIB)
    nvlink = Nccl(inside=Link(0.0, 2e11), num_channels=16, algorithm="ring")
    time = allreduce_seconds(nvlink, [group], topology)[0]
    assert time.seconds == pytest.approx(2 * 7 / 8 * 64 * MIB / 2e11, rel=0.5)
    assert time.worst == ("a", "a")
    sizes = [1 << power for power in range(10, 30)]
    inside = {tuned(nvlink, Group(("a",) * 8, size), topology).protocol for size in sizes}
    between = {tuned(nvlink, Group(("a", "b"), size), topology).protocol for size in sizes}
    assert "LL128" in inside
    assert "LL128" not in between


@pytest.mark.parametrize("algorithm", ["ring", "tree", None])
@pytest.mark.parametrize(
    ("machine", "bytes_per_s"),
    [
        (Machine("a", "a", product="NVIDIA-H100-80GB-HBM3"), 0.8 * 4.5e11),
        (Machine("a", "a", inside=Link(1e-5, 4e9)), 4e9),
        (Machine("a", "a"), 1e9),
    ],
    ids=["product", "declared", "unknown"],
)
def test_ranks_of_a_machine_talk_over_its_own_links(machine: Machine, bytes_per_s: float, algorithm: Any) -> None:
    """Eight of them, GPT-2 XL's gradients; and as the fast part of a ring between machines."""
    transport, other = Nccl(algorithm=algorithm), Machine("b", "b", inside=Link(0.0, 1e13))
    topology = Topology((machine, other), region_links={pair: Link(1e-5, 1e13) for pair in (("a", "b"), ("b", "a"))})
    for machines in (("a",) * 8, ("a",) * 4 + ("b",) * 4):
        found = allreduce_seconds(transport, [Group(machines, 6_230_000_000)], topology)[0]
        assert 1.0 <= found.seconds / (2 * 7 / 8 * 6.23e9 / bytes_per_s) < 1.7
        assert found.worst == ("a", "a")


def test_trees_are_shallow() -> None:
    """Four machines: in the first tree 1 -> 2 -> 0, two ways up and two down, half a round trip each."""
    tree = Nccl(algorithm="tree", protocol="Simple")
    assert ring_s(1, world(0.1, 1e9), tree) == pytest.approx(4 * (0.05 + HOP_S), rel=1e-5)


@given(st.integers(1, 300))
def test_every_node_reaches_the_root_in_the_logarithm_of_steps(num_nodes: int) -> None:
    for tree in parents(num_nodes):
        assert sum(parent is None for parent in tree) == 1
        for node in range(num_nodes):
            depth, at = 0, node
            while (parent := tree[at]) is not None:
                depth, at = depth + 1, parent
            assert depth <= num_nodes.bit_length()


@given(st.integers(3, 300))
def test_leaves_of_one_tree_are_inner_nodes_of_the_other(num_nodes: int) -> None:
    first, second = ({parent for parent in tree if parent is not None} for tree in parents(num_nodes))
    assert len(set(range(num_nodes)) - first - second) <= 1


@pytest.mark.parametrize("setting", ["num_channels", "buffer_bytes", "num_sockets", "window_bytes"])
def test_settings_that_cannot_be(setting: str) -> None:
    with pytest.raises(ValueError, match="must all be >= 1"):
        Nccl(**{setting: 0})
