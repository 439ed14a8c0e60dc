"""What the operator keeps of the cluster is laid aside from garbage collections, and circles go in the end."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable

import pytest
from hulk_operator.watched.garbage import lay_aside


class Circle:
    """Has itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
async def begin() -> AsyncIterator[Callable[[float, float], None]]:
    """begin(aside_s, whole_s)."""
    tasks: list[asyncio.Task[None]] = []
    yield lambda aside_s, whole_s: tasks.append(asyncio.create_task(lay_aside(aside_s, whole_s)))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    gc.unfreeze()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_what_lives_is_walked_no_more(begin: Callable[[float, float], None]) -> None:
    begin(0.02, 3600.0)
    await until(gc.get_freeze_count)
    kept = [{"node": number} for number in range(100_000)]
    await until(lambda: len(gc.get_objects()) < len(kept) / 2)  # frozen ones are not among these
    assert kept[-1] == {"node": 99_999}


async def test_a_circle_that_was_laid_aside_goes_at_the_next_full_collection(
    begin: Callable[[float, float], None],
) -> None:
    circle = Circle()
    seen = weakref.ref(circle)
    begin(0.02, 0.3)
    await until(gc.get_freeze_count)
    del circle
    await until(lambda: seen() is None)
