"""Scripts and replicas over the emulated WAN: a step as they are and instrumented; DiLoCo by torchft and by Hulk.

About 10 minutes on a quiet machine, 4 with --short; longer where runs that do not count are done again.
"""

from __future__ import annotations

from rich.console import Console

from bench.raw import Raw
from bench.trainers import beside_torchft, steps


def run(short: bool) -> None:
    """Two tables, each with its verdict."""
    console, raw = Console(highlight=False, width=160), Raw("trainers")
    steps.table(console, raw, short)
    beside_torchft.table(console, raw, short)
