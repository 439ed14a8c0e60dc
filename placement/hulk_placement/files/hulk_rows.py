"""The rows of the Hulk paper's two files, with their defects set right and told.

    node_feature.csv   node,City,Capability,Memory
    edge.txt           src dst latency_ms, one directed pair a line

Blanks around names go; loops, edges of unknown nodes and figures that are no time are left out. Of several figures for
one directed pair the smallest that light allows is taken: queues only ever lengthen a round trip.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hulk_placement.geography.cities import coordinates
from hulk_placement.geography.light import least_rtt_s
from hulk_placement.topology import Pair

NODES, EDGES = "node_feature.csv", "edge.txt"
_COLUMNS = ("node", "city", "capability", "memory")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: where it is, its accelerators' compute capability, and its memory, 0 where none is given."""

    name: str
    city: str
    capability: str
    memory_gb: float


def read_nodes(path: Path) -> tuple[dict[str, Node], list[str]]:
    """The nodes by name, and what was wrong with them. ValueError where a row is no node, or one is there twice."""
    rows = _cells(path)
    head = [cell.strip().casefold() for cell in rows[0]] if rows else []
    missing = [column for column in _COLUMNS if column not in head]
    if missing:
        raise ValueError(f"{path}: no column {', '.join(missing)}; there are {', '.join(head) or 'none'}")
    nodes: dict[str, Node] = {}
    warnings = []
    for number, row in enumerate(rows[1:], 2):
        if len(row) < len(head):
            raise ValueError(f"{path}, row {number}: {len(row)} cells for {len(head)} columns")
        name, city, capability, memory = (row[head.index(column)].strip() for column in _COLUMNS)
        if name in nodes:
            raise ValueError(f"{path}, row {number}: node {name} is there twice")
        memory_gb = _positive(memory)
        if memory_gb is None:
            warnings.append(f"{path.name}, row {number}: node {name}: memory {memory!r} is no size: taken as unknown")
        nodes[name] = Node(name, city, capability, memory_gb or 0.0)
    return nodes, warnings


def read_edges(path: Path, nodes: Mapping[str, Node]) -> tuple[dict[Pair, float], list[str]]:
    """Round trips in ms by directed pair of nodes, and what was wrong. ValueError where a line is no edge."""
    figures: dict[Pair, list[float]] = {}
    warnings = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        cells = line.replace(",", " ").split()
        if not cells or (number == 1 and len(cells) == 3 and _positive(cells[2]) is None and cells[2][0].isalpha()):
            continue  # nothing, or a heading
        if len(cells) != 3:
            raise ValueError(f"{path}, line {number}: {line.strip()!r}: expected source, target and latency")
        (source, target), latency_ms = cells[:2], _positive(cells[2])
        wrong = _wrong(source, target, latency_ms, nodes)
        if wrong or latency_ms is None:
            warnings.append(f"{path.name}, line {number}: {source} -> {target} {cells[2]}: {wrong}, left out")
        else:
            figures.setdefault((source, target), []).append(latency_ms)
    warnings += [_twice(pair, found, nodes) for pair, found in figures.items() if len(set(found)) > 1]
    return {pair: _chosen(pair, found, nodes) for pair, found in figures.items()}, warnings


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text: {error}") from error


def _cells(path: Path) -> list[list[str]]:
    """The cells of every row that has some."""
    try:
        return [row for row in csv.reader(_text(path).splitlines()) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ValueError(f"{path}: not comma-separated values: {error}") from error


def _positive(text: str) -> float | None:
    try:
        figure = float(text)
    except ValueError:
        return None
    return figure if 0 < figure < math.inf else None


def _wrong(source: str, target: str, latency_ms: float | None, nodes: Mapping[str, Node]) -> str:
    nobody = [name for name in (source, target) if name not in nodes]
    if nobody:
        return f"no node {' and '.join(nobody)}"
    if source == target:
        return "a loop"
    return "no time above 0" if latency_ms is None else ""


def _chosen(pair: Pair, figures: Iterable[float], nodes: Mapping[str, Node]) -> float:
    least_ms = _least_ms(pair, nodes)
    possible = [figure for figure in figures if figure >= least_ms]
    return min(possible or figures)


def _least_ms(pair: Pair, nodes: Mapping[str, Node]) -> float:
    """What light needs; 0 where it is not known where a city is."""
    source, target = (coordinates(nodes[name].city) for name in pair)
    return 0.0 if source is None or target is None else 1e3 * least_rtt_s(source, target)


def _twice(pair: Pair, figures: list[float], nodes: Mapping[str, Node]) -> str:
    listed = ", ".join(f"{figure:g}" for figure in figures)
    chosen = _chosen(pair, figures, nodes)
    why = "the smallest" if chosen == min(figures) else f"the smallest above light's {_least_ms(pair, nodes):.3g}"
    return f"{pair[0]} -> {pair[1]} has {len(figures)} figures, {listed} ms: taken is {chosen:g}, {why}"
