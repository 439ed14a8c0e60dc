"""`Cluster` over HTTP: kubernetes.aio's ApiClient for connection, TLS and tokens, plain JSON for the bodies.

The client's generated models are left out on purpose: parsing one pod into them costs more than creating it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient

from hulk_operator import names
from hulk_operator.cluster.errors import ClusterError, Gone, Unavailable, error_of
from hulk_operator.cluster.protocol import Change, Listing, Object
from hulk_operator.cluster.resources import PODS, ApiResource
from hulk_operator.cluster.server_clock import ServerClock

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
REQUEST_SECONDS: Final = 60.0
WATCH_SECONDS: Final = 120
WATCH_LATE_SECONDS: Final = 30.0
"""A watch that says nothing, not even its end, for so much longer has lost its connection, and nobody told."""
LOG_SECONDS: Final = 10.0  # of a node that does not answer
TAIL_SECONDS: Final = 30.0
MAX_LOG_BYTES: Final = 8192
NUM_THROTTLED_TRIES: Final = 5
TOO_MANY_REQUESTS: Final = 429
PAGE_OBJECTS: Final = 250
"""Of a listing at a time: two megabytes of pods, which the event loop reads in some 20 ms."""
Query = Mapping[str, str]


class ApiCluster:
    """The API server behind an ApiClient, which it closes (see `Cluster` for the contract).

    `wrote` is told verb and plural of every write that is sent; `clock` is the server's, as its answers tell it.
    """

    def __init__(self, client: ApiClient, wrote: Callable[[str, str], None] = lambda verb, plural: None) -> None:
        self.clock = ServerClock()
        self._client = client
        self._wrote = wrote
        self._client.user_agent = names.FIELD_MANAGER

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        return await self._send("GET", resource.path(namespace, name))

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Listing:
        found = [page async for page in self.pages(resource, namespace, labels=labels, fields=fields)]
        return Listing(tuple(item for page in found for item in page.items), found[0].resource_version)

    async def pages(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Listing]:
        of_kind = {"apiVersion": resource.api_version, "kind": resource.kind}  # a list's items do not say it
        query = {"limit": str(PAGE_OBJECTS), **_selectors(labels, fields)}
        while True:
            found = await self._send("GET", resource.path(namespace), query)
            items = tuple({**of_kind, **item} for item in found.get("items") or ())
            yield Listing(items, found["metadata"]["resourceVersion"])
            if not (token := found["metadata"].get("continue")):
                return
            query["continue"] = token

    async def version(self, resource: ApiResource, namespace: str | None = None) -> str:
        found = await self._send("GET", resource.path(namespace), {"limit": "1"})
        version: str = found["metadata"]["resourceVersion"]
        return version

    async def watch(
        self,
        resource: ApiResource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
    ) -> AsyncIterator[Change]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            "resourceVersion": resource_version,
        }
        url = _url(resource.path(namespace), {**query, **_selectors(labels, fields)})
        timeout = aiohttp.ClientTimeout(total=None, sock_read=WATCH_SECONDS + WATCH_LATE_SECONDS)
        response = await self._open("GET", url, None, JSON, timeout)
        try:
            if response.status >= 300:
                raise error_of(response.status, _status_object(await response.text()))
            async for line in _lines(response.content):
                yield _change(json.loads(line))
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(0, "NoConnection", f"watch of {resource.plural}: {error!r}") from error
        finally:
            response.close()

    async def create(self, resource: ApiResource, body: Object) -> Object:
        self._wrote("create", resource.plural)
        path = resource.path(body["metadata"].get("namespace"))
        return await self._send("POST", path, {"fieldManager": names.FIELD_MANAGER}, body)

    async def try_create(self, resource: ApiResource, body: Object) -> None:
        path = resource.path(body["metadata"].get("namespace"))
        query = {"fieldManager": names.FIELD_MANAGER, "dryRun": "All", "fieldValidation": "Strict"}
        await self._send("POST", path, query, body)

    async def patch(
        self,
        resource: ApiResource,
        name: str,
        namespace: str | None,
        change: Mapping[str, Any],
        *,
        subresource: str | None = None,
        resource_version: str | None = None,
    ) -> Object:
        self._wrote("patch", resource.plural)
        body = dict(change)
        if resource_version is not None:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": resource_version}
        path = resource.path(namespace, name, subresource)
        return await self._send("PATCH", path, {"fieldManager": names.FIELD_MANAGER}, body, MERGE_PATCH)

    async def apply(
        self,
        resource: ApiResource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        subresource: str | None = None,
    ) -> Object:
        self._wrote("apply", resource.plural)
        path = resource.path(namespace, name, subresource)
        metadata = {**body.get("metadata", {}), "name": name}
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}
        return await self._send("PATCH", path, {"fieldManager": field_manager, "force": "true"}, whole, APPLY_PATCH)

    async def delete(
        self,
        resource: ApiResource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        self._wrote("delete", resource.plural)
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._send("DELETE", resource.path(namespace, name), body=options)

    async def delete_all(self, resource: ApiResource, namespace: str, *, labels: str) -> None:
        self._wrote("delete", resource.plural)
        options = {"propagationPolicy": "Background"}
        await self._send("DELETE", resource.path(namespace), _selectors(labels, ""), options)

    async def log(
        self,
        pod: str,
        namespace: str,
        *,
        container: str,
        tail_lines: int,
        since_s: int | None = None,
        timestamps: bool = False,
    ) -> tuple[str, ...]:
        asked = {"container": container, "tailLines": str(tail_lines), "limitBytes": str(MAX_LOG_BYTES)}
        asked |= {} if since_s is None else {"sinceSeconds": str(since_s)}
        asked |= {"timestamps": "true"} if timestamps else {}
        lines = self._lines(namespace, pod, asked, aiohttp.ClientTimeout(total=LOG_SECONDS))
        return tuple([line async for line in lines])

    async def logs(
        self, namespace: str, pod: str, *, container: str = "", follow: bool = False, tail_lines: int | None = None
    ) -> AsyncIterator[str]:
        """Lines of a container's log as they come; only the CLI follows logs, so it is no verb of `Cluster`."""
        asked = {"container": container, "follow": "true" if follow else "", "tailLines": str(tail_lines or "")}
        limit = aiohttp.ClientTimeout(total=None if follow else REQUEST_SECONDS)
        async for line in self._lines(namespace, pod, {key: value for key, value in asked.items() if value}, limit):
            yield line

    async def tail(self, path: str, query: Query, max_bytes: int) -> str:
        """The end of the text at a path, as of a log or of what a pod serves behind the API server; no verb either."""
        response = await self._open("GET", _url(path, query), None, JSON, aiohttp.ClientTimeout(total=TAIL_SECONDS))
        try:
            if response.status >= 300:
                raise error_of(response.status, _status_object(await response.text()))
            end = bytearray()
            async for chunk in response.content.iter_any():
                end += chunk
                del end[:-max_bytes]
            return end.decode("utf-8", errors="replace")
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(0, "NoConnection", f"{path}: {error!r}") from error
        finally:
            response.close()

    async def _lines(self, namespace: str, pod: str, query: Query, limit: aiohttp.ClientTimeout) -> AsyncIterator[str]:
        url = _url(PODS.path(namespace, pod, "log"), query)
        response = await self._open("GET", url, None, JSON, limit)
        try:
            if response.status >= 300:
                raise error_of(response.status, _status_object(await response.text()))
            async for line in _lines(response.content):
                yield line.decode("utf-8", errors="replace")
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(0, "NoConnection", f"log of {pod}: {error!r}") from error
        finally:
            response.close()

    async def _send(
        self, method: str, path: str, query: Query | None = None, body: Any = None, content_type: str = JSON
    ) -> Object:
        """One request and its JSON answer; waits as told while the server is too busy."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        url = _url(path, query or {})
        for remaining in reversed(range(NUM_THROTTLED_TRIES)):
            try:
                response = await self._open(method, url, body, content_type, timeout)
                text = await response.text()
            except (aiohttp.ClientError, OSError) as error:
                raise Unavailable(0, "NoConnection", f"{method} {path}: {error!r}") from error
            if response.status == TOO_MANY_REQUESTS and remaining:
                await asyncio.sleep(_retry_after_s(response.headers.get("Retry-After", "")))
                continue
            if response.status >= 300:
                raise error_of(response.status, _status_object(text))
            answer: Object = json.loads(text)
            return answer
        raise AssertionError("the last try returns or raises")

    async def _open(
        self, method: str, url: str, body: Any, content_type: str, limit: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": f"{JSON}, */*;q=0.1", "Content-Type": content_type, **self._client.default_headers}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], url, method, body)
        address = self._client.configuration.host + url
        asked_at_s = self.clock.monotonic()
        try:
            answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, address, headers=headers, body=body, _request_timeout=limit
            )
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(0, "NoConnection", f"{method} {url}: {error!r}") from error
        response: aiohttp.ClientResponse = answer.response
        self.clock.heard(response.headers.get("Date"), asked_at_s)
        return response


def _url(path: str, query: Query) -> str:
    return f"{path}?{urlencode(query)}" if query else path


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: a pod may have more than a megabyte, aiohttp's own lines have 128 KiB at most."""
    rest = bytearray()
    async for chunk in content.iter_any():
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield bytes(rest + line)
            rest.clear()
        rest += last
    if rest:
        yield bytes(rest)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    asked = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in asked.items() if value}


def _retry_after_s(header: str) -> float:
    return float(header) if header.isdigit() else 1.0


def _status_object(text: str) -> Object:
    """The `Status` in an error's body; proxies and dying servers send other things."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _change(event: Object) -> Change:
    if event["type"] != "ERROR":
        return Change(event["type"], event["object"])
    status = event["object"]
    error: ClusterError = error_of(int(status.get("code") or 500), status)
    if error.reason == "Expired":
        raise Gone(error.status, error.reason, error.message)
    raise error
