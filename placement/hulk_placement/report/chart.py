"""Regions and the links a plan uses -> where to draw them: a map by their coordinates, else a circle.

Nothing here knows about HTML: lengths are those of the drawing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hulk_placement.geography.light import Coordinates
from hulk_placement.report import labels
from hulk_placement.report.labels import Box
from hulk_placement.report.projection import Frame, GridLine, Paper, Point
from hulk_placement.report.rows import LinkUseRow, View

MOST_CURVES = 48
"""Links that are drawn, those that carry most."""
WIDEST, THINNEST = 9.0, 3.0
"""Of the line that carries most: where there are few lines, and where there are many."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A region; `name` is what there is room for, `note` a second line of its label."""

    region: str
    name: str
    note: str
    x: float
    y: float
    radius: float
    label: Point
    anchor: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A directed link: from (x, y) bent over a control point to another, just outside the dots."""

    row: LinkUseRow
    start: Point
    control: Point
    end: Point
    width: float


@dataclass(frozen=True, slots=True)
class LinkLabel:
    """What is written beside the links of a pair."""

    rows: tuple[LinkUseRow, ...]
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The whole drawing. `num_hidden` links that carry little are not drawn."""

    width: float
    height: float
    is_map: bool
    dots: tuple[Dot, ...]
    curves: tuple[Curve, ...]
    labels: tuple[LinkLabel, ...]
    grid: tuple[GridLine, ...]
    num_hidden: int


def chart(view: View, coordinates: Mapping[str, Coordinates], paper: Paper) -> Chart:
    """The drawing of a view; a map where coordinates of all its regions are given."""
    width = paper.width
    is_map = all(region in coordinates for region in view.regions)
    grid: tuple[GridLine, ...] = ()
    if is_map:
        frame = Frame.around([coordinates[region] for region in view.regions], paper)
        height = frame.height
        points = {region: frame.place(coordinates[region]) for region in view.regions}
        grid = tuple(frame.grid(paper.text))
    else:
        height = width * (paper.lowest + paper.highest) / 2
        points = dict(zip(_in_ring_order(view), _circle(len(view.regions), width, height), strict=True))
    radii, notes = _radii(view, width), _notes(view)
    if len(points) > paper.most_notes:
        notes = dict.fromkeys(notes, "")
    points = _apart(points, radii, width, height)
    crossing = [row for row in view.links if row.source != row.target and not row.own_wire]
    curves = tuple(_curves(crossing[:MOST_CURVES], points, radii))
    placed = _blocked(points, radii, curves, labels.Labels(width, height, paper.text))
    if grid:
        placed.block(Box(0, height - paper.text * 1.6, width, paper.text * 1.6))
    middle = None if is_map else (width / 2, height / 2)
    dots = tuple(_dot(region, notes[region], point, radii[region], placed, middle) for region, point in points.items())
    named = tuple(_labels(curves, points, placed))
    return Chart(width, height, is_map, dots, curves, named, grid, max(0, len(crossing) - MOST_CURVES))


def _dot(region: str, note: str, point: Point, radius: float, placed: labels.Labels, middle: Point | None) -> Dot:
    name = labels.shortened(region, int(placed.width / 3 / placed.text / labels.LETTER))
    where, anchor = placed.beside(*point, radius, [name, note] if note else [name], middle)
    return Dot(region, name, note, *point, radius, where, anchor)


def _blocked(
    points: Mapping[str, Point], radii: Mapping[str, float], curves: Sequence[Curve], placed: labels.Labels
) -> labels.Labels:
    """Dots and curves are not to be written over."""
    for region, (x, y) in points.items():
        placed.block(Box(x - radii[region], y - radii[region], 2 * radii[region], 2 * radii[region]))
    for curve in curves:
        half = curve.width / 2 + 1
        for number in range(1, 40):
            x, y = _on(curve, number / 40)
            placed.block(Box(x - half, y - half, 2 * half, 2 * half))
    return placed


def _circle(num: int, width: float, height: float) -> list[Point]:
    if num == 1:
        return [(width / 2, height / 2)]
    turns = [2 * math.pi * number / num - math.pi / 2 for number in range(num)]
    if num == 2:
        turns = [math.pi, 0.0]
    return [(width / 2 + width * 0.3 * math.cos(turn), height / 2 + height * 0.33 * math.sin(turn)) for turn in turns]


def _in_ring_order(view: View) -> list[str]:
    """Regions in the order of the longest ring, so that its links do not cross."""
    rings = [[visit.region for visit in stage.ring] for stage in view.stages]
    longest = max(rings, key=len, default=[])
    return list(dict.fromkeys([*longest, *view.regions]))


def _notes(view: View) -> dict[str, str]:
    """By region: accelerators, and stages where there are several."""
    held: dict[str, int] = dict.fromkeys(view.regions, 0)
    stages: dict[str, list[int]] = {region: [] for region in view.regions}
    for stage in view.stages:
        for place in stage.places:
            held[place.region] += len(place.replicas) * view.tensor * view.shard
            if stage.stage not in stages[place.region]:
                stages[place.region].append(stage.stage)
    return {
        region: f"{num} accelerator{'s' if num > 1 else ''}{_stage_words(stages[region], view.pipeline)}"
        for region, num in held.items()
    }


def _stage_words(stages: Sequence[int], num_stages: int) -> str:
    """
    >>> _stage_words([0, 1, 2], 8), _stage_words([0, 4], 8), _stage_words([0], 1)
    (', stages 0-2', ', stages 0, 4', '')
    """
    if num_stages == 1:
        return ""
    if len(stages) == 1:
        return f", stage {stages[0]}"
    if list(stages) == list(range(stages[0], stages[-1] + 1)):
        return f", stages {stages[0]}-{stages[-1]}"
    listed = ", ".join(map(str, stages[:4]))
    return f", stages {listed}{' ...' if len(stages) > 4 else ''}"


def _radii(view: View, width: float) -> dict[str, float]:
    """Dots with areas as their accelerators, within limits."""
    held: dict[str, int] = dict.fromkeys(view.regions, 0)
    for stage in view.stages:
        for place in stage.places:
            held[place.region] += len(place.replicas)
    most = max(held.values())
    largest = 5 + (2 + width / 120) * min(1.0, math.sqrt(10 / len(held)))
    return {region: 5 + (largest - 5) * math.sqrt(num / most) for region, num in held.items()}


def _apart(points: Mapping[str, Point], radii: Mapping[str, float], width: float, height: float) -> dict[str, Point]:
    """Dots that would lie on each other, two sites of one city, moved apart a little, inside the drawing."""
    moved = dict(points)
    names = list(moved)
    for _ in range(60):
        for number, a in enumerate(names):
            for b in names[:number]:
                moved[a], moved[b] = _pushed(moved[a], moved[b], radii[a] + radii[b] + width / 40)
        moved = {
            name: (min(max(x, radii[name] + 4), width - radii[name] - 4), min(max(y, 24.0), height - 24.0))
            for name, (x, y) in moved.items()
        }
    return moved


def _pushed(a: Point, b: Point, least: float) -> tuple[Point, Point]:
    """Two points at least so far from each other."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    apart = math.hypot(dx, dy)
    if apart >= least:
        return a, b
    unit = (dx / apart, dy / apart) if apart > 1e-6 else (1.0, 0.0)
    push = (least - apart) / 2 + 1e-6
    return (a[0] - unit[0] * push, a[1] - unit[1] * push), (b[0] + unit[0] * push, b[1] + unit[1] * push)


def _curves(rows: Sequence[LinkUseRow], points: Mapping[str, Point], radii: Mapping[str, float]) -> Iterator[Curve]:
    """Both directions of a pair bend to their own right-hand side."""
    widest = max(THINNEST, WIDEST - len(rows) / 5)
    most = max((1, *(row.stage_bytes + row.sync_bytes for row in rows)))  # rows of less than half a byte have 0
    for row in rows:
        a, b = points[row.source], points[row.target]
        dx, dy = b[0] - a[0], b[1] - a[1]
        length = math.hypot(dx, dy)
        bend = 0.14 * length
        control = (a[0] + b[0]) / 2 - dy / length * bend, (a[1] + b[1]) / 2 + dx / length * bend
        width = max(1.2, widest * math.sqrt((row.stage_bytes + row.sync_bytes) / most))
        start = _toward(a, control, radii[row.source] + 2)
        yield Curve(row, start, control, _toward(b, control, radii[row.target] + 6 + width), width)


def _toward(start: Point, end: Point, length: float) -> Point:
    apart = math.hypot(end[0] - start[0], end[1] - start[1])
    share = min(0.45, length / apart)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _labels(curves: Sequence[Curve], points: Mapping[str, Point], placed: labels.Labels) -> Iterator[LinkLabel]:
    """A label beside each pair, on its outer side if it may be, while there is room: those that carry most first."""
    middle = statistics.fmean(x for x, _ in points.values()), statistics.fmean(y for _, y in points.values())
    pairs: dict[frozenset[str], list[Curve]] = {}
    for curve in curves:
        pairs.setdefault(frozenset((curve.row.source, curve.row.target)), []).append(curve)
    for found in pairs.values():
        rows = tuple(curve.row for curve in found)
        words = labels.link_words(rows)
        found.sort(key=lambda curve: -math.dist(middle, _on(curve, 0.5)))
        places = (place for curve in found for place in _beside(curve, words, placed.text))
        free = next((place for place in places if placed.free(*place, words)), None)
        if free is not None:
            yield LinkLabel(rows, *free)


def _beside(curve: Curve, words: str, text: float) -> Iterator[Point]:
    """Points where words would stand next to a curve, the middle of its outer side first."""
    dx, dy = curve.end[0] - curve.start[0], curve.end[1] - curve.start[1]
    length = math.hypot(dx, dy) or 1.0
    away_x, away_y = -dy / length, dx / length
    half_wide, half_high = (len(words) + 1) * labels.LETTER * text / 2, labels.LINE * text / 2
    gap = abs(away_x) * half_wide + abs(away_y) * half_high + curve.width / 2 + 2
    for share in (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74):
        x, y = _on(curve, share)
        for side in (gap, -gap):
            yield x + away_x * side, y + away_y * side


def _on(curve: Curve, share: float) -> Point:
    """A point of the curve, a quadratic Bézier."""
    s, c, e, rest = curve.start, curve.control, curve.end, 1 - share
    x, y = (rest * rest * s[i] + 2 * rest * share * c[i] + share * share * e[i] for i in (0, 1))
    return x, y
