"""What is shown of a schedule that is longer than there is room: its warm-up, one period of many, and its cool-down.

Where every block follows itself by the same period for a while, the picture repeats: one period says it all. A long
schedule that does not repeat is shown at its beginning and its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.tracks import time_words

ROUNDING = 1e-9
CROWDED = 2.0
"""As many times the room a drawing may need, and is drawn smaller, before something is left out."""

WORTH = 0.5
"""Of the time, at most, what is shown where something is left out although there is nearly room for it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the time, and in words what is left out behind it ("" for nothing)."""

    name: str
    start: float
    end: float
    left_out: str = ""

    @property
    def length(self) -> float:
        """Of the time."""
        return self.end - self.start

    def has(self, start: float, end: float) -> bool:
        """Whether some of a stretch of time, or all of one without length, is in it."""
        return start < self.end * (1 - ROUNDING) and (end > self.start * (1 + ROUNDING) or start == end >= self.start)


@dataclass(frozen=True, slots=True)
class Steady:
    """From `start` on the same happens every `period`, `times` times."""

    start: float
    period: float
    times: int


def sections(view: ScheduleView, room: float) -> tuple[Section, ...]:
    """The parts to show where there is room for so much time, in order; one part where that is all of it."""
    whole = (Section("", 0.0, view.makespan),)
    if view.makespan <= room:
        return whole
    found = steady(view)
    parts = whole if found is None else _around(found, view)
    length = sum(part.length for part in parts)
    if length <= CROWDED * room and (length <= WORTH * view.makespan or view.makespan > CROWDED * room):
        return parts
    if view.makespan <= CROWDED * room:
        return whole
    end = view.makespan - room / 2
    left_out = f"{time_words(room / 2, view)} to {time_words(end, view)} is left out"
    return Section("beginning", 0.0, room / 2, left_out), Section("end", end, view.makespan)


def steady(view: ScheduleView) -> Steady | None:
    """The longest stretch in which all that happens repeats; None where that is less than two periods.

    It does so at the pattern's period, or at the work of the device or link that is busiest.
    """
    busiest = max((*view.busy, *(link.busy for link in view.links))) / view.micro_batches
    starts = _starts(view)
    periods = dict.fromkeys(period for period in (view.period, busiest) if period)
    return next(filter(None, (_stretch(starts, period) for period in periods)), None)


def _stretch(starts: Sequence[Sequence[float]], period: float) -> Steady | None:
    runs = [_longest_run(times, period) for times in starts]
    if not all(last > first for first, last in runs):
        return None
    begin = max(times[first] for times, (first, _) in zip(starts, runs, strict=True))
    end = min(times[last] + period for times, (_, last) in zip(starts, runs, strict=True))
    num = math.floor((end - begin) / period + ROUNDING)
    return Steady(begin, period, num) if num >= 2 else None


def _around(found: Steady, view: ScheduleView) -> tuple[Section, ...]:
    behind = found.start + found.times * found.period
    more = found.times - 1
    left_out = f"{more} more period{'s' if more > 1 else ''} like it"
    parts = (
        Section("warm-up", 0.0, found.start),
        Section("one period", found.start, found.start + found.period, left_out),
        Section("cool-down", behind, view.makespan),
    )
    return tuple(part for part in parts if part.length > ROUNDING * view.makespan)


def marks(part: Section, apart: float) -> Iterator[float]:
    """Round times of an axis, so far from each other or more; and where a part begins.

    >>> list(marks(Section("", 3.0, 30.0), 7.0))
    [3.0, 10.0, 20.0]
    """
    size = 10.0 ** math.floor(math.log10(apart))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= apart * (1 - ROUNDING))
    yield part.start
    for number in range(math.floor(part.start / step) + 1, math.ceil(part.end / step)):
        yield number * step


def _starts(view: ScheduleView) -> list[list[float]]:
    """Of each block and each transfer, the starts of all micro-batches."""
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for block in view.blocks:
        found.setdefault((block.name,), {})[block.micro_batch] = block.start
    for sent in view.transfers:
        found.setdefault((sent.source, sent.target, *sent.channels), {})[sent.micro_batch] = sent.start
    return [[times[number] for number in range(view.micro_batches)] for times in found.values()]


def _longest_run(times: Sequence[float], period: float) -> tuple[int, int]:
    """First and last of the longest run of times that follow each other by the period.

    >>> _longest_run([0, 1, 4, 8, 12, 20], 4)
    (2, 4)
    """
    best = (0, 0)
    first = 0
    for number, (earlier, later) in enumerate(pairwise(times), 1):
        if not math.isclose(later - earlier, period, rel_tol=1e-6, abs_tol=ROUNDING):
            first = number
        elif number - first > best[1] - best[0]:
            best = (first, number)
    return best
