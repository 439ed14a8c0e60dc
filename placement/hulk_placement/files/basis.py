"""What a plan was made of, as values of a plan document and as compressed JSON, and back."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hulk_placement.basis import Basis
from hulk_placement.files import text
from hulk_placement.files.links import Links, join_ways, put_all
from hulk_placement.files.places import Places
from hulk_placement.files.plan import MadeOf, PackedMadeOf
from hulk_placement.files.topology_writing import machine_entries, region_entries
from hulk_placement.files.units import SPEED, UPLINK

LEVEL: Final = 6
"""Of gzip: names that count up are packed as well as at 9, in a third of the time."""


def basis_values(basis: Basis) -> dict[str, Any]:
    """The values of `madeOf`."""
    machines = [
        {"name": name, "region": basis.regions[name], "accelerators": num, **SPEED.write(basis.speeds.get(name))}
        for name, num in basis.accelerators.items()
    ]
    return _values({"machines": machines}, basis, _between_regions(basis))


def pack_basis(basis: Basis) -> bytes:
    """What a plan was made of, as compressed JSON: the same bytes for the same figures."""
    return pack_bases({"": basis})[""]


def pack_bases(bases: Mapping[str, Basis]) -> dict[str, bytes]:
    """Each as `pack_basis` packs it. Those with the same links between regions, the same object, take less time."""
    between: dict[int, list[dict[str, Any]]] = {}
    found = {}
    for key, basis in bases.items():
        of = id(basis.region_links)
        if of not in between:
            between[of] = _between_regions(basis)
        values = _values({"groups": _groups(basis)}, basis, between[of])
        found[key] = gzip.compress(json.dumps(values, separators=(",", ":")).encode(), LEVEL, mtime=0)
    return found


def unpack_basis(packed: bytes) -> Basis:
    """What `pack_basis` packed. ValueError for anything else."""
    try:
        document = text.parse(PackedMadeOf, json.loads(gzip.decompress(packed)), "madeOf")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{len(packed)} bytes are nothing that a plan was made of: {error!r}") from error
    machines = [
        MadeThen(name, group.region, group.accelerators, group.figure(SPEED))
        for group in document.groups
        for name in group.names
    ]
    return _basis(machines, document, "madeOf")


def parse_basis(document: MadeOf, where: str) -> Basis:
    """The basis that the values of `madeOf` describe. ValueError with every mistake in them."""
    machines = [MadeThen(m.name, m.region, m.accelerators, m.figure(SPEED)) for m in document.machines]
    return _basis(machines, document, where)


class MadeThen(NamedTuple):
    """A machine that there was."""

    name: str
    region: str
    num_accelerators: int
    flops_per_s: float | None


def _groups(basis: Basis) -> list[dict[str, Any]]:
    """Machines that are alike."""
    alike: dict[tuple[str, int, float | None], list[str]] = {}
    for name, num in basis.accelerators.items():
        alike.setdefault((basis.regions[name], num, basis.speeds.get(name)), []).append(name)
    return [
        {"names": names, "region": region, "accelerators": num, **SPEED.write(speed)}
        for (region, num, speed), names in alike.items()
    ]


def _between_regions(basis: Basis) -> list[dict[str, Any]]:
    return list(region_entries(basis.region_links, set(basis.regions.values())))


def _values(machines: dict[str, Any], basis: Basis, between_regions: list[dict[str, Any]]) -> dict[str, Any]:
    links = [*between_regions, *machine_entries(basis.machine_links, set(basis.regions.values()))]
    regions = [{"name": name, **UPLINK.write(rate)} for name, rate in basis.uplinks.items()]
    return machines | ({"links": links} if links else {}) | ({"regions": regions} if regions else {})


def _basis(machines: Sequence[MadeThen], document: MadeOf | PackedMadeOf, where: str) -> Basis:
    regions = {machine.name: machine.region for machine in machines}
    links = Links()
    put_all(links, document.links, Places(frozenset(regions), frozenset(regions.values())))
    join_ways(links)
    if len(regions) != len(machines):
        links.mistakes.append(f"machines: {len(machines)} have only {len(regions)} different names")
    if links.mistakes:
        raise text.mistaken(where, links.mistakes)
    return Basis(
        accelerators={machine.name: machine.num_accelerators for machine in machines},
        regions=regions,
        region_links=links.of(are_regions=True),
        machine_links=links.of(are_regions=False),
        uplinks=_stated((region.name, region.figure(UPLINK)) for region in document.regions),
        speeds=_stated((machine.name, machine.flops_per_s) for machine in machines),
    )


def _stated(figures: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: figure for name, figure in figures if figure is not None}
