"""Writes of everyone but the operator, one after the other on a few connections: who writes does not wait."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from bench.api_server import Bare

NUM_CONNECTIONS: Final = 8
NOT_FOUND: Final = 404


@dataclass(slots=True)
class Writer:
    """A queue of writes; what is refused is counted and told."""

    bare: Bare
    num_written: int = 0
    num_failed: int = 0
    _queue: asyncio.Queue[tuple[str, str, Any, str]] = field(default_factory=asyncio.Queue)

    def apply(self, path: str, body: Any, manager: str) -> None:
        """Server-side apply."""
        query = f"?fieldManager={manager}&force=true"
        self._queue.put_nowait(("PATCH", path + query, body, "application/apply-patch+yaml"))

    def merge(self, path: str, body: Any, manager: str) -> None:
        """A merge patch."""
        self._queue.put_nowait(("PATCH", f"{path}?fieldManager={manager}", body, "application/merge-patch+json"))

    def create(self, path: str, body: Any) -> None:
        """A new object."""
        self._queue.put_nowait(("POST", path, body, "application/json"))

    def delete(self, path: str) -> None:
        """Without a grace period."""
        self._queue.put_nowait(("DELETE", path, {"gracePeriodSeconds": 0}, "application/json"))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_CONNECTIONS):
                group.create_task(self._write())

    async def _write(self) -> None:
        while True:
            method, path, body, content_type = await self._queue.get()
            try:
                await self._send(method, path, body, content_type)
            except (aiohttp.ClientError, OSError) as error:
                self._tell(f"{method} {path}: {error!r}")

    async def _send(self, method: str, path: str, body: Any, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        url = self.bare.url + path
        async with self.bare.session.request(method, url, data=json.dumps(body), headers=headers) as answer:
            text = await answer.text()
        self.num_written += 1
        if answer.status >= 300 and answer.status != NOT_FOUND:
            self._tell(f"{method} {path}: {answer.status} {text[:300]}")

    def _tell(self, message: str) -> None:
        self.num_failed += 1
        if self.num_failed & (self.num_failed - 1) == 0:
            sys.stderr.write(f"{self.num_failed} writes failed; {message}\n")
