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

Conditions = tuple[str, int, float | None]


def run(short: bool = False) -> None:
    """Print every table; `short` draws fewer rings."""
    console = Console(highlight=False, width=160)
    found = rows()
    _within(console, [row for row in found if row.fits])
    _beyond(console, [row for row in found if not row.fits])
    _figures(console)
    _drawn(console, 150 if short else 1500)


def conditions(row: Row) -> Conditions:
    """What rows are put together by."""
    return row.transport.congestion_control, row.transport.mtu_bytes, row.transport.router_buffer_s


def _within(console: Console, found: Sequence[Row]) -> None:
    table = Table("control", "MTU", "buffer s", "rows", "mean error", "worst", "simulated: mean", "worst")
    for key in sorted({conditions(row) for row in found}, key=str):
        table.add_row(*map(str, key), *_summary([row for row in found if conditions(row) == key]))
    table.add_row("all", "", "", *_summary(found))
    console.print("Measured all-reduces whose bursts fit the routers' buffers", table)
    mean = statistics.mean(abs(row.error) for row in found)
    console.print(verdict("mean error of the closed form", mean, "at most", 0.03))


def _summary(found: Sequence[Row]) -> list[str]:
    closed = [row.error for row in found]
    simulated = [row.simulated_s / row.measured_s - 1 for row in found]
    return [str(len(found)), *(cell for errors in (closed, simulated) for cell in _mean_and_worst(errors))]


def _mean_and_worst(errors: Sequence[float]) -> list[str]:
    return [f"{statistics.mean(map(abs, errors)):.1%}", f"{max(errors, key=abs):+.1%}"]


def _beyond(console: Console, found: Sequence[Row]) -> None:
    table = Table(
        "control", "MTU", "buffer s", "profile", "order", "MiB", "fill", "measured s", "range s", "usual s", ""
    )
    for row in sorted(found, key=lambda row: (*map(str, conditions(row)), row.profile, row.order, row.num_bytes)):
        time = row.predicted
        table.add_row(
            *map(str, conditions(row)),
            row.profile,
            " ".join(row.order),
            f"{row.num_bytes / figures.MIB:g}",
            f"{row.fill:.2f}",
            f"{row.measured_s:.3f}",
            f"{time.low_s:.3f} - {time.high_s:.3f}",
            f"{time.seconds:.3f}",
            "within"
            if row.is_within
            else f"{max(time.low_s / row.measured_s, row.measured_s / time.high_s) - 1:.1%} out",
        )
    console.print(
        "Measured all-reduces whose bursts overflow a buffer: fill is burst / buffer of the fullest link", table
    )
    for control in ("cubic", "bbr"):
        some = [row for row in found if row.transport.congestion_control == control]
        errors = _mean_and_worst([row.predicted.seconds / row.measured_s - 1 for row in some])
        within = sum(row.is_within for row in some)
        console.print(
            f"{control}: {within} of {len(some)} within their range; usual: mean error {', worst '.join(errors)}"
        )


def _figures(console: Console) -> None:
    _print(console, "DDP, 8.4 MB of gradients, B in region order, by the closed form", figures.ddp(closed_form=True))
    _print(console, "DDP, by simulation", figures.ddp(closed_form=False))
    _print(console, "Two levels, six nodes, buffers left aside", figures.hierarchical())
    both = figures.shared_16()
    console.print(f"the last with a buffer of 0.15 s: {both.seconds:.2f} s in {both.low_s:.2f} - {both.high_s:.2f}")
    _print(console, "After silence, cubic; profile and order are guessed, they were not recorded", figures.silence())


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
