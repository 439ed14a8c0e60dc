"""Kopf against an API server that does not answer as it should: the operator goes on, or ends and is started again."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import kopf
import pytest
import pytest_asyncio
from aiohttp import web
from hulk_operator import names
from hulk_operator.cluster import NODES, Unavailable, client, connect
from hulk_operator.handlers.watches import MAX_END_S, Watches, settings
from hulk_operator.watched import Store
from views import job

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
GROUP = f"/apis/{names.GROUP}/{names.VERSION}"
NUM_FAILURES = 9  # one more than Kopf would bear
PROGRAM = """
import asyncio, kopf
from hulk_operator.handlers.watches import Watches, settings
from hulk_operator.watched import Store
chosen = settings()
chosen.process.ultimate_exiting_timeout = 0.5
registry = Watches(Store(), lambda _: None, lambda: None).registry()
asyncio.run(kopf.operator(registry=registry, settings=chosen, standalone=True, clusterwide=True))
"""
KINDS = {names.JOB_PLURAL: True, names.SWEEP_PLURAL: True, names.PROFILE_PLURAL: False, names.TOPOLOGY_PLURAL: False}


def resources(kinds: dict[str, bool], **version: str) -> dict[str, Any]:
    """A discovery document; a kind's value says whether it is namespaced."""
    verbs = ["list", "watch", "patch"]
    rows = [
        {"name": kind, "singularName": "", "kind": kind, "namespaced": inside, "verbs": verbs}
        for kind, inside in kinds.items()
    ]
    return {"resources": rows, **version}


class ApiServer:
    """Tells what it serves; `answer` decides what becomes of a listing of jobs."""

    def __init__(self) -> None:
        self.num_listings = 0
        self.answer: Answer = self.empty

    async def handle(self, request: web.Request) -> web.StreamResponse:
        version = {"groupVersion": names.GROUP, "version": names.VERSION}
        group = {"name": names.GROUP, "versions": [version], "preferredVersion": version}
        documents = {
            "/api": {"versions": ["v1"]},
            "/api/v1": resources({"nodes": False, "namespaces": False}),
            "/apis": {"groups": [group]},
            GROUP: resources(KINDS),
        }
        if request.path in documents:
            return web.json_response(documents[request.path])
        if "watch" in request.query:
            await asyncio.Event().wait()
        if request.path == f"{GROUP}/{names.JOB_PLURAL}":
            self.num_listings += 1
            return await self.answer(request)
        return await self.empty(request)

    async def empty(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})


@pytest_asyncio.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    """An API server that Kopf finds by its kubeconfig."""
    server = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    where = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    user = {"name": "x", "user": {"token": "x"}}
    config = {"current-context": "x", "clusters": [where], "contexts": [context], "users": [user]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield server
    await runner.cleanup()


async def told(store: Store) -> None:
    """Kopf as the operator runs it, with shorter pauses, until it has told of the job."""
    registry = Watches(store, lambda _: None, lambda: None).registry()
    chosen = settings(first_pause_s=0.001)
    running = asyncio.ensure_future(
        kopf.operator(registry=registry, settings=chosen, standalone=True, clusterwide=True)
    )
    async with asyncio.timeout(30):
        while store.job("lab/demo") is None:
            assert not running.done()
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.wait([running])


async def test_a_watch_whose_connection_is_gone_unsaid_ends(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a load balancer that forgot it: nothing comes any more, not even the end that was asked for."""
    assert client.WATCH_SECONDS + client.WATCH_LATE_SECONDS <= 150
    monkeypatch.setattr(client, "WATCH_SECONDS", 0)
    monkeypatch.setattr(client, "WATCH_LATE_SECONDS", 0.2)
    cluster = await connect(os.environ["KUBECONFIG"])
    try:
        with pytest.raises(Unavailable, match="Timeout on reading data"):
            async with asyncio.timeout(10):
                await anext(cluster.watch(NODES))
    finally:
        await cluster.close()


@pytest.mark.parametrize("status", [0, 403, 503])
async def test_a_listing_that_fails_is_repeated_until_it_is_answered(api: ApiServer, status: int) -> None:
    async def at_last(request: web.Request) -> web.StreamResponse:
        if api.num_listings > NUM_FAILURES:
            return web.json_response({"items": [job().wire()], "metadata": {"resourceVersion": "7"}})
        assert request.transport is not None
        if not status:
            request.transport.close()
        return web.json_response({"kind": "Status", "code": status}, status=status or 500)

    api.answer = at_last
    await told(Store())


async def test_what_kopf_takes_for_fatal_ends_the_process(api: ApiServer) -> None:
    """Left alone, its other watches may keep it for ten minutes."""

    async def gone(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    api.answer = gone
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stderr=asyncio.subprocess.DEVNULL)
    try:
        assert await asyncio.wait_for(process.wait(), 60) != 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert settings().process.ultimate_exiting_timeout == MAX_END_S
