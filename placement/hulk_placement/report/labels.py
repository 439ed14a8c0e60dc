"""Words in a drawing, placed where nothing else is: without a browser that would know how wide they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hulk_placement.report import units
from hulk_placement.report.rows import LinkUseRow

LETTER = 0.67
"""Width of a letter by the height of the text, of wide and bold sans-serif faces on the mean."""

LINE = 1.25


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        """The area that two rectangles share."""
        wide = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        high = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return max(0.0, wide) * max(0.0, high)


@dataclass(slots=True)
class Labels:
    """What is taken of a drawing so far; `text`: the letters' height."""

    width: float
    height: float
    text: float
    _taken: list[Box] = field(default_factory=list)

    def block(self, box: Box) -> None:
        """Nothing is to be written there."""
        self._taken.append(box)

    def beside(
        self, x: float, y: float, radius: float, lines: Sequence[str], away_from: tuple[float, float] | None = None
    ) -> tuple[tuple[float, float], str]:
        """Where the first line of a dot's label goes, and which end of it is there: the side with most room.

        Of sides with as much the one that is farthest from a point, where one is given.
        """
        wide, high = max(map(len, lines)) * LETTER * self.text, len(lines) * LINE * self.text
        gap = radius + 0.45 * self.text
        right, left, diagonal = x + gap, x - gap - wide, 0.75 * gap
        sides = [
            ("start", Box(right, y - high / 2, wide, high)),
            ("end", Box(left, y - high / 2, wide, high)),
            ("middle", Box(x - wide / 2, y + gap, wide, high)),
            ("middle", Box(x - wide / 2, y - gap - high, wide, high)),
            ("start", Box(x + diagonal, y + diagonal, wide, high)),
            ("start", Box(x + diagonal, y - diagonal - high, wide, high)),
            ("end", Box(x - diagonal - wide, y + diagonal, wide, high)),
            ("end", Box(x - diagonal - wide, y - diagonal - high, wide, high)),
        ]
        far = away_from or (x, y)
        outward = [math.dist(far, (b.x + b.width / 2, b.y + b.height / 2)) if away_from else 0.0 for _, b in sides]
        best = min(range(len(sides)), key=lambda number: (round(self._cost(sides[number][1])), -outward[number]))
        anchor, found = sides[best]
        box = self._inside(found)
        self._taken.append(box)
        at = {"start": box.x, "end": box.x + wide, "middle": box.x + wide / 2}[anchor]
        return (at, box.y + 0.95 * self.text), anchor

    def free(self, x: float, y: float, words: str) -> bool:
        """Take the place of one line around a point, if nothing is there."""
        wide, high = (len(words) + 1) * LETTER * self.text, LINE * self.text
        box = Box(x - wide / 2, y - high / 2, wide, high)
        if self._cost(box):
            return False
        self._taken.append(box)
        return True

    def _cost(self, box: Box) -> float:
        """The area that is taken already, or outside of the drawing."""
        outside = box.width * box.height - box.overlap(Box(0, 0, self.width, self.height))
        return 2 * max(0.0, outside - 1e-6) + sum(box.overlap(other) for other in self._taken)

    def _inside(self, box: Box) -> Box:
        x = min(max(box.x, 2.0), max(2.0, self.width - box.width - 2))
        return Box(x, min(max(box.y, 2.0), self.height - box.height - 2), box.width, box.height)


def shortened(name: str, most: int) -> str:
    """
    >>> shortened("a-very-long-region", 8)
    'a-very-…'
    """
    return name if len(name) <= most else f"{name[: most - 1]}…"


def link_words(rows: Sequence[LinkUseRow]) -> str:
    """Round trip and bandwidth of a pair's directions; the slower one's where they differ."""
    known = [row for row in rows if row.rtt_microseconds is not None and row.bandwidth_bytes_per_second]
    if not known:
        return "unknown"
    slow = min(known, key=lambda row: row.bandwidth_bytes_per_second or 0)
    return f"{units.duration(slow.rtt_microseconds)}, {units.rate(slow.bandwidth_bytes_per_second)}"
