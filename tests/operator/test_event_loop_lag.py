"""The event loop's lag counts moments, not wake-ups: a long block is many late moments."""

import asyncio
import time
from itertools import pairwise

from hulk_operator import event_loop_lag
from hulk_operator.event_loop_lag import TICK_S

BLOCK_S = 0.2


async def test_a_block_counts_by_its_length() -> None:
    lags_s: list[float] = []
    measuring = asyncio.create_task(event_loop_lag.measure(lags_s.append))
    await asyncio.sleep(5 * TICK_S)
    num_before = len(lags_s)
    time.sleep(BLOCK_S)  # noqa: ASYNC251 - the block that is measured
    await asyncio.sleep(TICK_S)
    measuring.cancel()
    during_s = [lag_s for lag_s in lags_s[num_before:] if lag_s > TICK_S]
    assert during_s[0] > BLOCK_S - 2 * TICK_S
    assert len(during_s) >= BLOCK_S / TICK_S - 2
    assert all(before > after for before, after in pairwise(during_s))
