"""Keeps Python's full garbage collections from holding up everything.

A full collection walks all objects that live: with 5,000 nodes and their profiles a million and more, 0.2 to 1 s in
which nothing else runs. What has lived for a moment mostly lives long and is freed when nobody has it any more, so it
is laid aside (`gc.freeze`), and only circles that nobody has are left in it until the next hour.
"""

import asyncio
import gc
from typing import Final

ASIDE_S: Final = 5.0
"""Between two times that what lives is laid aside."""
WHOLE_S: Final = 3600.0
"""Between two full collections."""


async def lay_aside(aside_s: float = ASIDE_S, whole_s: float = WHOLE_S) -> None:
    """Until cancelled."""
    while True:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        for _ in range(max(1, round(whole_s / aside_s))):
            await asyncio.sleep(aside_s)
            gc.collect(1)  # of the young ones the unreachable go first
            gc.freeze()
