"""How far prices of communication over gloo are from what was measured: `python -m bench gloo_model`.

Nothing is run but the planner's formulas: predictions stand beside all-reduces that were measured before, and closed
forms beside the event simulation of gloo's ring.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from bench.gloo_model import drawn, figures
from bench.gloo_model.figures import Figure
from bench.gloo_model.rows import Row, rows
from bench.verdicts import verdict


def run(short: bool = False) -> None:
    """Print every table; `short` draws fewer rings."""
    console = Console(highlight=False, width=160)
    found = rows()
    _within(console, [row for row in found if row.fits])
    _beyond(console, [row for row in found if not row.fits])
    _figures(console)
    _drawn(console, 150 if short else 1500)


def _within(console: Console, found: Sequence[Row]) -> None:
    table = Table("rows", "mean error", "worst", "simulated: mean", "worst")
    table.add_row(*_summary(found))
    console.print("All-reduces measured over cubic whose bursts fit the routers' buffers", table)
    mean = statistics.mean(abs(row.error) for row in found)
    console.print(verdict("mean error of the closed form", mean, "at most", 0.03))


def _summary(found: Sequence[Row]) -> list[str]:
    closed = [row.error for row in found]
    simulated = [row.simulated_s / row.measured_s - 1 for row in found]
    return [str(len(found)), *(cell for errors in (closed, simulated) for cell in _mean_and_worst(errors))]


def _mean_and_worst(errors: Sequence[float]) -> list[str]:
    return [f"{statistics.mean(map(abs, errors)):.1%}", f"{max(errors, key=abs):+.1%}"]


def _beyond(console: Console, found: Sequence[Row]) -> None:
    table = Table("profile", "order", "MiB", "fill", "measured s", "predicted s", "error")
    for row in sorted(found, key=lambda row: (row.profile, row.order, row.num_bytes)):
        sizes = f"{row.num_bytes / figures.MIB:g}", f"{row.fill:.2f}", f"{row.measured_s:.3f}", f"{row.predicted_s:.3f}"
        table.add_row(row.profile, " ".join(row.order), *sizes, f"{row.error:+.1%}")
    console.print("Those whose bursts overflow a buffer: fill is burst / buffer of the fullest link", table)


def _figures(console: Console) -> None:
    _print(console, "DDP, 8.4 MB of gradients, B in region order, by the closed form", figures.ddp(closed_form=True))
    _print(console, "DDP, by simulation", figures.ddp(closed_form=False))
    _print(console, "Two levels, six nodes, buffers left aside", figures.hierarchical())


def _print(console: Console, title: str, found: Iterable[Figure]) -> None:
    table = Table("", "measured s", "predicted s", "error")
    for figure in found:
        table.add_row(figure.what, f"{figure.measured_s:.3f}", f"{figure.predicted_s:.3f}", f"{figure.error:+.1%}")
    console.print(title, table)


def _drawn(console: Console, num: int) -> None:
    table = Table("", "mean error", "least", "most")
    cases = {
        "one bucket": drawn.rings(1, num),
        "two buckets at once": drawn.rings(2, num),
        "eight buckets, two at a time": drawn.rings(8, num),
        "DDP's buckets, equal": drawn.buckets(True, num),
        "DDP's buckets, of any sizes": drawn.buckets(False, num),
    }
    for name, found in cases.items():
        table.add_row(name, f"{found.mean:.1%}", f"{found.least:+.1%}", f"{found.most:+.1%}")
    console.print(f"Closed form against simulation, {num} drawn rings each, nothing measured", table)
