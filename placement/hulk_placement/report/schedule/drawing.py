"""What devices and links do -> rectangles and words of a drawing, which is as wide as the blocks need.

Nothing here knows about HTML: lengths are those of the drawing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hulk_placement.report.labels import LETTER, shortened
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.sections import Section, marks, sections
from hulk_placement.report.schedule.tracks import Bar, Track, time_words, tracks

WIDTH, WIDEST = 980.0, 2400.0
"""Of the drawing: as wide as a page, and at most, where blocks would be too small to see."""

TEXT = 12.0
SMALL = 10.5
"""Heights of letters: names, and numbers in blocks."""

LEAST_BLOCK, MOST_BLOCK = 6.0, 60.0
"""Width of the shortest block."""

DEVICE, LINK, GAP = 26.0, 16.0, 5.0
"""Heights of rows, and between them."""

HEAD, FOOT, EDGE = 24.0, 26.0, 8.0
APART = 14.0
"""Between two parts of the time; where something is left out there is room for these words."""

LONGEST_NAME = 22
MARKS = 64.0
MORE = "… "
LONGEST_LINE = 15
"""Letters of what is said between two parts."""

MOST_ROWS = 64
"""Devices and links that are drawn, each."""


@dataclass(frozen=True, slots=True)
class Box:
    """A block or a transfer; `number` is what there is room for. What is sent is on its way up to `arrives`.

    One without a width has ended before the part begins, and is still on its way.
    """

    kind: str
    words: str
    x: float
    y: float
    width: float
    height: float
    number: str
    arrives: float


@dataclass(frozen=True, slots=True)
class Line:
    """A device or a link: its name, and the background of its row in each part."""

    name: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Word:
    """Something written: the name of a `part`, what is `left-out` (around x), or a `mark` of the axis, with a line."""

    text: str
    x: float
    y: float
    kind: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the time: where it is."""

    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of it."""

    width: float
    height: float
    names: float
    bottom: float
    panels: tuple[Panel, ...]
    lines: tuple[Line, ...]
    boxes: tuple[Box, ...]
    words: tuple[Word, ...]
    num_hidden: int


def drawing(view: ScheduleView) -> Drawing:
    """The drawing of a schedule."""
    found = tracks(view)
    shown = (*found[: view.devices][:MOST_ROWS], *found[view.devices :][:MOST_ROWS])
    names = min(LONGEST_NAME, max(len(track.name) for track in shown)) * LETTER * TEXT + EDGE
    shortest = min(block.end - block.start for block in view.blocks if block.end > block.start)
    parts = sections(view, (WIDTH - names) / LEAST_BLOCK * shortest)
    between = [_gap(part) for part in parts[:-1]]
    length = sum(part.length for part in parts)
    scale = min((WIDTH - names - EDGE - sum(between)) / length, MOST_BLOCK / shortest)
    scale = max(scale, min(LEAST_BLOCK / shortest, WIDEST / length))
    panels = tuple(_panels(parts, between, names, scale))
    lines = tuple(_lines(shown))
    bottom = lines[-1].y + lines[-1].height
    both = list(zip(parts, panels, strict=True))
    boxes = tuple(
        box
        for track, line in zip(shown, lines, strict=True)
        for part, panel in both
        for box in _boxes(track, line, part, panel, scale)
    )
    words = tuple(word for part, panel in both for word in _words(part, panel, scale, bottom, view))
    width = panels[-1].x + panels[-1].width + EDGE
    return Drawing(width, bottom + FOOT, names, bottom, panels, lines, boxes, words, len(found) - len(shown))


def _panels(parts: Sequence[Section], between: Sequence[float], names: float, scale: float) -> Iterator[Panel]:
    x = names
    for part, gap in zip(parts, [*between, 0.0], strict=True):
        yield Panel(x, part.length * scale)
        x += part.length * scale + gap


def _gap(part: Section) -> float:
    return APART + max(map(_wide, _left_out(part)), default=0.0)


def _left_out(part: Section) -> list[str]:
    """What is left out behind a part, in short lines."""
    return textwrap.wrap(f"{MORE}{part.left_out}", LONGEST_LINE) if part.left_out else []


def _wide(words: str) -> float:
    return len(words) * LETTER * SMALL


def _lines(shown: Sequence[Track]) -> Iterator[Line]:
    y = HEAD
    for track in shown:
        height = DEVICE if track.is_device else LINK
        yield Line(shortened(track.name, LONGEST_NAME), y, height)
        y += height + GAP


def _boxes(track: Track, line: Line, part: Section, panel: Panel, scale: float) -> Iterator[Box]:
    def at(time: float) -> float:
        return panel.x + (min(max(time, part.start), part.end) - part.start) * scale

    for bar in track.bars:
        if part.has(bar.start, max(bar.end, bar.arrives)):
            x = at(bar.start)
            width = max(1.0, at(bar.end) - x) if part.has(bar.start, bar.end) else 0.0
            yield Box(bar.kind, bar.words, x, line.y, width, line.height, _number(bar, width), at(bar.arrives))


def _number(bar: Bar, width: float) -> str:
    """The micro-batch, where there is room for it."""
    number = str(bar.micro_batch)
    return number if _wide(number) + 2 <= width else ""


def _words(part: Section, panel: Panel, scale: float, bottom: float, view: ScheduleView) -> Iterator[Word]:
    if part.name:
        yield Word(part.name, panel.x, HEAD - 9, "part")
    for number, line in enumerate(_left_out(part)):
        yield Word(line, panel.x + panel.width + _gap(part) / 2, HEAD + TEXT * (1 + 1.2 * number), "left-out")
    free = panel.x
    for at in marks(part, MARKS / scale):
        x, words = panel.x + (at - part.start) * scale, time_words(at, view)
        if x >= free and x + _wide(words) <= panel.x + panel.width + EDGE:
            yield Word(words, x, bottom + 17, "mark")
            free = x + _wide(f"{words} ")
