"""The planner's `Topology` -> the values of a topology document, which reads back to the very same one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hulk_placement.files.part import API_VERSION, plain
from hulk_placement.files.units import BANDWIDTH, FLOW, LATENCY, MEMORY, MEMORY_BANDWIDTH, NIC, ONE_WAY, SPEED, UPLINK
from hulk_placement.geography.light import Coordinates
from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology


def topology_document(topology: Topology, coordinates: Mapping[str, Coordinates] | None = None) -> dict[str, Any]:
    """The document's values. Links of machines that the topology lacks are left out: nothing ever uses them."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Topology"}
    regions = list(_regions(topology, coordinates or {}))
    links = list(link_entries(topology))
    document |= {"regions": regions} if regions else {}
    document["machines"] = [_machine(machine) for machine in topology.machines]
    return document | ({"links": links} if links else {})


def _regions(topology: Topology, coordinates: Mapping[str, Coordinates]) -> Iterator[dict[str, Any]]:
    for name in dict.fromkeys(machine.region for machine in topology.machines):
        said: dict[str, Any] = UPLINK.write(topology.uplinks.get(name))
        if name in coordinates:
            said |= {"latitude": coordinates[name][0], "longitude": coordinates[name][1]}
        if said:
            yield {"name": name, **said}


def _machine(machine: Machine) -> dict[str, Any]:
    said: dict[str, Any] = {"name": machine.name, "region": machine.region}
    if machine.zone:
        said["zone"] = machine.zone
    said["accelerators"] = machine.num_accelerators
    if machine.product != "unknown":
        said["product"] = machine.product
    said |= MEMORY.write(machine.memory_bytes or None)
    said |= MEMORY_BANDWIDTH.write(machine.memory_bandwidth_bytes_per_s or None)
    said |= SPEED.write(machine.flops_per_s)
    said |= NIC.write(machine.nic_bytes_per_s)
    if machine.inside is not None:
        said["inside"] = LATENCY.write(machine.inside.rtt_s) | BANDWIDTH.write(machine.inside.bandwidth_bytes_per_s)
    said |= {"pricePerHour": plain(machine.price_per_hour)} if machine.price_per_hour else {}
    return said | ({"keepsWindows": True} if machine.keeps_windows else {})


def link_entries(topology: Topology) -> Iterator[dict[str, Any]]:
    """An entry of `links` for each link and price."""
    machines = {machine.name for machine in topology.machines}
    regions = {machine.region for machine in topology.machines}
    yield from region_entries(topology.region_links, regions, topology.egress_price_per_gb)
    yield from machine_entries({p: x for p, x in topology.node_links.items() if machines.issuperset(p)}, regions)


def region_entries(
    links: Mapping[Pair, Link], regions: Collection[str], price_per_gb: Mapping[Pair, float] | None = None
) -> Iterator[dict[str, Any]]:
    """Of links and prices between these regions."""
    said: dict[Pair, dict[str, Any]] = {
        pair: {"egressPricePerGigabyte": plain(price)} for pair, price in (price_per_gb or {}).items()
    }
    for pair, link in links.items():
        said[pair] = _figures(link) | said.get(pair, {})
    yield from _entries({pair: figures for pair, figures in said.items() if all(name in regions for name in pair)})


def machine_entries(links: Mapping[Pair, Link], regions: Collection[str]) -> Iterator[dict[str, Any]]:
    """Of links of machines' own; those that are called as two regions are say which they are."""
    kinds = {pair: {"between": "machines"} if all(name in regions for name in pair) else {} for pair in links}
    yield from _entries({pair: kinds[pair] | _figures(link) for pair, link in links.items()})


def _entries(said: Mapping[Pair, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """An entry for each pair, or one for both directions where they are the same."""
    for (source, target), figures in said.items():
        is_symmetric = source != target and said.get((target, source)) == figures
        if not is_symmetric:
            yield {"source": source, "target": target, **figures}
        elif source < target:
            yield {"source": source, "target": target, "symmetric": True, **figures}


def _figures(link: Link) -> dict[str, Any]:
    if link.kind is LinkKind.UNKNOWN:
        return {"unknown": True}
    said: dict[str, Any] = {
        **(LATENCY.write(link.rtt_s) if link.one_way_s is None else ONE_WAY.write(link.one_way_s)),
        **BANDWIDTH.write(link.bandwidth_bytes_per_s),
        **FLOW.write(link.flow_bytes_per_s),
    }
    if link.by_size:
        points = [{"messageBytes": plain(size), **BANDWIDTH.write(rate)} for size, rate in link.by_size]
        said |= {"bandwidthBySize": points}
    said |= {"ownWire": True} if link.own_wire else {}
    said |= {"streams": link.num_streams} if link.num_streams > 1 else {}
    said |= {"known": link.kind.value} if link.kind is not LinkKind.DECLARED else {}
    return said | ({"ageSeconds": plain(link.age_s)} if link.age_s else {})
