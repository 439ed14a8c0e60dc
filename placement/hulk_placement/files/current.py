"""A plan document of a plan that is carried out -> the plan and what it was made of, though machines may be lost."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hulk_placement.basis import Basis
from hulk_placement.files import text
from hulk_placement.files.cells import machines_of
from hulk_placement.files.links import Links, join_ways, put_all
from hulk_placement.files.places import Places
from hulk_placement.files.plan import MadeOf, PlanFile
from hulk_placement.files.plan_reading import read_document, to_unchecked_plan
from hulk_placement.files.topology_writing import link_entries
from hulk_placement.files.units import SPEED, UPLINK
from hulk_placement.plan import Plan
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

GONE = "unknown"
"""The region of a machine that is lost, and of which nothing more is known."""


@dataclass(frozen=True, slots=True)
class Current:
    """A plan that is carried out, and what it was made of, where that is known."""

    plan: Plan
    basis: Basis | None


def read_current(path: Path, workload: Workload, topology: Topology) -> Current:
    """The plan in a file, not predicted. ValueError where the file holds none; lost machines are no mistake."""
    document = read_document(path)
    basis = None if document.made_of is None else _basis(document.made_of, f"{path}: madeOf")
    known = {machine.name for machine in topology.machines}
    try:
        lost = replace(topology, machines=(*topology.machines, *_lost(document, basis, known)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Current(to_unchecked_plan(document, workload, lost, str(path)), basis)


def basis_values(basis: Basis) -> dict[str, Any]:
    """The values of `madeOf`."""
    then = Topology(tuple(_machines(basis)), basis.machine_links, basis.region_links)
    machines = [
        {
            "name": m.name,
            "region": m.region,
            "accelerators": m.num_accelerators,
            **SPEED.write(basis.speeds.get(m.name)),
        }
        for m in then.machines
    ]
    links = list(link_entries(then))
    regions = [{"name": name, **UPLINK.write(rate)} for name, rate in basis.uplinks.items()]
    return {"machines": machines} | ({"links": links} if links else {}) | ({"regions": regions} if regions else {})


def pack_basis(basis: Basis) -> bytes:
    """What a plan was made of, as compressed JSON: the same bytes for the same figures."""
    return gzip.compress(json.dumps(basis_values(basis), separators=(",", ":")).encode(), mtime=0)


def unpack_basis(packed: bytes) -> Basis:
    """What `pack_basis` packed. ValueError for anything else."""
    try:
        return _basis(text.parse(MadeOf, json.loads(gzip.decompress(packed)), "madeOf"), "madeOf")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{len(packed)} bytes are nothing that a plan was made of: {error!r}") from error


def _machines(basis: Basis) -> Iterator[Machine]:
    for name, num_accelerators in basis.accelerators.items():
        yield Machine(name, basis.regions[name], num_accelerators=num_accelerators)


def _lost(document: PlanFile, basis: Basis | None, known: set[str]) -> list[Machine]:
    """The plan's machines that the topology lacks."""
    regions = {} if basis is None else basis.regions
    names = dict.fromkeys(name for name, _ in machines_of(document, known | regions.keys()) if name not in known)
    return [Machine(name, regions.get(name, GONE), num_accelerators=0) for name in names]


def _basis(document: MadeOf, where: str) -> Basis:
    regions = {machine.name: machine.region for machine in document.machines}
    links = Links()
    put_all(links, document.links, Places(frozenset(regions), frozenset(regions.values())))
    join_ways(links)
    if len(regions) != len(document.machines):
        links.mistakes.append(f"machines: {len(document.machines)} have only {len(regions)} different names")
    if links.mistakes:
        raise text.mistaken(where, links.mistakes)
    return Basis(
        accelerators={machine.name: machine.accelerators for machine in document.machines},
        regions=regions,
        region_links=links.of(are_regions=True),
        machine_links=links.of(are_regions=False),
        uplinks=_stated((region.name, region.figure(UPLINK)) for region in document.regions),
        speeds=_stated((machine.name, machine.figure(SPEED)) for machine in document.machines),
    )


def _stated(figures: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: figure for name, figure in figures if figure is not None}
