"""Names and addresses: unique in a lab, disjoint between labs, short enough for the kernel."""

from __future__ import annotations

import ipaddress
import itertools
from pathlib import Path

import pytest
from hulk_lab.spec import KwokSpec, LabSpec, LinkSpec, RegionSpec
from hulk_lab.wan import slots
from hulk_lab.wan.addresses import NUM_SLOTS, LabNetwork, slot_network


def largest_lab() -> LabSpec:
    """15 regions, 64 nodes."""
    names = [f"region-{'x' * 20}-{i}" for i in range(15)]
    regions = [RegionSpec.model_validate({"name": name, "nodes": 8 if i == 0 else 4}) for i, name in enumerate(names)]
    links = [LinkSpec(source=a, target=b, rtt_ms=10, mbit_per_s=10) for a, b in itertools.permutations(names, 2)]
    return LabSpec(regions=tuple(regions), links=tuple(links), kwok=KwokSpec(nodes=100))


def networks(net: LabNetwork) -> list[ipaddress.IPv4Network]:
    """Every range and single address that must not meet another."""
    ranges = [
        net.management_cidr,
        net.service_cidr,
        net.kwok_pod_cidr,
        *(node.pod_cidr for node in net.nodes),
        *(router.lan_cidr for router in net.routers),
        *(router.wan_address for router in net.routers),
    ]
    return [ipaddress.IPv4Network(text) for text in ranges]


def test_the_largest_lab_fits_its_slot_without_overlaps() -> None:
    net = LabNetwork(largest_lab(), NUM_SLOTS - 1)
    assert len(net.nodes) == 64
    every = networks(net)
    assert all(network.subnet_of(slot_network(net.slot)) for network in every)
    assert [(a, b) for a, b in itertools.combinations(every, 2) if a.overlaps(b)] == []
    addresses = [a for node in net.nodes for a in (node.address, node.management_address)]
    addresses += [router.lan_address for router in net.routers]
    assert len(set(addresses)) == len(addresses) == 64 * 2 + 15


def test_addresses_lie_in_the_ranges_they_belong_to() -> None:
    net = LabNetwork(largest_lab(), 3)
    for node in net.nodes:
        router = next(router for router in net.routers if router.region == node.region)
        assert ipaddress.ip_address(node.address) in ipaddress.ip_network(router.lan_cidr)
        assert ipaddress.ip_address(node.management_address) in ipaddress.ip_network(net.management_cidr)
        assert ipaddress.ip_network(node.pod_cidr).subnet_of(ipaddress.ip_network(net.pod_cidr))  # type: ignore[arg-type]
        assert node.gateway == router.lan_address
    assert ipaddress.ip_address(net.dns_address) in ipaddress.ip_network(net.service_cidr)


def test_every_address_and_network_has_a_twin_in_ipv6() -> None:
    net = LabNetwork(largest_lab().model_copy(update={"ipv6": True}), 3)
    node = net.nodes[0]
    assert net.families(node.address) == ("fd00:83::a83:200a", "10.131.32.10")
    assert net.families(node.pod_cidr) == ("fd00:83::a83:4000/120", "10.131.64.0/24")
    assert net.first(net.dns_address) == "fd00:83::a83:100a"
    assert ipaddress.ip_address(net.first(net.dns_address)) in ipaddress.ip_network(net.ipv6(net.service_cidr))
    only = LabNetwork(largest_lab().model_copy(update={"ipv6": "only"}), 3)
    assert only.families(node.address) == ("fd00:83::a83:200a",)
    assert LabNetwork(largest_lab(), 3).families(node.address) == (node.address,)


def test_interface_names_are_short_enough() -> None:
    net = LabNetwork(largest_lab(), NUM_SLOTS - 1)
    assert max(len(name) for name in [net.bridge, *(node.host_interface for node in net.nodes)]) <= 15


def test_two_slots_share_nothing() -> None:
    first, second = LabNetwork(largest_lab(), 1), LabNetwork(largest_lab(), 11)
    names = [
        {net.bridge, *(n.host_interface for n in net.nodes), *(n.netns for n in net.nodes)} for net in (first, second)
    ]
    assert names[0] & names[1] == set()
    assert not slot_network(1).overlaps(slot_network(11))
    assert first.loopback_address != second.loopback_address


def test_an_unknown_node_is_refused_with_the_known_ones() -> None:
    net = LabNetwork(LabSpec.model_validate({"regions": [{"name": "a", "nodes": 2}]}), 0)
    with pytest.raises(ValueError, match="lab hulk has no node 'b-0', only a-0, a-1"):
        net.node("b-0")


def test_slots_are_kept_until_released(tmp_path: Path) -> None:
    first, second = slots.acquire("one", tmp_path), slots.acquire("two", tmp_path)
    assert first != second
    assert slots.acquire("one", tmp_path) == slots.find("one", tmp_path) == first
    slots.release("one", tmp_path)
    slots.release("one", tmp_path)
    assert slots.find("one", tmp_path) is None
    assert slots.acquire("three", tmp_path) == first


def test_a_slot_whose_addresses_the_machine_routes_is_left_out() -> None:
    assert slots.lowest_free({"a": 0}, [ipaddress.IPv4Network("10.129.7.0/24")]) == 2


def test_no_slot_left() -> None:
    with pytest.raises(ValueError, match=r"none of 32 slots is free: held by a, and this machine routes 10.0.0.0/8"):
        slots.lowest_free({"a": 0}, [ipaddress.IPv4Network("10.0.0.0/8")])
