"""An operator that cannot renew its lease: it stands down, and comes back, in the same process."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from fake_cluster import FakeCluster
from hulk_operator import names
from hulk_operator.cluster import HULK_JOBS, LEASES, ApiResource, Change, Object, Unavailable
from hulk_operator.handlers import operator
from hulk_operator.handlers.operator import Parts, run
from hulk_operator.handlers.settings import Settings
from hulk_operator.metrics import Health
from hulk_operator.reconcile.polling import Workers
from views import job

LEASE_S = 1


class Slow(FakeCluster):
    """While `is_slow` no lease is written: the server takes longer than the lease lasts."""

    is_slow = False

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Change]:
        await asyncio.Event().wait()
        raise AssertionError
        yield

    async def patch(self, resource: ApiResource, name: str, namespace: str | None, change: Any, **more: Any) -> Object:
        if resource is LEASES and self.is_slow:
            await asyncio.sleep(LEASE_S)
            raise Unavailable(0, "NoConnection", "too slow")
        return await super().patch(resource, name, namespace, change, **more)


@pytest.fixture
def terms(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Event]:
    """Kopf's place: an event for each term, set when it has ended."""
    begun: list[asyncio.Event] = []

    async def kopf(parts: Parts, acting: object, stop: asyncio.Event) -> None:
        ended = asyncio.Event()
        begun.append(ended)
        try:
            await stop.wait()
        finally:
            ended.set()

    monkeypatch.setattr(operator, "_watch", kopf)
    return begun


async def until(true: Mapping[str, Any]) -> None:
    """Wait until every condition holds."""
    async with asyncio.timeout(30):
        while not all(condition() for condition in true.values()):
            await asyncio.sleep(0.01)


async def test_who_cannot_renew_stands_down_and_comes_back(terms: list[asyncio.Event]) -> None:
    cluster, found = Slow((HULK_JOBS, job().wire())), []

    async def serve(parts: Parts) -> None:
        found.append(parts)
        await asyncio.Event().wait()

    settings = Settings("me", lease_namespace="system", lease_s=LEASE_S)
    started = run(cluster, cast(Workers, None), settings, Health(), serve, lambda: datetime.now(UTC))
    running = asyncio.ensure_future(started)
    await until({"acts": lambda: len(terms) == 1})
    (parts,) = found
    assert parts.store.job("lab/demo") is not None
    cluster.is_slow = True
    await until({"term": terms[0].is_set, "stands by": lambda: parts.acting is None})
    assert not parts.lease.held
    assert parts.informers.synced  # and knows the cluster still
    assert parts.store.job("lab/demo") is None  # but follows no jobs, which another operator has now
    assert not running.done()
    cluster.is_slow = False
    await until({"acts again": lambda: len(terms) == 2})
    assert parts.lease.valid
    assert parts.store.job("lab/demo") is not None
    assert cluster.objects[LEASES.plural, "system", names.LEASE]["spec"]["leaseTransitions"] == 2
    running.cancel()
    await asyncio.wait([running])


async def test_kopf_is_told_that_it_stands_down_before_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it has the process killed some time later, whatever that does by then."""
    follows, told = asyncio.Event(), list[bool]()

    async def spawn_tasks(stop_flag: asyncio.Event, **_: Any) -> list[Any]:
        return [stop_flag]

    async def run_tasks(tasks: list[asyncio.Event], **_: Any) -> None:
        follows.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(tasks[0].is_set())
            raise

    monkeypatch.setattr(operator.kopf, "spawn_tasks", spawn_tasks)
    monkeypatch.setattr(operator.kopf, "run_tasks", run_tasks)
    cluster = Slow()

    async def serve(parts: Parts) -> None:
        await asyncio.Event().wait()

    settings = Settings("me", lease_namespace="system", lease_s=LEASE_S)
    started = run(cluster, cast(Workers, None), settings, Health(), serve, lambda: datetime.now(UTC))
    running = asyncio.ensure_future(started)
    await until({"follows": follows.is_set})
    cluster.is_slow = True
    await until({"stands down": lambda: told})
    assert told == [True]
    running.cancel()
    await asyncio.wait([running])


async def test_who_cannot_stand_down_is_killed(terms: list[asyncio.Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watches hang: an operator that follows half of the cluster is worse than none."""
    killed = asyncio.Event()
    monkeypatch.setattr(operator, "MAX_END_S", 0.01)
    monkeypatch.setattr(operator.os, "kill", lambda pid, number: killed.set())

    async def hangs(parts: Parts, acting: object, stop: asyncio.Event) -> None:
        terms.append(asyncio.Event())
        try:
            await stop.wait()
        finally:
            await killed.wait()

    monkeypatch.setattr(operator, "_watch", hangs)
    cluster = Slow()

    async def serve(parts: Parts) -> None:
        await asyncio.Event().wait()

    settings = Settings("me", lease_namespace="system", lease_s=LEASE_S)
    started = run(cluster, cast(Workers, None), settings, Health(), serve, lambda: datetime.now(UTC))
    running = asyncio.ensure_future(started)
    await until({"acts": lambda: len(terms) == 1})
    cluster.is_slow = True
    await asyncio.wait_for(killed.wait(), 30)
    running.cancel()
    await asyncio.wait([running])
