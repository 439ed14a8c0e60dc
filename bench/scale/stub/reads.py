"""Lists in pages and watches with bookmarks, from a store, as the real API server answers them."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from hulk_operator import names
from hulk_operator.cluster import ApiResource

from bench.scale.meter import Meter
from bench.scale.stub.errors import bad_request, expired
from bench.scale.stub.store import Event, ExpiredError, Object, Record, Store
from bench.scale.stub.target import Target, check_query, matcher

GZIP_FROM_BYTES: Final = 128 * 1024
GZIP_LEVEL: Final = 1
MAX_SNAPSHOTS: Final = 64
"""Lists of which further pages may be asked for; older ones are expired."""
WATCH_S: Final = 1800
LIST_QUERY: Final = frozenset(
    ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch")
)
WATCH_QUERY: Final = frozenset(
    (
        "watch",
        "labelSelector",
        "fieldSelector",
        "resourceVersion",
        "resourceVersionMatch",
        "allowWatchBookmarks",
        "sendInitialEvents",
        "timeoutSeconds",
    )
)
Match = Callable[[Record], bool]


@dataclass(slots=True)
class Reads:
    """Answers for collections; `meter` counts what its user asks."""

    store: Store
    meter: Meter
    bookmark_s: float
    _snapshots: dict[str, tuple[int, list[Record]]] = field(default_factory=dict)

    def matching(self, target: Target, query: Mapping[str, str]) -> list[Record]:
        """The objects that are selected, in the order of their keys."""
        match = matcher(target.resource, query)
        return [record for record in self.store.collections[target.resource].sorted(target.prefix) if match(record)]

    async def page(self, request: web.Request, target: Target) -> web.Response:
        """One page; the pages of one list are all of its first page's moment."""
        check_query(request.query, LIST_QUERY)
        query, limit = request.query, int(request.query.get("limit") or 0)
        if query.get("resourceVersion") == "0":  # from the watch cache, which knows no pages
            limit = 0
        key, first = _continued(query)
        version, records = self._snapshot(key) if key else (self.store.version, self.matching(target, query))
        page = records[first : first + limit] if limit else records[first:]
        metadata: Object = {"resourceVersion": str(version)}
        if num_left := len(records) - first - len(page):
            metadata["continue"] = self._token(key, version, records, first + len(page))
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = num_left
        return await self._large(request, _listing(target.resource, metadata, page))

    def _snapshot(self, key: str) -> tuple[int, list[Record]]:
        if key not in self._snapshots:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        return self._snapshots[key]

    def _token(self, key: str, version: int, records: list[Record], first: int) -> str:
        key = key or secrets.token_hex(8)
        self._snapshots[key] = version, records
        while len(self._snapshots) > MAX_SNAPSHOTS:
            del self._snapshots[next(iter(self._snapshots))]
        return base64.urlsafe_b64encode(f"{key} {first}".encode()).decode()

    async def _large(self, request: web.Request, body: bytes) -> web.Response:
        """Compressed as the API server does it, beside the loop."""
        headers = {"Content-Type": "application/json"}
        if len(body) > GZIP_FROM_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
            body = await asyncio.to_thread(_gzip, body)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        self.meter.add(request, len(body))
        return web.Response(body=body, headers=headers)

    async def watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        """What happens from a version on, the present objects first where that is asked for."""
        query, collection = request.query, self.store.collections[target.resource]
        check_query(query, WATCH_QUERY)
        match = matcher(target.resource, query)
        cursor, sends_first = int(query.get("resourceVersion") or 0), query.get("sendInitialEvents") == "true"
        first: list[bytes] = []
        if sends_first or cursor == 0:
            first = [_line("ADDED", record.body) for record in self.matching(target, query)]
            cursor = self.store.version
        if sends_first:
            first.append(_bookmark(target.resource, cursor, ends_first=True))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.meter.add(request, 0)
        happened = asyncio.Event()
        collection.listeners.add(happened)
        try:
            await self._send(request, response, b"".join(first))
            await self._follow(request, response, target, match, cursor, happened)
        finally:
            collection.listeners.discard(happened)
        return response

    async def _follow(
        self,
        request: web.Request,
        response: web.StreamResponse,
        target: Target,
        match: Match,
        cursor: int,
        happened: asyncio.Event,
    ) -> None:
        """Until the watch's time is over, or what it has not sent yet is not known any more."""
        now = asyncio.get_running_loop().time
        ends_s = now() + float(request.query.get("timeoutSeconds") or WATCH_S)
        has_bookmarks = request.query.get("allowWatchBookmarks") == "true"
        bookmark_s = now() + self.bookmark_s if has_bookmarks else ends_s
        while now() < ends_s:
            happened.clear()
            try:
                events = self.store.collections[target.resource].after(cursor)
            except ExpiredError as error:
                await self._send(request, response, _line("ERROR", json.dumps(expired(str(error)).body()).encode()))
                return
            lines = [_seen(event, match) for event in events if event.record.key.startswith(target.prefix)]
            cursor = events[-1].record.version if events else cursor
            if has_bookmarks and now() >= bookmark_s:
                lines.append(_bookmark(target.resource, cursor := self.store.version))
                bookmark_s = now() + self.bookmark_s
            await self._send(request, response, b"".join(lines))
            with suppress(TimeoutError):
                async with asyncio.timeout(min(ends_s, bookmark_s) - now()):
                    await happened.wait()

    async def _send(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        if data:
            self.meter.add(request, len(data), requests=0)
            await response.write(data)


def _listing(resource: ApiResource, metadata: Object, page: list[Record]) -> bytes:
    """Items of built-in kinds do not say their kind."""
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    start = json.dumps(head, separators=(",", ":")).encode()[:-1]
    kind = f'"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
    cut = 1 if resource.group == names.GROUP else 1 + len(kind)
    items = b",".join(b"{" + record.body[cut:] for record in page)
    return b"".join((start, b',"items":[', items, b"]}\n"))


def _seen(event: Event, match: Match) -> bytes:
    """An event as a watch with a selector sees it: what begins or ceases to match is added or deleted."""
    matched = event.before is not None and match(event.before)
    if event.type == "DELETED" or not match(event.record):
        return _line("DELETED", event.record.body) if matched else b""
    return _line("MODIFIED" if matched else "ADDED", event.record.body)


def _line(kind: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def _bookmark(resource: ApiResource, version: int, *, ends_first: bool = False) -> bytes:
    metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
    if ends_first:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return _line("BOOKMARK", json.dumps(body, separators=(",", ":")).encode())


def _continued(query: Mapping[str, str]) -> tuple[str, int]:
    """The list that goes on, and the place in it."""
    token = query.get("continue")
    if not token:
        return "", 0
    try:
        key, first = base64.urlsafe_b64decode(token).decode().split()
        return key, int(first)
    except ValueError:
        raise bad_request("continue key is not valid") from None


def _gzip(body: bytes) -> bytes:
    packing = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packing.compress(body) + packing.flush()
