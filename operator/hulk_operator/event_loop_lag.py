"""How late the event loop is: so long waits what is due while it is blocked, the renewal of the lease among it."""

import asyncio
from collections.abc import Callable
from typing import Final

TICK_S: Final = 0.01


async def measure(add: Callable[[float], None]) -> None:
    """Call `add` with the lag of each tick until cancelled.

    Ticks are due at fixed moments, so a block counts by its length: one of 35 ms that begins with a tick adds lags of
    35, 25, 15 and 5 ms. Asked only when it wakes up, the loop would tell of one late moment and leave out three.
    """
    loop = asyncio.get_running_loop()
    due_s = loop.time() + TICK_S
    while True:
        await asyncio.sleep(due_s - loop.time())
        now_s = loop.time()
        while due_s <= now_s:
            add(now_s - due_s)
            due_s += TICK_S
