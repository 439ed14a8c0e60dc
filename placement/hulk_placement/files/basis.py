"""What a plan was made of, as values of a plan document and as compressed JSON, and back."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from hulk_placement.basis import Basis
from hulk_placement.files import text
from hulk_placement.files.links import Links, join_ways, put_all
from hulk_placement.files.places import Places
from hulk_placement.files.plan import MadeOf
from hulk_placement.files.topology_writing import link_entries
from hulk_placement.files.units import SPEED, UPLINK
from hulk_placement.topology import Machine, Topology


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
        return parse_basis(text.parse(MadeOf, json.loads(gzip.decompress(packed)), "madeOf"), "madeOf")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{len(packed)} bytes are nothing that a plan was made of: {error!r}") from error


def parse_basis(document: MadeOf, where: str) -> Basis:
    """The basis that the values of `madeOf` describe. ValueError with every mistake in them."""
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


def _machines(basis: Basis) -> Iterator[Machine]:
    for name, num_accelerators in basis.accelerators.items():
        yield Machine(name, basis.regions[name], num_accelerators=num_accelerators)


def _stated(figures: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: figure for name, figure in figures if figure is not None}
