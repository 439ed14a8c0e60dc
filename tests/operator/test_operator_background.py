"""Tasks of the operator that break: each is started again, or ends the operator with a named error, and counted."""

import ast
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hulk_operator
import pytest
from fake_cluster import FakeCluster
from hulk_operator import background, event_loop_lag
from hulk_operator.background import BackgroundError
from hulk_operator.cluster import Change, Informer, Lease
from hulk_operator.handlers import operator
from hulk_operator.handlers.operator import Parts, run
from hulk_operator.handlers.settings import Settings
from hulk_operator.metrics import Health
from hulk_operator.planning.planner import Planner
from hulk_operator.probing import Prober
from hulk_operator.reconcile.polling import Workers
from hulk_operator.reconcile.work_queue import Pace, WorkQueue
from hulk_operator.watched import garbage
from hulk_operator.watched.informers import Informers

Body = Callable[..., Any]


class Quiet(FakeCluster):
    """Nothing happens in it."""

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Change]:
        await asyncio.Event().wait()
        raise AssertionError
        yield


class DefectError(Exception):
    """Of no kind that anybody expects."""


class Breaks:
    """A coroutine function that breaks at its first call, or always; later calls do what it did before."""

    def __init__(self, body: Body, *, always: bool = False, at: int = 1) -> None:
        self._body, self._always, self._at, self._num = body, always, at, 0
        self.went_on = asyncio.Event()

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._num += 1
        if self._always or self._num == self._at:
            raise DefectError("a bug")
        if self._num > self._at:
            self.went_on.set()
        return await self._body(*arguments, **options)

    def __get__(self, owner: object, _: type) -> Body:
        async def bound(*arguments: Any) -> Any:
            return await self(owner, *arguments)

        return bound


def names() -> Iterator[str]:
    """The tasks that the operator begins, as its source names them."""
    for path in Path(hulk_operator.__file__).parent.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            function = call.func
            if isinstance(function, ast.Attribute) and function.attr in ("start", "ends_operator") and call.args:
                first = call.args[0]
                if isinstance(first, ast.Constant):
                    yield str(first.value)


CALLS = ("requests", "logs", "links")
"""What is asked of workers, in the order in which it is begun."""
RESTARTED: dict[str, tuple[Any, str, int]] = {
    "jobs": (WorkQueue, "run", 1),
    "sweeps": (WorkQueue, "run", 2),
    **{name: (WorkQueue, "run", number) for number, name in enumerate(CALLS, 3)},
    "worker": (WorkQueue, "_work_on", 1),
    "planning": (Planner, "run", 1),
    "probing": (Prober, "run", 1),
    "informer": (Informer, "run", 1),
    "informers": (Informers, "run", 1),
    "garbage": (garbage, "lay_aside", 1),
    "resync": (operator, "_resync", 1),
    "event-loop-lag": (event_loop_lag, "measure", 1),
}
"""What each runs, and which call of it is the task's first."""


async def until_stopped(settings: object, parts: object, stop: asyncio.Event) -> None:
    """Kopf, which follows a real server only."""
    await stop.wait()


async def serving(_: Parts) -> None:
    """Nobody asks."""
    await asyncio.Event().wait()


def operating(serve: Any = serving) -> "asyncio.Task[None]":
    mine = Settings("me", lease_namespace="system", lease_s=3600)
    return asyncio.ensure_future(run(Quiet(), cast(Workers, None), mine, Health(), serve, lambda: datetime.now(UTC)))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are started again at once."""
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(operator, "_watch", until_stopped)


async def goes_on(running: "asyncio.Task[None]", breaks: Breaks) -> None:
    """The operator, until what broke runs again."""
    again = asyncio.ensure_future(breaks.went_on.wait())
    await asyncio.wait((running, again), timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert again.done()
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("name", sorted({*names(), *CALLS} - {"serving", "lease", "watches", "log level"}))
async def test_a_task_that_breaks_is_started_again_and_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, first_call = RESTARTED[name]
    breaks, before = Breaks(getattr(owner, attribute), at=first_call), background.failures().get(name, 0)
    monkeypatch.setattr(owner, attribute, breaks)
    await goes_on(operating(), breaks)
    assert background.failures()[name] == before + 1


async def test_what_answers_for_metrics_is_started_again() -> None:
    before, breaks = background.failures().get("serving", 0), Breaks(serving)
    await goes_on(operating(breaks), breaks)
    assert background.failures()["serving"] == before + 1


async def test_without_its_lease_an_operator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "hold", Breaks(Lease.hold))
    with pytest.raises(BackgroundError, match=r"^the task lease broke: DefectError\('a bug'\)$"):
        await asyncio.wait_for(operating(), 30)


async def test_without_its_watches_an_operator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    async def spawn_tasks(**_: object) -> list[Any]:
        return []

    watches = SimpleNamespace(spawn_tasks=spawn_tasks, run_tasks=Breaks(spawn_tasks, always=True))
    monkeypatch.setattr(operator, "kopf", watches)
    monkeypatch.setattr(operator, "kopf_settings", lambda: None)
    monkeypatch.setattr(operator.Watches, "registry", lambda _: None)
    with pytest.raises(BackgroundError, match=r"^the task watches broke: DefectError\('a bug'\)$"):
        await asyncio.wait_for(operating(), 30)


async def test_a_task_that_breaks_again_and_again_ends_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    before = background.failures().get("probing", 0)
    monkeypatch.setattr(Prober, "run", Breaks(Prober.run, always=True))
    with pytest.raises(BackgroundError, match="the task probing broke"):
        await asyncio.wait_for(operating(), 30)
    assert background.failures()["probing"] - before == background.MAX_RESTARTS + 1


async def test_a_key_whose_pass_breaks_its_worker_has_another_pass() -> None:
    passes, counted = asyncio.Queue[str](), iter([ZeroDivisionError("a bug")])

    async def work(key: str) -> None:
        passes.put_nowait(key)

    def num_objects(key: str) -> int:
        for error in counted:
            raise error
        return 0

    queue = WorkQueue(work, Pace(max_backoff_s=0.001, num_workers=1), num_objects=num_objects)
    running = asyncio.ensure_future(queue.run())
    queue.add("a")
    assert [await asyncio.wait_for(passes.get(), 10) for _ in range(2)] == ["a", "a"]
    running.cancel()
    await asyncio.wait([running])


async def test_of_works_side_by_side_the_first_counts_and_the_others_are_over() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def quick() -> str:
        return "done"

    assert await background.first_of(slow(), quick()) == (1, "done")
    assert ended.is_set()
    assert await background.first_of(slow(), timeout_s=0.001) is None
