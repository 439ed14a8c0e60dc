"""Degrees to lengths of a drawing: an equirectangular map, cut open in the widest gap between its places.

In true proportion at its middle; on narrow paper latitudes are drawn out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hulk_placement.geography.light import Coordinates

Point = tuple[float, float]

STEPS = (1, 2, 5, 10, 15, 30, 45)
"""Degrees between two lines of the grid."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What is drawn on: its width, letters, its height by its width, and how far latitudes may be drawn out."""

    width: float
    text: float
    lowest: float
    highest: float
    stretch: float
    most_notes: int
    """Regions up to which all get a second line."""


WIDE = Paper(960, 13.5, 0.3, 0.5, 1.0, 12)
NARROW = Paper(360, 11.5, 0.6, 0.9, 2.2, 4)


@dataclass(frozen=True, slots=True)
class GridLine:
    """A meridian or parallel, and what it is called."""

    start: Point
    end: Point
    name: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Degrees to lengths: `west` and `north` are at the upper left, `scale` lengths a degree of latitude."""

    west: float
    north: float
    scale: float
    squeeze: float
    """A degree of longitude by one of latitude."""
    width: float
    height: float

    @classmethod
    def around(cls, places: Sequence[Coordinates], paper: Paper) -> Frame:
        """The frame in which all places are well inside, as high as they need within the paper's limits."""
        start = _cut([longitude for _, longitude in places])
        easts = [(longitude - start) % 360 for _, longitude in places]
        norths = [latitude for latitude, _ in places]
        middle, width = (min(norths) + max(norths)) / 2, paper.width
        true = max(0.3, math.cos(math.radians(middle)))
        wide, high = max(max(easts), 16) * true, max(max(norths) - min(norths), 8)
        across = min(width * 0.7 / wide, width * paper.highest * 0.66 / high)
        scale = max(across, min(across * paper.stretch, width * paper.highest * 0.66 / high))
        needed = high * scale / 0.66 if len(places) > 1 else 0.0
        height = min(max(needed, width * paper.lowest), width * paper.highest)
        squeeze = true * across / scale
        west = start + (max(easts) - width / scale / squeeze) / 2
        return cls(west, middle + height / scale / 2, scale, squeeze, width, height)

    def place(self, where: Coordinates) -> Point:
        """Where a place is drawn."""
        latitude, longitude = where
        return (longitude - self.west) % 360 * self.scale * self.squeeze, (self.north - latitude) * self.scale

    def grid(self, text: float) -> Iterator[GridLine]:
        """Lines at round degrees, some six of them across."""
        wide, high = self.width / self.scale / self.squeeze, self.height / self.scale
        step = next((step for step in STEPS if max(wide, high * 2) / step <= 7 * self.width / 700 + 2), STEPS[-1])
        for east in range(math.ceil(self.west / step) * step, math.floor(self.west + min(wide, 360)) + 1, step):
            x = (east - self.west) * self.scale * self.squeeze
            if text * 2 < x < self.width - text * 5:
                yield GridLine((x, 0), (x, self.height), _degrees((east + 180) % 360 - 180, "EW"))
        for latitude in range(math.ceil((self.north - high) / step) * step, math.floor(self.north) + 1, step):
            y = (self.north - latitude) * self.scale
            if abs(latitude) <= 90 and text * 2 < y < self.height - text * 2:
                yield GridLine((0, y), (self.width, y), _degrees(latitude, "NS"))


def _degrees(value: float, letters: str) -> str:
    """
    >>> _degrees(-30, "EW"), _degrees(0, "NS")
    ('30° W', '0°')
    """
    return f"{abs(value):g}° {letters[value < 0]}" if value % 180 else f"{abs(value):g}°"


def _cut(longitudes: Sequence[float]) -> float:
    """The longitude from which on all others are least far to the east: after the widest gap.

    >>> _cut([139.7, -77.4, 8.7])
    -77.4
    """
    ordered = sorted(longitude % 360 for longitude in longitudes)
    before = ordered[-1:] + ordered[:-1]
    gaps = [(east - west) % 360 for west, east in zip(before, ordered, strict=True)]
    first = ordered[max(range(len(gaps)), key=gaps.__getitem__)]
    return round((first + 180) % 360 - 180, 9)
