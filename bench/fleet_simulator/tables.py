"""What people see of a simulated fleet."""

from collections.abc import Mapping
from typing import Any

from hulk_operator.cli.table_format import sentence, table
from rich.console import Group, RenderableType

COLUMNS = (
    "POLICY",
    "UTILITY",
    "OF BOUND",
    "MAKESPAN",
    "MEAN",
    "P95",
    "DONE",
    "USED",
    "STARTS",
    "RESIZED",
    "MOVED",
    "PREEMPTED",
    "KJ",
)


def fleet_tables(made: Mapping[str, Any]) -> RenderableType:
    """The figures of `document` as a table, with what was drawn and the bound below it."""
    with_published = bool(made.get("published"))
    heading = (*COLUMNS, *(("PUBLISHED",) if with_published else ()))
    rows = table(*heading, numbers=heading[1:])
    for name, found in made["policies"].items():
        cells = _cells(name, found, made["num_jobs"])
        if with_published:
            cells.append(str(made["published"].get(name, "-")))
        rows.add_row(*cells)
    drawn = ", ".join(f"{key} {_word(value)}" for key, value in made["drawn"].items())
    lines: list[RenderableType] = [
        rows,
        sentence("BOUND", f"{made['bound']:.6g}: no policy's utility is above it"),
        sentence("DRAWN", drawn),
    ]
    if with_published:
        lines.append(
            sentence("PUBLISHED", "totals of arXiv 2202.01158 in its own simulation; this is not a reproduction")
        )
    lines += [
        sentence("SHARES", f"{name}: " + ", ".join(f"{space} {share:.1%}" for space, share in found["shares"].items()))
        for name, found in made["policies"].items()
        if len(found["shares"]) > 1
    ]
    lines += [
        sentence("OVERRUNS", f"{name}: {found['num_overruns']}, the first: {found['overruns'][0]}")
        for name, found in made["policies"].items()
        if found["overruns"]
    ]
    return Group(*lines)


def _cells(name: str, found: Mapping[str, Any], num_jobs: int) -> list[str]:
    moves = found["moves"]
    return [
        name,
        f"{found['utility']:.6g}",
        "-" if found["fraction"] is None else f"{found['fraction']:.3f}",
        f"{found['makespan']:.6g} s",
        "-" if found["mean_completion"] is None else f"{found['mean_completion']:.5g} s",
        "-" if found["p95_completion"] is None else f"{found['p95_completion']:.5g} s",
        f"{found['completed']}/{num_jobs}",
        f"{found['utilisation']:.1%}",
        str(moves["start"]),
        str(moves["grow"] + moves["shrink"]),
        str(moves["move"]),
        str(moves["preempt"]),
        f"{found['joules'] / 1000:.4g}",
    ]


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_word(inner)}" for key, inner in value.items()) + ")"
    return str(value)
