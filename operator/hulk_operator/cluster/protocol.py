"""The cluster as the rest of the operator sees it: eleven verbs over plain JSON objects, and the end of a log.

Everything above this room is tested against a fake of this protocol; the one real implementation is `client`.
"""

from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from hulk_operator.cluster.resources import ApiResource

Object = dict[str, Any]
"""One Kubernetes object as JSON. Objects that come from a Cluster are never changed in place."""

ORIGIN: Final[ContextVar[str]] = ContextVar("origin", default="")
"""Which step asks for the write in progress; for logs, metrics and tests, never for decisions."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a collection held at one moment, given by `resource_version`."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class Cluster(Protocol):
    """A Kubernetes API server. Every method raises a `ClusterError` (see `errors`) when it is not carried out.

    `namespace` is None for cluster-scoped kinds; in `list` and `watch` None means all namespaces. Selectors are in
    Kubernetes' own syntax. An answer is the object as the server has it after the request. A write that raises
    `Unavailable` may have been carried out all the same, so every caller must be able to repeat it.
    """

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        """One object; `NotFound` when it is not there."""
        ...

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Listing:
        """All matching objects, as of one moment."""
        ...

    def pages(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Listing]:
        """The same in pieces, all as of the first one's version; `Gone` when reading them takes too long."""
        ...

    async def version(self, resource: ApiResource, namespace: str | None = None) -> str:
        """The version that a collection has now; no earlier one than anybody was told, but after a restored backup."""
        ...

    def watch(
        self,
        resource: ApiResource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
    ) -> AsyncIterator[Change]:
        """Changes after `resource_version` until the server ends the watch; `Gone` when it is too old."""
        ...

    async def create(self, resource: ApiResource, body: Object) -> Object:
        """Create in the body's namespace; `AlreadyExists` when the name is taken."""
        ...

    async def try_create(self, resource: ApiResource, body: Object) -> None:
        """Raise what `create` would raise, and `Invalid` for fields that the kind does not have; creates nothing."""
        ...

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
        """Merge patch (RFC 7386); with `resource_version`, `Conflict` unless the object is still at that version."""
        ...

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
        """Server-side apply, forced: the manager then owns exactly the fields in `body`."""
        ...

    async def delete(
        self,
        resource: ApiResource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete one object, if it still has that `uid` (else `Conflict`); `NotFound` when it is not there."""
        ...

    async def delete_all(self, resource: ApiResource, namespace: str, *, labels: str) -> None:
        """Delete all matching objects of one namespace."""
        ...

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
        """The last lines of a container, of those that are no older than `since_s`; times are of the node's clock."""
        ...
