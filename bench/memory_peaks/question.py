"""How far predicted peaks of memory are from published ones: `python -m bench memory`. Nothing is run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from bench.memory_peaks.predicted import before, stated, unstated
from bench.memory_peaks.published import Peak, peaks
from bench.verdicts import verdict

COUNTED: dict[str, Callable[[Peak], float]] = {"before": before, "nothing stated": unstated, "as stated": stated}
MEAN_AIM, WORST_AIM = 0.10, 0.10


def run(short: bool = False) -> None:
    """Print both tables; there is nothing to leave out."""
    console, found = Console(highlight=False, width=150), peaks()
    rows = Table("source", "run", "measured", "published GB", "predicted GB", "error", "nothing stated", "before")
    for peak in found:
        shown = [f"{error(peak, count):+.1%}" for count in (stated, unstated, before)]
        cells = (peak.source, peak.run, peak.measured, f"{peak.peak_bytes / 1e9:.2f}", f"{stated(peak) / 1e9:.2f}")
        rows.add_row(*cells, *shown)
    console.print("Published peaks of one accelerator beside predicted ones", rows)
    sums = Table("counted", "figures", "mean error", "worst")
    for name, count in COUNTED.items():
        errors = [error(peak, count) for peak in found]
        sums.add_row(name, str(len(found)), f"{mean(errors):.1%}", f"{max(errors, key=abs):+.1%}")
    console.print("All of them", sums)
    errors = [error(peak, stated) for peak in found]
    console.print(verdict("mean error as stated", mean(errors), "at most", MEAN_AIM))
    console.print(verdict("worst error as stated", max(map(abs, errors)), "at most", WORST_AIM))


def error(peak: Peak, count: Callable[[Peak], float]) -> float:
    """Of a prediction, as a part of what was measured; below 0: too low."""
    return count(peak) / peak.peak_bytes - 1


def mean(errors: Sequence[float]) -> float:
    """Of their sizes."""
    return statistics.mean(map(abs, errors))
