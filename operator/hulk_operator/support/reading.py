"""Reads collections, objects and texts for a bundle: bounded, and what cannot be read is noted with the reason."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from hulk_operator.cluster import ApiResource, ClusterError, Forbidden, Listing, Object
from hulk_operator.support.archive import Bundle
from hulk_operator.support.redaction import redact_text
from hulk_operator.support.trimming import Trim

MAX_OBJECT_BYTES: Final = 15 << 20  # of one collection
MAX_TEXT_BYTES: Final = 1 << 20  # of one log, or of what one pod serves as metrics


class Server(Protocol):
    """What of a cluster a bundle is made of (see `cluster.Cluster` and `cluster.ApiCluster`)."""

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        """One object."""
        ...

    def pages(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Listing]:
        """All matching objects, in pieces."""
        ...

    async def tail(self, path: str, query: Mapping[str, str], max_bytes: int) -> str:
        """The end of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads from `server`; `namespace` is the one that is read where not all may be."""

    server: Server
    bundle: Bundle
    namespace: str

    async def everywhere(self, what: str, resource: ApiResource, trim: Trim, *, labels: str = "") -> list[Object]:
        """Objects of all namespaces, or of the user's where that is all they may list."""
        try:
            return await self._list(what, resource, None, trim, labels=labels)
        except Forbidden as error:
            self.bundle.lacks(f"{what} of other namespaces than {self.namespace}", error.message)
        except ClusterError as error:
            self.bundle.lacks(what, error.message)
            return []
        return await self.inside(what, resource, self.namespace, trim, labels=labels)

    async def inside(
        self,
        what: str,
        resource: ApiResource,
        namespace: str | None,
        trim: Trim,
        *,
        labels: str = "",
        fields: str = "",
    ) -> list[Object]:
        """Objects of one namespace, or of a kind that has none."""
        try:
            return await self._list(what, resource, namespace, trim, labels=labels, fields=fields)
        except ClusterError as error:
            self.bundle.lacks(what, error.message)
            return []

    async def one(self, what: str, resource: ApiResource, name: str, namespace: str | None, trim: Trim) -> list[Object]:
        """One object; none where it cannot be read."""
        try:
            return [trim(await self.server.get(resource, name, namespace))]
        except ClusterError as error:
            self.bundle.lacks(what, error.message)
            return []

    async def text(self, what: str, path: str, query: Mapping[str, str] | None = None) -> str | None:
        """The end of a text without credentials; None where it cannot be read."""
        try:
            return redact_text(await self.server.tail(path, query or {}, MAX_TEXT_BYTES))
        except ClusterError as error:
            self.bundle.lacks(what, error.message)
            return None

    async def _list(
        self,
        what: str,
        resource: ApiResource,
        namespace: str | None,
        trim: Trim,
        *,
        labels: str = "",
        fields: str = "",
    ) -> list[Object]:
        found: list[Object] = []
        num_bytes = 0
        async for page in self.server.pages(resource, namespace, labels=labels, fields=fields):
            for item in page.items:
                trimmed = trim(item)
                num_bytes += len(json.dumps(trimmed))
                if num_bytes > MAX_OBJECT_BYTES:
                    self.bundle.lacks(f"{what} after the first {len(found)}", f"more than {MAX_OBJECT_BYTES} bytes")
                    return found
                found.append(trimmed)
        return found
