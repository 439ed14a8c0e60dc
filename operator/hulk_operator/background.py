"""The operator's tasks beside each other. One that breaks is never only a traceback: it is counted, and started again.

    restarted    soon at first, later each time; broken too often in a row, or where nothing may go on without it,
    ends         the operator by BackgroundError: Kubernetes starts another one, and a start loses nothing

What a task is expected to end with (`raises`, as a lost lease) passes. /metrics serves the counts as
`hulk_operator_background_failures_total`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

log = logging.getLogger(__name__)

MAX_RESTARTS: Final = 5
"""In a row."""
FIRST_PAUSE_S: Final = 0.5
WELL_S: Final = 300.0
"""A task that ran so long before it broke begins to count anew."""

T = TypeVar("T")
Body = Callable[[], Coroutine[Any, Any, None]]
_failures: Counter[str] = Counter()


class BackgroundError(Exception):
    """A task that the operator cannot do without broke."""


def failures() -> Mapping[str, int]:
    """How often each task that this process has begun has broken."""
    return dict(_failures)


class Tasks:
    """Tasks that end with the block of `running`."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(
        self, name: str, body: Body, *, is_restarted: bool = True, raises: tuple[type[Exception], ...] = ()
    ) -> "asyncio.Task[None]":
        """Run `body`, and again after a break. One that may end by itself does."""
        _failures.setdefault(name, 0)
        return self._group.create_task(_kept(name, body, is_restarted, raises), name=name)


@asynccontextmanager
async def running() -> AsyncIterator[Tasks]:
    """Tasks beside the block; when one ends with an error, all end, and it is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield Tasks(group)
    except BaseExceptionGroup as several:
        raise _first(several) from None


async def first_of(*works: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> tuple[int, Any] | None:
    """The number and the answer of the work that ended first, or what it raises; None when the time is up.

    Of several that ended together, the first in order. The others are cancelled, and over when this returns.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        ended = [(number, task) for number, task in enumerate(tasks) if task in done]
        return (ended[0][0], ended[0][1].result()) if ended else None
    finally:
        await _cancelled(tasks)


async def all_of(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Do all of it side by side; the first error cancels the others and is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _cancelled(tasks)


async def ends_operator(name: str, work: Coroutine[Any, Any, T]) -> T:
    """Work that nothing may go on without: BackgroundError for whatever it raises."""
    try:
        return await work
    except Exception as error:
        _count(name, error, "and the operator ends")
        raise BackgroundError(f"the task {name} broke: {error!r}") from error


async def _kept(name: str, body: Body, is_restarted: bool, raises: tuple[type[Exception], ...]) -> None:
    num_failures, loop = 0, asyncio.get_running_loop()
    while True:
        begun_s = loop.time()
        try:
            return await body()
        except raises:
            raise
        except Exception as error:
            num_failures = 1 if loop.time() - begun_s > WELL_S else num_failures + 1
            if not is_restarted or num_failures > MAX_RESTARTS:
                _count(name, error, "and the operator ends")
                raise BackgroundError(f"the task {name} broke: {error!r}") from error
            _count(name, error, "and is started again")
        await asyncio.sleep(FIRST_PAUSE_S * 2 ** (num_failures - 1))


def _count(name: str, error: Exception, so: str) -> None:
    """Of many breaks ever fewer are logged."""
    _failures[name] += 1
    number = _failures[name]
    if number & (number - 1) == 0:
        log.error("the task %s broke (%d so far) %s: %r", name, number, so, error, exc_info=error)


async def _cancelled(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _first(several: BaseExceptionGroup) -> BaseException:
    """Of errors, also of groups in groups, the first: the others are what it has led to."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
