"""How far prices of NCCL's sends and all-reduces are from what others measured: `python -m bench published`.

Nothing is run but the planner's formulas. No figure of theirs was fitted to these measurements.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from bench.published.rows import Row, rows
from bench.verdicts import verdict


def run(short: bool = False) -> None:
    """Print a line for each shape of the links; there is nothing to shorten."""
    console, found = Console(highlight=False, width=120), sorted(rows(), key=_shape)
    table = Table("source's table", "one way, ms", "Gbit/s", "rows", "mean error", "median", "worst")
    for key, some in groupby(found, key=_shape):
        table.add_row(key[0], *(f"{figure:g}" if figure else "-" for figure in key[1:]), *_summary(list(some)))
    table.add_row("all", "", "", *_summary(found))
    console.print("NCCL's sends and all-reduces on AWS p3.2xlarge behind shaped links, predicted and measured", table)
    shaped = [row.error for row in found if row.table == "allreduce" and row.gbps]
    console.print(verdict("mean error of shaped all-reduces", statistics.mean(map(abs, shaped)), "at most", 0.05))


def _shape(row: Row) -> tuple[str, float, float]:
    """What rows are put together by."""
    return row.table, row.delay_ms, row.gbps


def _summary(some: Sequence[Row]) -> list[str]:
    errors = [row.error for row in some]
    mean, median = statistics.mean(map(abs, errors)), statistics.median(errors)
    return [str(len(errors)), f"{mean:.1%}", f"{median:+.1%}", f"{max(errors, key=abs):+.1%}"]
