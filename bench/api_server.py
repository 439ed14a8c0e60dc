"""A bare asyncio client of the API server: what any client has to pay, without Hulk's code in the way."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

IN_FLIGHT = 32
TOO_MANY_REQUESTS = 429


@dataclass(slots=True)
class Bare:
    """One connection pool and the API server's address."""

    session: aiohttp.ClientSession
    url: str

    async def create(self, path: str, body: dict[str, Any]) -> None:
        """POST one object; RuntimeError with the server's words when it is refused."""
        async with self.session.post(self.url + path, json=body) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise RuntimeError(f"POST {path}: {answer.status} {text[:500]}")

    async def create_all(self, path: str, bodies: Sequence[dict[str, Any]]) -> float:
        """Create all objects with IN_FLIGHT requests at a time; seconds from the first request to the last answer."""
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(body: dict[str, Any]) -> None:
            async with gate:
                await self.create(path, body)

        start = time.monotonic()
        await asyncio.gather(*(one(body) for body in bodies))
        return time.monotonic() - start

    async def delete(self, path: str) -> None:
        """DELETE one object."""
        async with self.session.delete(self.url + path, json={"propagationPolicy": "Background"}) as answer:
            await answer.read()

    async def delete_all(self, path: str, selector: str) -> None:
        """Delete a collection at once and wait until it is empty; again when the server gave up halfway."""
        query = {"labelSelector": selector}
        while await self.matching(path, selector, limit=1):
            try:
                async with self.session.delete(self.url + path, params=query, json={"gracePeriodSeconds": 0}) as answer:
                    await answer.read()
            except aiohttp.ServerDisconnectedError:  # a busy server needs longer than it gives a request
                continue
            await asyncio.sleep(0.1)

    async def matching(self, path: str, selector: str, limit: int = 0) -> list[dict[str, Any]]:
        """The objects that match, at most `limit` of them (0: all)."""
        return (await self._list(path, selector, limit))["items"]  # type: ignore[no-any-return]

    async def _list(self, path: str, selector: str, limit: int = 0) -> dict[str, Any]:
        """A listing; tried again while the storage of a new kind is not ready."""
        query = {"labelSelector": selector, "limit": str(limit)}
        while True:
            async with self.session.get(self.url + path, params=query) as answer:
                if answer.status != TOO_MANY_REQUESTS:
                    answer.raise_for_status()
                    listing: dict[str, Any] = await answer.json()
                    return listing
            await asyncio.sleep(0.2)

    async def watch(self, path: str, selector: str = "", ready: asyncio.Event | None = None) -> AsyncIterator[Any]:
        """Events of a collection without end, the present objects first; `ready` is set when it has answered.

        From the version of a listing on: a watch without one fails when the server's cache is more than 3 s behind. It
        begins anew when the server ends it.
        """
        timeout = aiohttp.ClientTimeout(total=None)
        while True:
            listing = await self._list(path, selector)
            for item in listing["items"]:
                yield {"type": "ADDED", "object": item}
            query = {"watch": "1", "labelSelector": selector, "resourceVersion": listing["metadata"]["resourceVersion"]}
            async with self.session.get(self.url + path, params=query, timeout=timeout, read_bufsize=2**22) as answer:
                answer.raise_for_status()
                if ready is not None:
                    ready.set()
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch of {path}: {event['object'].get('message')}")
                    yield event


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[Bare]:
    """A Bare client from a kubeconfig with client certificates."""
    config = yaml.safe_load(kubeconfig.read_text())  # noqa: ASYNC240 - a small file, before anything is measured
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=_decode(cluster, "certificate-authority").decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(_decode(user, "client-certificate") + b"\n" + _decode(user, "client-key"))
        pair.flush()
        context.load_cert_chain(pair.name)
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT + 2, ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Bare(session, cluster["server"])


def _decode(section: dict[str, str], key: str) -> bytes:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"])
    return Path(section[key]).read_bytes()


@dataclass(slots=True)
class Timeline:
    """When each pod was first seen, bound and running, by the monotonic clock of this process."""

    seen: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)

    def note(self, event: dict[str, Any], now: float) -> None:
        """Take in one watch event."""
        pod = event["object"]
        name = pod["metadata"]["name"]
        self.seen.setdefault(name, now)
        if pod["spec"].get("nodeName"):
            self.bound.setdefault(name, now)
        if pod.get("status", {}).get("phase") == "Running":
            self.running.setdefault(name, now)


@asynccontextmanager
async def watched(
    bare: Bare, namespace: str, selector: str, num_pods: int
) -> AsyncIterator[tuple[Timeline, asyncio.Task[None]]]:
    """Watch the pods of a selector; the task ends when all of them run."""
    timeline = Timeline()
    ready = asyncio.Event()

    async def follow() -> None:
        async for event in bare.watch(f"/api/v1/namespaces/{namespace}/pods", selector, ready):
            timeline.note(event, time.monotonic())
            if len(timeline.running) == num_pods:
                return

    task = asyncio.create_task(follow())
    await ready.wait()
    try:
        yield timeline, task
    finally:
        task.cancel()
