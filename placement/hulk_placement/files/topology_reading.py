"""A topology document -> the planner's `Topology`, with what is odd about it in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hulk_placement.accelerators import look_up
from hulk_placement.files import text
from hulk_placement.files.links import Links, links_of
from hulk_placement.files.part import MOST_ACCELERATORS, MOST_MACHINES
from hulk_placement.files.places import Places
from hulk_placement.files.topology import InsideLink, TopologyFile
from hulk_placement.files.topology import Machine as DeclaredMachine
from hulk_placement.files.units import BANDWIDTH, LATENCY, MEMORY, MEMORY_BANDWIDTH, NIC, SPEED, UPLINK
from hulk_placement.geography.light import Coordinates, below_light
from hulk_placement.topology import UNKNOWN_BANDWIDTH_BYTES_PER_S, Link, LinkKind, Machine, Topology


@dataclass(frozen=True, slots=True)
class ReadTopology:
    """A topology, the coordinates of the regions that have some, and warnings."""

    topology: Topology
    coordinates: Mapping[str, Coordinates]
    warnings: tuple[str, ...] = ()


def read_topology(path: Path) -> ReadTopology:
    """The topology in a file. ValueError with every mistake in it; OSError where there is none."""
    return to_topology(text.parse(TopologyFile, text.read_values(path), str(path)), str(path))


def to_topology(document: TopologyFile, where: str = "topology") -> ReadTopology:
    """The topology that a document describes. ValueError names its mistakes; `where` is what it calls the document."""
    too_many = list(_too_many(document))
    if too_many:
        raise text.mistaken(where, too_many)
    machines, mistakes = _machines(document)
    regions = frozenset(entry.region for entry in document.machines)  # of machines that are there twice as well
    places = Places(frozenset(m.name for m in machines), regions)
    mistakes += _region_mistakes(document, places)
    links = links_of(document, places)
    if mistakes or links.mistakes:
        raise text.mistaken(where, mistakes + links.mistakes)
    uplinks = {region.name: region.figure(UPLINK) for region in document.regions}
    topology = Topology(
        tuple(machines),
        links.of(are_regions=False),
        links.of(are_regions=True),
        {region: rate for region, rate in uplinks.items() if rate is not None},
        links.prices,
    )
    return _with_warnings(topology, document, links)


def _with_warnings(topology: Topology, document: TopologyFile, links: Links) -> ReadTopology:
    coordinates = {
        region.name: (region.latitude, region.longitude)
        for region in document.regions
        if region.latitude is not None and region.longitude is not None
    }
    warnings = below_light(topology, coordinates)
    if links.num_without_rate:
        warnings.append(
            f"{links.num_without_rate} directed links have a latency and no bandwidth: they are planned with that of "
            f"an unknown link, {UNKNOWN_BANDWIDTH_BYTES_PER_S / 125_000:g} Mbit/s"
        )
    return ReadTopology(topology, coordinates, tuple(warnings))


def _too_many(document: TopologyFile) -> Iterator[str]:
    """What all entries together have too much of."""
    num_machines = sum(entry.count or 1 for entry in document.machines)
    num_accelerators = sum(entry.accelerators * (entry.count or 1) for entry in document.machines)
    for num, most, what in (
        (num_machines, MOST_MACHINES, "machines"),
        (num_accelerators, MOST_ACCELERATORS, "accelerators"),
    ):
        if num > most:
            yield f"machines: {num} {what} in all; at most {most} are planned"


def _machines(document: TopologyFile) -> tuple[list[Machine], list[str]]:
    """The machines, one by one, and the mistakes in them."""
    prices = {region.name: region.price_per_hour for region in document.regions}
    found: dict[str, Machine] = {}
    where: dict[str, int] = {}
    mistakes = []
    for number, entry in enumerate(document.machines):
        for name in _names(entry):
            if name in found:
                mistakes.append(f"machines[{number}]: {name} is there twice; the first is in machines[{where[name]}]")
                continue
            try:
                found[name] = _machine(entry, name, prices.get(entry.region))
            except ValueError as error:
                mistakes.append(f"machines[{number}]: {error}")
                break
            where[name] = number
    return list(found.values()), mistakes


def _names(entry: DeclaredMachine) -> Iterator[str]:
    if entry.count is None:
        yield entry.name
    else:
        yield from (f"{entry.name}-{number}" for number in range(entry.count))


def _machine(entry: DeclaredMachine, name: str, region_price: float | None) -> Machine:
    price = region_price if entry.price_per_hour is None else entry.price_per_hour
    return Machine(
        name=name,
        region=entry.region,
        zone=entry.zone,
        num_accelerators=entry.accelerators,
        product=entry.product,
        memory_bytes=_memory_bytes(entry),
        flops_per_s=entry.figure(SPEED),
        memory_bandwidth_bytes_per_s=entry.figure(MEMORY_BANDWIDTH) or 0.0,
        inside=None if entry.inside is None else _inside(entry.inside),
        price_per_hour=price or 0.0,
        keeps_windows=entry.keeps_windows,
        nic_bytes_per_s=entry.figure(NIC),
    )


def _memory_bytes(entry: DeclaredMachine) -> int:
    """Whole bytes, one at least, as said; else by the product's data sheet, 0 where it is not known."""
    said = entry.figure(MEMORY)
    if said is None:
        known = look_up(entry.product)
        return known.memory_bytes if known else 0
    if said == math.inf:
        raise ValueError(f"memory {said} bytes must be finite")
    return max(1, round(said))


def _inside(entry: InsideLink) -> Link:
    rtt_s, rate = entry.figure(LATENCY), entry.figure(BANDWIDTH)
    assert rtt_s is not None
    assert rate is not None
    return Link(rtt_s, rate, kind=LinkKind.DECLARED)


def _region_mistakes(document: TopologyFile, places: Places) -> Iterator[str]:
    seen: dict[str, int] = {}
    for number, region in enumerate(document.regions):
        where = f"regions[{number}]"
        if region.name in seen:
            yield f"{where}: {region.name} is there twice; the first is in regions[{seen[region.name]}]"
        seen.setdefault(region.name, number)
        if region.name not in places.regions:
            yield f"{where}: no machine is in a region {region.name}; there are {', '.join(sorted(places.regions))}"
