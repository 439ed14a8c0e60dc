"""A schedule -> what the terminal shows of it: a Gantt chart as wide as there is room, and its figures.

A block is its micro-batch's number and signs that say what it is: `0>` forward, `0<<` backward, `0==` weights, `0~~` a
transfer, behind which dots say how long it is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hulk_placement.report.labels import shortened
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.sections import Section, marks, sections
from hulk_placement.report.schedule.tracks import Bar, Track, kinds, memory_words, time_words, tracks
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from hulk_operator.cli import units
from hulk_operator.cli.table_format import sentence, table

SIGNS = {"forward": ">", "backward": "<", "weight": "=", "transfer": "~"}
STYLES = {
    "forward": "black on cyan",
    "backward": "black on yellow",
    "weight": "black on magenta",
    "transfer": "black on green",
}
WORDS = {"weight": "gradients of weights", "transfer": "transfer, .. on its way"}
ON_ITS_WAY = "."
LONGEST_NAME = 20
LEFT_OUT = " ... "
LEAST_COLUMNS = 16
MARKS = 10
"""Columns between two times of the axis, at least."""

MOST_ROWS = 64
"""Devices and links that are drawn, each; JSON and the page have all."""

Cell = tuple[str, str]
"""A character and its style."""


class Gantt:
    """The chart, for any width."""

    def __init__(self, view: ScheduleView) -> None:
        self.view = view
        found = tracks(view)
        devices, links = found[: view.devices], found[view.devices :]
        self.tracks = (*devices[:MOST_ROWS], *links[:MOST_ROWS])
        self.num_hidden = len(found) - len(self.tracks)
        self.wide = min(LONGEST_NAME, max(len(track.name) for track in self.tracks))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = max(LEAST_COLUMNS, options.max_width - self.wide - 3)
        shortest = min(block.end - block.start for block in self.view.blocks if block.end > block.start)
        parts = sections(self.view, columns * shortest)
        between = sum(2 + len(LEFT_OUT) * bool(part.left_out) for part in parts[:-1])  # an edge, and one for rounding
        scale = _scale(columns - between, sum(part.length for part in parts), shortest)
        for track in self.tracks:
            yield self._line(
                shortened(track.name, self.wide), [_cells(track, part, scale) for part in parts], parts, "|"
            )
        yield self._line("", [_axis(part, scale, self.view) for part in parts], parts, " ")
        if len(parts) > 1:
            yield _named(parts, self.view)
        if self.num_hidden:
            yield Text(f"{self.num_hidden} more devices and links are not drawn (-o json has all)", style="dim")

    def _line(self, name: str, cells: Sequence[Sequence[Cell]], parts: Sequence[Section], edge: str) -> Text:
        line = Text(f"{name:<{self.wide}} {edge}", no_wrap=True, overflow="crop")
        for number, row in enumerate(cells):
            if number:
                line.append((LEFT_OUT if parts[number - 1].left_out else "") + edge, style="dim")
            for sign, style in row:
                line.append(sign, style=style or None)
        line.append(edge)
        return line


def schedule_table(view: ScheduleView) -> RenderableType:
    """The chart, a legend, and the figures."""
    return Group(Gantt(view), _legend(view), "", *_figures(view), "", *_tables(view))


def _scale(columns: int, length: float, shortest: float) -> float:
    """Columns of a unit of time: whole ones for the shortest block, where that fits."""
    most = columns / length
    whole = int(most * shortest * (1 + 1e-9))
    return whole / shortest if whole else most


def _cells(track: Track, part: Section, scale: float) -> list[Cell]:
    """A row of characters for what a device or a link does in a part of the time."""
    num = max(1, round(part.length * scale))
    cells: list[Cell] = [(" ", "")] * num
    for bar in track.bars:
        if bar.arrives > bar.end and part.has(bar.end, bar.arrives):
            for column in _columns(bar.end, bar.arrives, part, scale, num):
                cells[column] = (ON_ITS_WAY, "dim")
    for bar in track.bars:
        if part.has(bar.start, bar.end):
            where = _columns(bar.start, bar.end, part, scale, num)
            for column, sign in zip(where, _signs(bar, len(where)), strict=True):
                cells[column] = (sign, STYLES[bar.kind])
    return cells


def _columns(start: float, end: float, part: Section, scale: float, num: int) -> range:
    """The columns of a stretch of time, as far as they are in the part; one at least."""
    first, last = (round((min(max(at, part.start), part.end) - part.start) * scale) for at in (start, end))
    first = min(first, num - 1)
    return range(first, max(first + 1, min(last, num)))


def _signs(bar: Bar, num: int) -> str:
    """The micro-batch's last digits, as many as leave room for a sign; a single column is a forward block's digit.

    >>> one = Bar("backward", 12, 0, 3, 3, "")
    >>> _signs(one, 5), _signs(one, 2), _signs(one, 1)
    ('12<<<', '2<', '<')
    """
    sign = SIGNS[bar.kind]
    if num == 1:
        return str(bar.micro_batch)[-1] if bar.kind in ("forward", "transfer") else sign
    return f"{str(bar.micro_batch)[-(num - 1) :]:{sign}<{num}}"


def _axis(part: Section, scale: float, view: ScheduleView) -> list[Cell]:
    """Times below the columns where they are."""
    num = max(1, round(part.length * scale))
    signs = [" "] * num
    free = 0
    for at in marks(part, MARKS / scale):
        column, words = round((at - part.start) * scale), time_words(at, view)
        if column >= free and column + len(words) <= num:
            signs[column : column + len(words)] = words
            free = column + len(words) + 1
    return [(sign, "dim") for sign in signs]


def _named(parts: Sequence[Section], view: ScheduleView) -> Text:
    """The parts that are shown, and what is left out, in a line."""
    words = []
    for part in parts:
        words.append(f"{part.name} {time_words(part.start, view)} to {time_words(part.end, view)}")
        words += [f"... {part.left_out}"] if part.left_out else []
    return Text(" | ".join(words))


def _legend(view: ScheduleView) -> Text:
    line = Text()
    for kind in kinds(view):
        line.append(f"0{SIGNS[kind]}{SIGNS[kind]}", style=STYLES[kind])
        line.append(f" {WORDS.get(kind, kind)}   ")
    line.append("the number is the micro-batch, or its last digits", style="dim")
    return line


def _figures(view: ScheduleView) -> Iterator[RenderableType]:
    devices = f"{view.devices} device{'s' if view.devices > 1 else ''}"
    yield Text.assemble(
        (f"{view.placement}: ", "bold"), f"{_micro_batches(view.micro_batches)} on {devices}, {view.mode}"
    )
    gap = f"none is below {time_words(view.bound, view)}, {units.percent(1 - view.bound / view.makespan)} less"
    yield sentence("makespan", f"{time_words(view.makespan, view)}; {'none is shorter' if view.proven else gap}")
    if view.period is not None:
        yield sentence("period", f"{time_words(view.period, view)} where it repeats{_pattern(view)}")
    share = units.percent(view.bubble_share)
    yield sentence("bubbles", f"{time_words(view.bubbles, view)} of all devices together, {share} of their time")
    yield sentence("searched", f"{view.seconds:.2f} s")


def _pattern(view: ScheduleView) -> str:
    """What is known of the pattern that was searched for."""
    found = view.pattern
    if found is None:
        return ""
    least = "none is shorter" if found.proven else f"none is below {time_words(found.bound, view)}"
    return (
        f"; pattern of {time_words(found.period, view)} with blocks of {_micro_batches(found.micro_batches)}, {least}"
    )


def _micro_batches(num: int) -> str:
    return f"{num} micro-batch{'es' if num > 1 else ''}"


def _tables(view: ScheduleView) -> Iterator[RenderableType]:
    made = table("DEVICE", "BUSY", "SHARE", "PEAK MEMORY", "OF", numbers=("BUSY", "SHARE", "PEAK MEMORY", "OF"))
    for device, (busy, peak) in list(enumerate(zip(view.busy, view.peak_memory, strict=True)))[:MOST_ROWS]:
        limit = "no limit" if view.memory is None else memory_words(view.memory[device], view)
        share = units.percent(busy / view.makespan)
        made.add_row(str(device), time_words(busy, view), share, memory_words(peak, view), limit)
    yield made
    if view.links:
        yield ""
        made = table("LINK", "BUSY", "SHARE", numbers=("BUSY", "SHARE"))
        for link in view.links[:MOST_ROWS]:
            made.add_row(link.name, time_words(link.busy, view), units.percent(link.share))
        yield made
