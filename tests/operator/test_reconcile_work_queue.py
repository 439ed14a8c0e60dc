"""The work queue: one pass running and one pending per key, the earliest wish counts, failures back off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from hulk_operator.cluster import Unavailable
from hulk_operator.reconcile.work_queue import Pace, WorkQueue

PACE = Pace(rest_s=0.0, backoff_s=0.01, max_backoff_s=0.02)


@asynccontextmanager
async def running(work: Callable[[str], Awaitable[float | None]], pace: Pace = PACE) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(work, pace)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_one_pass_runs_and_one_waits_however_often_a_key_is_added() -> None:
    started, go = asyncio.Event(), asyncio.Event()
    passes, at_once, most = 0, 0, 0
    done = asyncio.Event()

    async def work(key: str) -> None:
        nonlocal passes, at_once, most
        passes, at_once = passes + 1, at_once + 1
        most = max(most, at_once)
        started.set()
        await go.wait()
        at_once -= 1
        if passes == 2:
            done.set()

    async with running(work) as queue:
        queue.add("a")
        await started.wait()
        for _ in range(10):
            queue.add("a")
        assert queue.depth == 1
        go.set()
        await asyncio.wait_for(done.wait(), 5)
        await asyncio.sleep(0)
        assert queue.depth == 0
    assert (passes, most) == (2, 1)


async def test_keys_do_not_wait_for_each_other() -> None:
    both, met = asyncio.Barrier(2), asyncio.Queue[str]()

    async def work(key: str) -> None:
        await both.wait()
        met.put_nowait(key)

    async with running(work) as queue:
        queue.add("a")
        queue.add("b")
        assert {await asyncio.wait_for(met.get(), 5), await asyncio.wait_for(met.get(), 5)} == {"a", "b"}


async def test_the_earliest_wish_counts() -> None:
    loop = asyncio.get_running_loop()
    asked, ran = loop.time(), asyncio.Event()

    async def work(key: str) -> None:
        ran.set()

    async with running(work) as queue:
        queue.add("a", 60.0)
        queue.add("a", 0.01)
        queue.add("a", 30.0)
        await asyncio.wait_for(ran.wait(), 5)
    assert loop.time() - asked < 5


async def test_a_key_rests_after_a_pass_by_the_number_of_its_objects() -> None:
    """Only events wait for that: what a pass itself asks for at once comes at once, and other keys do not wait."""
    loop, ended = asyncio.get_running_loop(), asyncio.Queue[tuple[str, float]]()
    answers = {"a": [0.0, None, None], "b": [None]}

    async def work(key: str) -> float | None:
        ended.put_nowait((key, loop.time()))
        return answers[key].pop(0)

    pace = Pace(rest_s=0.0, rest_per_object_s=0.01)
    queue = WorkQueue(work, pace, num_objects={"a": 100, "b": 0}.__getitem__)
    task = asyncio.create_task(queue.run())
    queue.add("a")
    first, second = [await asyncio.wait_for(ended.get(), 5) for _ in range(2)]
    assert second[1] - first[1] < 1.0
    for _ in range(10):
        queue.add("a")
    queue.add("b")
    assert (await asyncio.wait_for(ended.get(), 5))[0] == "b"
    last = await asyncio.wait_for(ended.get(), 5)
    assert last[1] - second[1] >= 1.0
    await asyncio.sleep(0)
    assert queue.depth == 0
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_failed_pass_is_repeated_and_the_answer_asks_for_the_next() -> None:
    results: list[float | Exception | None] = [Unavailable(503, "", "down"), ZeroDivisionError("defect"), 0.0, None]
    seen, failures, num_passes = asyncio.Queue[str](), [], 0

    async def work(key: str) -> float | None:
        nonlocal num_passes
        result = results[num_passes]
        num_passes += 1
        seen.put_nowait(key)
        if isinstance(result, Exception):
            raise result
        return result

    queue = WorkQueue(work, PACE, failed=lambda: failures.append(1))
    task = asyncio.create_task(queue.run())
    queue.add("a")
    for _ in results:
        assert await asyncio.wait_for(seen.get(), 5) == "a"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(failures) == 2
