"""The HTTP side of the stub.

What it does not know it refuses, so that no figure is measured on a misunderstanding: a query parameter, a field of a
selector, a media type other than whole objects as JSON, a patch that is neither a merge nor a forced apply.
"""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from bench.scale.meter import METER_PATH, Meter
from bench.scale.stub import selectors, writes
from bench.scale.stub.errors import ApiError, bad_request
from bench.scale.stub.kinds import discovery
from bench.scale.stub.reads import LIST_QUERY, Reads
from bench.scale.stub.store import Object, Store
from bench.scale.stub.target import Target, check_media_type, check_query, target_of

MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
BOOKMARK_S: Final = 60.0
_WRITE_QUERY: Final = frozenset(("fieldManager", "fieldValidation", "dryRun", "force"))
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Server:
    """One API server over a store. What the meter has counted is at `METER_PATH`."""

    def __init__(self, store: Store, bookmark_s: float = BOOKMARK_S) -> None:
        self._store = store
        self._meter = Meter()
        self._reads = Reads(store, self._meter, bookmark_s)

    def app(self) -> web.Application:
        """For aiohttp."""
        app = web.Application(client_max_size=4 << 20)
        app.router.add_get(METER_PATH, self._counted)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _counted(self, _: web.Request) -> web.Response:
        return web.json_response(self._meter.snapshot())

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return self._json(request, error.body(), error.status)
        except selectors.SelectorError as error:
            return self._json(request, bad_request(str(error)).body(), 400)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (document := discovery(request.path)) is not None:
            return self._json(request, document)
        target = target_of(request.path)
        if target is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        check_media_type(request)
        if request.method == "GET" and target.name:
            return self._bytes(request, writes.found(self._store, target).body)
        if request.method == "GET":
            is_watch = request.query.get("watch") in ("1", "true")
            return await (self._reads.watch if is_watch else self._reads.page)(request, target)
        content = await request.read()
        body = json.loads(content) if content else {}
        return self._json(request, *self._write(request, target, body))

    def _write(self, request: web.Request, target: Target, body: Object) -> tuple[Object, int]:
        """The answer to a write, and its status."""
        query, method = request.query, request.method
        if method == "DELETE" and not target.name:
            return self._delete_all(request, target, body), 200
        check_query(query, _WRITE_QUERY)
        manager = query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0]
        if method == "DELETE":
            return writes.delete(self._store, target, body), 200
        if method == "POST" and not target.name:
            dry_run = query.get("dryRun") == "All"
            return writes.create(self._store, target, body, manager, dry_run=dry_run), 201
        if method == "PATCH" and target.name and request.content_type == MERGE:
            return writes.merge(self._store, target, body, manager), 200
        if method == "PATCH" and target.name and request.content_type == APPLY and query.get("force") == "true":
            return writes.apply(self._store, target, body, manager), 200
        raise ApiError(405, "MethodNotAllowed", f"{method} of {request.content_type} is not served here")

    def _delete_all(self, request: web.Request, target: Target, body: Object) -> Object:
        check_query(request.query, LIST_QUERY)
        for record in self._reads.matching(target, request.query):
            fields = record.fields
            one = Target(target.resource, fields["metadata.namespace"], fields["metadata.name"])
            writes.delete(self._store, one, body)
        return _SUCCESS

    def _json(self, request: web.Request, body: Object, status: int = 200) -> web.Response:
        return self._bytes(request, json.dumps(body, separators=(",", ":")).encode(), status)

    def _bytes(self, request: web.Request, body: bytes, status: int = 200) -> web.Response:
        self._meter.add(request, len(body))
        return web.Response(body=body, status=status, content_type="application/json")
