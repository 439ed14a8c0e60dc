"""The templates of pages: every name escaped, nothing left undefined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def environment(filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """The templates of the folder `page`, with these filters."""
    made = Environment(
        loader=PackageLoader("hulk_placement.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    return made
