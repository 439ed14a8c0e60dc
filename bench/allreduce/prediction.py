"""How true the prediction of Hulk's own all-reduce is, on links drawn by seeds: nothing else is timed beside it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.allreduce import case as cases
from bench.allreduce import ours
from bench.allreduce.case import Case
from bench.allreduce.rounds import MIB, Timed, time_in_turn
from bench.raw import Raw
from bench.verdicts import verdict

MAX_MEAN_ERROR = 0.04


@dataclass(frozen=True, slots=True)
class Row:
    """One case and size: what was predicted and what was measured."""

    case: Case
    num_bytes: int
    predicted_s: float
    timed: Timed

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; None where no run counts."""
        measured_s = self.timed.median_s
        return self.predicted_s / measured_s - 1 if self.timed.valid and measured_s else None


def run(chosen: Iterable[Case], sizes: Sequence[int], num_runs: int) -> list[Row]:
    """One row a case and size, the errors by size, and the verdict."""
    console, raw, rows = Console(highlight=False, width=160), Raw("allreduce-prediction"), list[Row]()
    for case in chosen:
        with cases.band(case) as band:
            method = ours.method(case.regions, case.links, sizes)
            band.make(cases.OURS, method)
            for num_bytes in sizes:
                (timed,) = time_in_turn({cases.OURS: cases.OURS}, num_bytes, num_runs, band.run)
                rows.append(Row(case, num_bytes, ours.planned(method, num_bytes)["predictedSeconds"], timed))
                raw.add(timed, case=str(case), predicted_s=rows[-1].predicted_s)
                console.print(f"[dim]{case} {num_bytes / MIB:g} MiB: measured {timed}, {_error(rows[-1].error)}")
    console.print(table(rows))
    errors = [abs(row.error) for row in rows if row.error is not None]
    mean = statistics.mean(errors) if errors else None
    console.print(verdict("prediction, mean error", mean, "at most", MAX_MEAN_ERROR))
    return rows


def table(rows: Sequence[Row]) -> Table:
    """Errors by size: of every case one column."""
    chosen = list(dict.fromkeys(str(row.case) for row in rows))
    found = Table("MiB", *chosen, "mean", "mean size of error", title="predicted over measured", title_justify="left")
    for num_bytes in dict.fromkeys(row.num_bytes for row in rows):
        of_size = {str(row.case): row.error for row in rows if row.num_bytes == num_bytes}
        known = [error for error in of_size.values() if error is not None]
        means = [statistics.mean(known), statistics.mean(map(abs, known))] if known else [None, None]
        found.add_row(f"{num_bytes / MIB:g}", *(_error(of_size[name]) for name in chosen), *map(_error, means))
    return found


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"
