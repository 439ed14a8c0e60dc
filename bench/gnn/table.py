"""Rows of `bench gnn` -> tables: changes with the intervals that the bootstrap over clusters gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

MOST_JOBS = 6
BASE, WITH, WITHOUT = "local", "gnn", "formula"
SEARCHED = (BASE, "portfolio", WITH, WITHOUT, "greedy", "random", "evolutionary", "hulk-gcn")
NUM_RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Row:
    """One search of one problem."""

    num_machines: int
    num_jobs: int
    cluster: int
    seconds: float
    search: str
    log_step: float
    """Of the geometric mean of the jobs' steps; infinite where a job has no layout."""
    num_divisions: int
    num_constructed: int
    num_annealed: int
    num_guessed: int
    took_s: float


def show(rows: Sequence[Row]) -> None:
    """A table for each budget, the changes over clusters of several jobs, then for each number of jobs."""
    console = Console(highlight=False, width=170)
    by_key = {(row.num_machines, row.seconds, row.cluster, row.search): row for row in rows}
    names = [name for name in SEARCHED if any(row.search == name for row in rows)]
    for seconds in sorted({row.seconds for row in rows}):
        heads = ("machines", "clusters", "search", f"beside {BASE}", "95 % interval", "better : worse")
        table = Table(*heads, f"beside {WITHOUT}", "95 % interval", "divisions", "layouts", "guesses", "CPU s")
        for num_machines in sorted({row.num_machines for row in rows}):
            for name in names:
                own = [r for r in rows if (r.num_machines, r.seconds, r.search) == (num_machines, seconds, name)]
                own = [row for row in own if row.num_jobs > 1]
                if own:
                    table.add_row(str(num_machines), str(len(own)), name, *_figures(own, by_key))
        console.print(f"{seconds:g} s of the processor, 2 to {MOST_JOBS} jobs")
        console.print(table)
    console.print(_by_jobs(rows, by_key))


Key = tuple[int, float, int, str]


def _figures(own: Sequence[Row], by_key: dict[Key, Row]) -> tuple[str, ...]:
    beside = changes(own, by_key, BASE)
    medians = [np.median([getattr(row, name) for row in own]) for name in ("num_divisions", "num_constructed")]
    annealed, guessed, took_s = (
        np.median([getattr(row, name) for row in own]) for name in ("num_annealed", "num_guessed", "took_s")
    )
    failed = sum(math.isinf(row.log_step) for row in own)
    return (
        *_change(beside, failed),
        f"{(beside < -1e-9).sum()} : {(beside > 1e-9).sum()}",
        *_change(changes(own, by_key, WITHOUT), 0),
        f"{medians[0]:,.0f}",
        f"{medians[1]:,.0f} + {annealed:,.0f}",
        f"{guessed:,.0f}",
        f"{took_s:.2f}",
    )


def changes(own: Sequence[Row], by_key: dict[Key, Row], other: str) -> np.ndarray:
    """log(one / other) of each cluster in which both found something."""
    pairs = [(row, by_key.get((row.num_machines, row.seconds, row.cluster, other))) for row in own]
    found = [row.log_step - beside.log_step for row, beside in pairs if beside is not None]
    return np.array([change for change in found if math.isfinite(change)])


def _change(found: np.ndarray, failed: int) -> tuple[str, str]:
    if not len(found):
        return "", ""
    low, high = interval(found)
    text = f"{math.expm1(found.mean()):+.1%}" + (f" ({failed} without)" if failed else "")
    return text, f"{math.expm1(low):+.1%} .. {math.expm1(high):+.1%}"


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % of the means of as many values drawn again."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (NUM_RESAMPLES, len(values))).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def _by_jobs(rows: Sequence[Row], by_key: dict[Key, Row]) -> Table:
    table = Table("jobs", "seconds", "clusters", f"{WITH} beside {BASE}", "95 % interval")
    for num_jobs in sorted({row.num_jobs for row in rows}):
        for seconds in sorted({row.seconds for row in rows}):
            own = [r for r in rows if (r.num_jobs, r.seconds, r.search) == (num_jobs, seconds, WITH)]
            found = changes(own, by_key, BASE)
            table.add_row(str(num_jobs), f"{seconds:g}", str(len(found)), *_change(found, 0))
    return table
