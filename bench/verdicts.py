"""A figure beside its aim, in one line that says whether it was met."""

from __future__ import annotations

from typing import Literal

_HOLDS = {
    "at most": lambda figure, aim: figure <= aim,
    "below": lambda figure, aim: figure < aim,
    "at least": lambda figure, aim: figure >= aim,
}


def verdict(what: str, figure: float | None, relation: Literal["at most", "below", "at least"], aim: float) -> str:
    """
    >>> verdict("step s", 1.04, "at most", 1.05)
    'step s: 1.04, aim at most 1.05: met'
    >>> verdict("step s", 1.05, "below", 1.05)
    'step s: 1.05, aim below 1.05: missed'
    >>> verdict("step s", None, "below", 1.05)
    'step s: no verdict, aim below 1.05'
    """
    if figure is None:
        return f"{what}: no verdict, aim {relation} {aim:g}"
    return f"{what}: {figure:.4g}, aim {relation} {aim:g}: {'met' if _HOLDS[relation](figure, aim) else 'missed'}"
