"""`python -m bench sharp`: several models on shared devices."""

from __future__ import annotations

from rich.console import Console

from bench.raw import Raw
from bench.sharp import plans, published, real


def run(short: bool = False) -> None:
    """Print every table."""
    console, raw = Console(highlight=False, width=140), Raw("sharp")
    plans.run(console, raw, short)
    published.run(console, raw, short)
    real.run(console, raw, short)
