"""`python -m bench plans`: plans of today beside the recorded ones; predictions only, nothing is run.

The table `recorded.json` has the plans of the commit that it names. Today's predictor prices both. A ratio above 1 is a
plan that costs more than the recorded one; recorded plans that lack memory by today's estimate are counted and not
compared. `python -m bench.plans --record` writes the table anew; `--only WORDS` asks the cases whose group or name has
the words.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.plans.cases import Asked, questions
from bench.plans.table import Row, answered, priced, read, write
from bench.verdicts import verdict

MEDIAN, WORST = 1.005, 1.03
"""Of today's cost to the recorded one: what a change of the planner may be at most."""


def main() -> None:
    """Entry point of `python -m bench.plans`."""
    parser = argparse.ArgumentParser(prog="python -m bench.plans", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the table")
    parser.add_argument("--only", default="", help="words in a case's group or name")
    options = parser.parse_args()
    rows = _rows(Console(highlight=False, width=160), options.only)
    if options.record:
        write([row for row, _ in rows], _commit())
    else:
        show(rows)


def run(short: bool) -> None:
    """Print old beside new; short: only small cases."""
    show(_rows(None, "small" if short else ""))


def _rows(console: Console | None, words: str) -> list[tuple[Row, Asked]]:
    """What the planner answers, and what it was asked."""
    rows = []
    for question in questions():
        if words in question.group or words in question.name:
            asked = question.draw()
            row = answered(question, asked)
            rows.append((row, asked))
            if console is not None:
                console.print(f"{row.cpu_s:.2f} s  {row.group}: {row.name}: {row.layouts}")
    return rows


def show(rows: Sequence[tuple[Row, Asked]]) -> None:
    """Ratios by group, and every case that is not as it was."""
    console = Console(highlight=False, width=160)
    commit, before = read()
    table = Table("cases", "number", "median", "worst", "case", "proven before", "now", "CPU s before", "now")
    pairs = [_pair(row, before[f"{row.group}: {row.name}"], asked) for row, asked in rows]
    for group in dict.fromkeys(row.group for row, _ in rows):
        table.add_row(group, *_row([pair for pair in pairs if pair.now.group == group]))
    table.add_row("all", *_row(pairs))
    console.print(f"Cost of plans now / at {commit}, by today's predictor", table)
    compared = [pair for pair in pairs if pair.is_compared]
    console.print(f"{len(pairs) - len(compared)} recorded plans lack memory by today's estimate")
    ratios = [pair.ratio for pair in compared]
    console.print(verdict("median ratio", statistics.median(ratios), "at most", MEDIAN))
    console.print(verdict("worst ratio", max(ratios), "at most", WORST))
    for pair in pairs:
        if not 0.9995 < pair.ratio < 1.0005 or pair.now.is_proven != pair.old.is_proven:
            words = f"{pair.old.layouts} -> {pair.now.layouts}; proven {pair.old.is_proven} -> {pair.now.is_proven}"
            lacks = "" if pair.is_compared else "; the recorded one lacks memory"
            console.print(f"{pair.ratio:.4f}  {pair.now.group}: {pair.now.name}: {words}{lacks}")


@dataclass(frozen=True, slots=True)
class Pair:
    """A case now and as recorded; the ratio of today's prices."""

    now: Row
    old: Row
    ratio: float
    is_compared: bool


def _pair(now: Row, old: Row, asked: Asked) -> Pair:
    today, recorded = priced(now, asked), priced(old, asked)
    ratio = 1.0 if today.cost == recorded.cost else today.cost / recorded.cost
    return Pair(now, old, ratio, recorded.fits)


def _row(pairs: Sequence[Pair]) -> list[str]:
    """Ratios are of the cases that are compared, the other columns of all."""
    compared = [pair for pair in pairs if pair.is_compared]
    worst = max(compared, key=lambda pair: pair.ratio, default=None)
    return [
        str(len(compared)),
        "" if worst is None else f"{statistics.median(pair.ratio for pair in compared):.4f}",
        *(("", "") if worst is None else (f"{worst.ratio:.4f}", worst.now.name)),
        *(str(sum(pair.old.is_proven for pair in pairs)), str(sum(pair.now.is_proven for pair in pairs))),
        *(f"{sum(pair.old.cpu_s for pair in pairs):.1f}", f"{sum(pair.now.cpu_s for pair in pairs):.1f}"),
    ]


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
