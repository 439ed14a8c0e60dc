"""Settings and questions -> tables: every question on its cases and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

from bench.allreduce import case as cases
from bench.allreduce.case import Case
from bench.allreduce.rounds import MIB, Timed
from bench.allreduce.variants import AIMS, QUESTIONS, Setting, labels
from bench.raw import Raw
from bench.verdicts import verdict


def run(questions: Sequence[str], chosen: Iterable[Case], sizes: Sequence[int], num_runs: int) -> None:
    """One table a question and case, and a verdict where there is an aim."""
    console, raw = Console(highlight=False, width=160), Raw("allreduce-circumstances")
    ratios: dict[str, list[float]] = {question: [] for question in questions}
    for case in chosen:
        with cases.band(case) as band:
            for question in questions:
                rows = [QUESTIONS[question](Setting(case, band, num_bytes, num_runs)) for num_bytes in sizes]
                for timed in (timed for row in rows for timed in row):
                    raw.add(timed, case=str(case), question=question)
                console.print(table(f"{case}: {question}, seconds; !: no run counts", rows))
                console.print(table("processor seconds of a rank for 10^9 bytes", rows, partial(_cpu, case.num_nodes)))
                ratios[question] += filter(None, (ratio(question, row) for row in rows))
    for question in questions:
        if question in AIMS:
            over, under, most = AIMS[question]
            console.print(verdict(f"{over} / {under}, most", max(ratios[question], default=None), "at most", most))


def ratio(question: str, row: Sequence[Timed]) -> float | None:
    """The question's figure for one size, if it has an aim and runs that count."""
    if question not in AIMS:
        return None
    over, under, _ = AIMS[question]
    median_s = {timed.method: timed.median_s for timed in row}
    above, below = median_s[over], median_s[under]
    return None if above is None or below is None else above / below


def _cpu(num_ranks: int, timed: Timed) -> str:
    return "-" if (cpu_s := timed.cpu_s_per_gb(num_ranks)) is None else f"{cpu_s:.2f}"


def table(title: str, rows: Sequence[Sequence[Timed]], cell: Callable[[Timed], str] = str) -> Table:
    """One row a size, one column a thing that is compared."""
    found = Table("MiB", *labels([timed for row in rows for timed in row]), title=title, title_justify="left")
    for row in rows:
        found.add_row(f"{row[0].num_bytes / MIB:g}", *map(cell, row))
    return found
