"""The agent's tasks beside each other. One that breaks is counted and started again, later each time.

Broken too often in a row it ends the agent by BackgroundError, and the kubelet starts another one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from hulk_runtime import background
from hulk_runtime.errors import BackgroundError

FIRST_PAUSE_S: Final = 0.5

Body = Callable[[], Coroutine[Any, Any, None]]


async def keep(bodies: Mapping[str, Body]) -> None:
    """Run all of them until cancelled. Raises BackgroundError."""
    try:
        async with asyncio.TaskGroup() as group:
            for name, body in bodies.items():
                group.create_task(_kept(name, body), name=name)
    except* BackgroundError as several:
        raise several.exceptions[0] from None


async def first_of(*works: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """The number and the answer of the work that ended first, or what it raises; of several the first in order.

    The others are cancelled, and over when this returns.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next((number, task.result()) for number, task in enumerate(tasks) if task in done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _kept(name: str, body: Body) -> None:
    num_failures, loop = 0, asyncio.get_running_loop()
    background.announce(name)
    while True:
        begun_s = loop.time()
        try:
            return await body()
        except Exception as error:
            num_failures = 1 if loop.time() - begun_s > background.WELL_S else num_failures + 1
            if num_failures > background.MAX_RESTARTS:
                background.count(name, error, "and the agent ends")
                raise background.defect(name, error) from error
            background.count(name, error, "and is started again")
        await asyncio.sleep(FIRST_PAUSE_S * 2 ** (num_failures - 1))
