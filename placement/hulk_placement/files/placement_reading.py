"""Documents of a placement and of links -> the searches' `Placement` and `DeviceLink`s, with the units of figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from hulk_placement.files import text
from hulk_placement.files.part import Part, Quantity
from hulk_placement.files.placement import (
    BUSY,
    BUSY_S,
    LATENCY,
    LATENCY_S,
    MEMORY,
    SPAN,
    SPAN_S,
    LinksFile,
    PlacementFile,
    Wire,
)
from hulk_placement.files.units import MEMORY as MEMORY_BYTES
from hulk_placement.schedule.links import DeviceLink
from hulk_placement.schedule.placement import Block, Kind, Placement

GIB = 1 << 30
Links = Mapping[tuple[int, int], DeviceLink]


@dataclass(frozen=True, slots=True)
class ReadPlacement:
    """A placement, and whether its times are seconds and its memory GiB, or in units that nobody named."""

    placement: Placement
    in_seconds: bool = False
    in_gibibytes: bool = False


def read_placement(path: Path) -> ReadPlacement:
    """The placement in a file. ValueError with every mistake in it; OSError where it is not."""
    return to_placement(text.parse(PlacementFile, text.read_values(path), str(path)), str(path))


def to_placement(document: PlacementFile, where: str = "placement") -> ReadPlacement:
    """The placement that a document describes. ValueError names its mistakes."""
    numbers = {block.name: number for number, block in enumerate(document.blocks)}
    mistakes = list(_unknown_names(document, numbers))
    if mistakes:
        raise text.mistaken(where, mistakes)
    try:
        in_seconds = _has_units(document.blocks, "blocks", [SPAN_S], [SPAN])
        in_gibibytes = _has_units(document.blocks, "blocks", [MEMORY_BYTES], [MEMORY])
        blocks = tuple(
            Block(
                name=block.name,
                devices=block.devices,
                span=_figure(block, SPAN_S, SPAN),
                memory=_figure(block, MEMORY_BYTES, MEMORY) / (GIB if in_gibibytes else 1),
                after=tuple(numbers[name] for name in block.after),
                kind=Kind(block.kind),
                stage=block.stage or "",
            )
            for block in document.blocks
        )
        return ReadPlacement(Placement(document.devices, blocks), bool(in_seconds), bool(in_gibibytes))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def read_links(path: Path, num_devices: int, in_seconds: bool) -> Links:
    """The links in a file, by source and target, for so many devices whose blocks' spans are seconds or not."""
    return to_links(text.parse(LinksFile, text.read_values(path), str(path)), num_devices, in_seconds, str(path))


def to_links(document: LinksFile, num_devices: int, in_seconds: bool, where: str = "links") -> Links:
    """The links of a document. ValueError names its mistakes, among them times that go with no span."""
    try:
        has_units = _has_units(document.links, "links", [BUSY_S, LATENCY_S], [BUSY, LATENCY])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if has_units is not None and has_units != in_seconds:
        said = ("have units", "have none") if has_units else ("have no unit", "have one")
        raise ValueError(f"{where}: times of links {said[0]}, and spans of blocks {said[1]}: give both alike")
    found: dict[tuple[int, int], DeviceLink] = {}
    mistakes: list[str] = []
    for number, wire in enumerate(document.links):
        for source, target in [(wire.source, wire.target), (wire.target, wire.source)][: 1 + wire.symmetric]:
            if max(source, target) >= num_devices:
                mistakes.append(f"links[{number}]: device {max(source, target)}, of {num_devices} counted from 0")
            elif (source, target) in found:
                mistakes.append(f"links[{number}]: {source} -> {target} is there already")
            else:
                found[source, target] = _link(wire, source, target)
    if mistakes:
        raise text.mistaken(where, list(dict.fromkeys(mistakes)))
    return found


def _link(wire: Wire, source: int, target: int) -> DeviceLink:
    return DeviceLink(source, target, _figure(wire, BUSY_S, BUSY), _figure(wire, LATENCY_S, LATENCY), wire.uplinks)


def _unknown_names(document: PlacementFile, numbers: Mapping[str, int]) -> Iterator[str]:
    for number, block in enumerate(document.blocks):
        for name in block.after:
            if name not in numbers:
                close = get_close_matches(name, numbers, n=1)
                yield f"blocks[{number}].after: no block is {name}{f'; did you mean {close[0]}?' if close else ''}"


def _figure(part: Part, with_unit: Quantity, without: Quantity) -> float:
    """The figure under whichever key it was given; 0 without it."""
    found = part.figure(with_unit)
    return found if found is not None else part.figure(without) or 0.0


def _has_units(
    parts: Iterable[Part], name: str, with_unit: Iterable[Quantity], without: Iterable[Quantity]
) -> bool | None:
    """Whether figures have units; None where there are none. ValueError where some have and others have not."""
    first: tuple[str, bool] | None = None
    for number, part in enumerate(parts):
        given = part.given()
        for quantities, has_unit in ((with_unit, True), (without, False)):
            for key in (key for one in quantities for key in one.units if key in given):
                place = f"{name}[{number}].{key}"
                first = first or (place, has_unit)
                if first[1] != has_unit:
                    bare, full = (first[0], place) if has_unit else (place, first[0])
                    raise ValueError(f"{bare} has no unit, and {full} has one: give all of them alike")
    return None if first is None else first[1]
