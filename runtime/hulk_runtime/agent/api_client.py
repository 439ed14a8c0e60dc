"""The agent's three requests to the API server: list, watch and patch its own NodeProfile, nothing else.

Plain HTTP instead of a Kubernetes client: one object of one kind is all there is, and an agent runs on every node.
"""

import asyncio
import json
import logging
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from hulk_runtime import names
from hulk_runtime.agent.server_clock import ServerClock
from hulk_runtime.agent.settings import Settings

log = logging.getLogger(__name__)

KIND: Final = "NodeProfile"
APPLY: Final = "application/apply-patch+yaml"
COLLECTION: Final = f"/apis/{names.API_VERSION}/nodeprofiles"
WATCH_S: Final = 300
REQUEST_S: Final = 20.0
MAX_LINE_BYTES: Final = 4 << 20  # one watch event; an object is at most 1.5 MiB
MIN_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 15.0
Profile = Mapping[str, Any]


class ApiError(Exception):
    """The API server was not reached or refused; the message says which."""


@dataclass(slots=True)
class Api:
    """The API server, for one node's profile. `clock` is the server's, as its answers tell it."""

    settings: Settings
    session: aiohttp.ClientSession
    num_errors: int = 0
    clock: ServerClock = field(default_factory=ServerClock)

    async def follow(self) -> AsyncIterator[Profile | None]:
        """The profile now and after every change, None while there is none; reconnects for as long as it is read."""
        backoff_s = MIN_BACKOFF_S
        while True:
            try:
                async for profile in self._list_and_watch():
                    backoff_s = MIN_BACKOFF_S
                    yield profile
            except (ApiError, aiohttp.ClientError, OSError, ValueError) as error:
                self.num_errors += 1
                log.warning("watching NodeProfile %s: %r; again in %.1f s", self.settings.node, error, backoff_s)
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    async def apply_status(self, status: Mapping[str, Any]) -> None:
        """Own exactly these fields of the profile's status. `ApiError` when the server does not take them."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.settings.node},
            "status": status,
        }
        path = f"{COLLECTION}/{self.settings.node}/status?fieldManager={names.AGENT_FIELD_MANAGER}&force=true"
        headers = {**self._headers(), "Content-Type": APPLY}
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        url = self.settings.api_server + path
        asked_at_s = self.clock.monotonic()
        try:
            async with self.session.patch(url, data=json.dumps(body), headers=headers, timeout=timeout) as response:
                self.clock.heard(response.headers.get("Date"), asked_at_s)
                if response.status >= 300:
                    raise ApiError(f"status {response.status}: {(await response.text())[:500]}")
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(repr(error)) from error

    async def _list_and_watch(self) -> AsyncIterator[Profile | None]:
        async with self._get({}, aiohttp.ClientTimeout(total=REQUEST_S)) as response:
            listing = json.loads(await _text(response))
        yield listing["items"][0] if listing["items"] else None
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            "resourceVersion": listing["metadata"]["resourceVersion"],
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=WATCH_S + REQUEST_S)
        async with self._get(query, timeout) as response:
            if response.status >= 300:
                raise ApiError(f"status {response.status}: {(await response.text())[:500]}")
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":  # the version is too old: list again
                    raise ApiError(str(event["object"].get("message", "watch ended")))
                if event["type"] != "BOOKMARK":
                    yield None if event["type"] == "DELETED" else event["object"]

    @asynccontextmanager
    async def _get(
        self, query: Mapping[str, str], limit: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        own = {"fieldSelector": f"metadata.name={self.settings.node}"}
        url = self.settings.api_server + COLLECTION
        asked_at_s = self.clock.monotonic()
        async with self.session.get(url, params={**own, **query}, headers=self._headers(), timeout=limit) as response:
            self.clock.heard(response.headers.get("Date"), asked_at_s)
            yield response

    def _headers(self) -> dict[str, str]:
        """The token is read every time: the kubelet replaces the file before it expires."""
        token = self.settings.token_file.read_text().strip()
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}


def open_session(settings: Settings) -> aiohttp.ClientSession:
    """A session that trusts the cluster's authority and takes long watch lines."""
    authority = settings.authority_file
    trust = ssl.create_default_context(cafile=str(authority)) if authority else ssl.create_default_context()
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust, limit=4), read_bufsize=MAX_LINE_BYTES)


async def _text(response: aiohttp.ClientResponse) -> str:
    text = await response.text()
    if response.status >= 300:
        raise ApiError(f"status {response.status}: {text[:500]}")
    return text
