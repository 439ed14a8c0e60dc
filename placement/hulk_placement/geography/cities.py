"""Where large cities are, to a hundredth of a degree: regions that are cities get coordinates by their names.

And the middle of California, which Hulk's own data has among its cities.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from hulk_placement.geography.light import Coordinates


def coordinates(city: str) -> Coordinates | None:
    """Where a city is; None for one that the table lacks. Case, blanks and punctuation do not matter.

    >>> coordinates("new york ") == coordinates("NewYork")
    True
    """
    return _table().get(_key(city))


@cache
def _table() -> dict[str, Coordinates]:
    text = resources.files(__package__).joinpath("cities.csv").read_text(encoding="utf-8")
    return {
        _key(row["city"]): (float(row["latitude"]), float(row["longitude"]))
        for row in csv.DictReader(text.splitlines())
    }


def _key(city: str) -> str:
    return "".join(letter for letter in city.casefold() if letter.isalpha())
