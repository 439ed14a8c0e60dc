"""What a dashboard is made of: rows of panels of queries, as values."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

WIDTH: Final = 24
Json = dict[str, Any]
Shape = Literal["time", "now", "table"]
JOB: Final = 'namespace=~"$namespace",job=~"$job"'
HIDDEN: Final = ("Time", "Value", "__name__", "instance", "pod", "endpoint", "container")


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression. `shape`: a curve, the newest value, or the newest values as rows of a table."""

    expression: str
    legend: str = ""
    shape: Shape = "time"


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture; `kind` is Grafana's panel type, `width` in 24ths of the page, `unit` Grafana's name of it."""

    title: str
    kind: Literal["timeseries", "stat", "table"]
    description: str
    queries: tuple[Query, ...]
    unit: str
    width: int = 8
    height: int = 8
    transformations: tuple[Json, ...] = ()
    custom: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading, side by side."""

    title: str
    panels: tuple[Panel, ...]


def or_zero(expression: str) -> str:
    """The expression, or 0 where it is empty: nothing is wrong with a job that has none."""
    return f"{expression} or vector(0) unless on () {expression}"


def columns(names: dict[str, str], order: tuple[str, ...]) -> Json:
    """Show only the columns in `order`, under better names."""
    return {
        "id": "organize",
        "options": {
            "excludeByName": {name: True for name in HIDDEN if name not in order},
            "indexByName": {name: index for index, name in enumerate(order)},
            "renameByName": names,
        },
    }
