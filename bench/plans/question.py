"""`python -m bench plans`: plans of today beside the recorded ones; predictions only, nothing is run.

The table `recorded.json` has what the planner answered at the commit that it names. A ratio above 1 is a plan that
costs more than the recorded one. `python -m bench.plans --record` writes the table anew; `--only WORDS` asks the cases
whose group or name has the words.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.plans.cases import questions
from bench.plans.table import Row, answered, read, write
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
        write(rows, _commit())
    else:
        show(rows)


def run(short: bool) -> None:
    """Print old beside new; short: only small cases."""
    show(_rows(None, "small" if short else ""))


def _rows(console: Console | None, words: str) -> list[Row]:
    rows = []
    for question in questions():
        if words in question.group or words in question.name:
            rows.append(answered(question))
            if console is not None:
                console.print(f"{rows[-1].cost:.6g} {rows[-1].cpu_s:.2f} s  {question.group}: {question.name}")
    return rows


def show(rows: Sequence[Row]) -> None:
    """Ratios by group, and every case that is not as it was."""
    console = Console(highlight=False, width=160)
    commit, before = read()
    table = Table("cases", "number", "median", "worst", "case", "proven before", "now", "CPU s before", "now")
    pairs = [(row, before[f"{row.group}: {row.name}"]) for row in rows]
    for group in dict.fromkeys(row.group for row in rows):
        own = [(now, old) for now, old in pairs if now.group == group]
        table.add_row(group, *_row(own))
    table.add_row("all", *_row(pairs))
    console.print(f"Cost of plans now / at {commit}", table)
    ratios = [ratio(now, old) for now, old in pairs]
    console.print(verdict("median ratio", statistics.median(ratios), "at most", MEDIAN))
    console.print(verdict("worst ratio", max(ratios), "at most", WORST))
    for now, old in pairs:
        if not 0.9995 < ratio(now, old) < 1.0005 or now.is_proven != old.is_proven:
            words = f"{old.layouts} -> {now.layouts}; proven {old.is_proven} -> {now.is_proven}"
            console.print(f"{ratio(now, old):.4f}  {now.group}: {now.name}: {words}")


def _row(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    ratios = [ratio(now, old) for now, old in pairs]
    worst = max(ratios)
    return [
        *(str(len(pairs)), f"{statistics.median(ratios):.4f}", f"{worst:.4f}", pairs[ratios.index(worst)][0].name),
        *(str(sum(old.is_proven for _, old in pairs)), str(sum(now.is_proven for now, _ in pairs))),
        *(f"{sum(old.cpu_s for _, old in pairs):.1f}", f"{sum(now.cpu_s for now, _ in pairs):.1f}"),
    ]


def ratio(now: Row, old: Row) -> float:
    """Of the costs; 1 where both have no plan."""
    return 1.0 if now.cost == old.cost else now.cost / old.cost


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
