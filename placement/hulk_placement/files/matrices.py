"""The matrices of a topology document -> links by pair: one matrix has the latencies, others the rates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hulk_placement.files.part import Quantity
from hulk_placement.files.places import Key, Places
from hulk_placement.files.topology import BandwidthMatrix, LatencyMatrix, TopologyFile
from hulk_placement.files.units import LATENCY, MATRIX_RATES, ONE_WAY
from hulk_placement.topology import UNKNOWN_BANDWIDTH_BYTES_PER_S, Link, LinkKind, Pair

_MOST_SHOWN = 3


def matrix_links(document: TopologyFile, places: Places, mistakes: list[str]) -> dict[Key, tuple[Link, bool]]:
    """The link of every pair that a matrix has a latency for, and whether its rate is known. Adds to `mistakes`."""
    latency = _figures("latencyMatrix", document.latency_matrix, LATENCY, places, mistakes)
    rates = _figures("bandwidthMatrix", document.bandwidth_matrix, MATRIX_RATES, places, mistakes)
    flows = _figures("flowMatrix", document.flow_matrix, MATRIX_RATES, places, mistakes)
    mistakes += _alone("bandwidthMatrix", rates, "latencyMatrix", latency)
    mistakes += _alone("flowMatrix", flows, "bandwidthMatrix", rates)
    streams = document.bandwidth_matrix.streams if document.bandwidth_matrix else 1
    is_one_way = document.latency_matrix is not None and document.latency_matrix.unit in ONE_WAY.units
    found = {}
    for key, rtt_s in latency.items():
        rate = rates.get(key)
        link = Link(
            rtt_s=rtt_s,
            one_way_s=rtt_s / 2 if is_one_way else None,
            bandwidth_bytes_per_s=UNKNOWN_BANDWIDTH_BYTES_PER_S if rate is None else rate,
            num_streams=1 if rate is None else streams,
            kind=LinkKind.DECLARED,
            flow_bytes_per_s=flows.get(key),
        )
        found[key] = link, rate is not None
    return found


def _alone(name: str, figures: dict[Key, float], other: str, needed: dict[Key, float]) -> Iterator[str]:
    """A mistake where a figure has nothing to go with."""
    found = [f"{pair[0]} -> {pair[1]}" for are_regions, pair in figures if (are_regions, pair) not in needed]
    if found:
        more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        yield f"{name}: {', '.join(found[:_MOST_SHOWN])}{more}: a figure, but {other} has none"


def _figures(
    name: str,
    matrix: LatencyMatrix | BandwidthMatrix | None,
    quantity: Quantity,
    places: Places,
    mistakes: list[str],
) -> dict[Key, float]:
    """A matrix' figures in the base unit, by pair; none where the matrix is a mistake, which is noted."""
    if matrix is None:
        return {}
    try:
        are_regions = places.are_regions(matrix.names, matrix.between)
        _require_square(matrix)
        factor, divisor = quantity.units[matrix.unit]
        cells = dict(_cells(matrix, are_regions))
    except ValueError as error:
        mistakes.append(f"{name}: {error}")
        return {}
    figures = {pair: shown * factor / divisor for pair, shown in cells.items()}
    mistakes += [
        f"{name}: {source} -> {target}: {cells[source, target]:g} {matrix.unit} is more than a number holds"
        for (source, target), figure in figures.items()
        if math.isinf(figure)
    ]
    return {(are_regions, pair): figure for pair, figure in figures.items() if math.isfinite(figure)}


def _require_square(matrix: LatencyMatrix | BandwidthMatrix) -> None:
    num_names = len(matrix.names)
    if len(set(matrix.names)) < num_names:
        again = next(name for number, name in enumerate(matrix.names) if name in matrix.names[:number])
        raise ValueError(f"names: {again} is there twice")
    if len(matrix.rows) != num_names:
        raise ValueError(f"rows: {len(matrix.rows)} rows for {num_names} names")
    for number, row in enumerate(matrix.rows):
        if len(row) != num_names:
            raise ValueError(f"rows[{number}]: {len(row)} figures for {num_names} names")


def _cells(matrix: LatencyMatrix | BandwidthMatrix, are_regions: bool) -> Iterator[tuple[Pair, float]]:
    """The figures that are there, as the document has them. ValueError for a 0, or a matrix that is not symmetric."""
    for i, source in enumerate(matrix.names):
        for j, target in enumerate(matrix.names):
            figure = matrix.rows[i][j]
            if i == j and not (are_regions and figure):
                continue
            if matrix.symmetric:
                figure = _symmetric(matrix, i, j)
            if figure == 0:
                raise ValueError(f"rows[{i}][{j}]: {source} -> {target} is 0; what is not known is null")
            if figure is not None:
                yield (source, target), figure


def _symmetric(matrix: LatencyMatrix | BandwidthMatrix, i: int, j: int) -> float | None:
    there, back = matrix.rows[i][j], matrix.rows[j][i]
    if there is None or back is None:
        return back if there is None else there
    if there != back:
        raise ValueError(f"symmetric, but rows[{i}][{j}] is {there:g} and rows[{j}][{i}] is {back:g}")
    return there
