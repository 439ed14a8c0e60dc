"""A request -> the object or collection that it is about, and who asks; what the stub does not know is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from hulk_operator.cluster import ApiResource

from bench.scale.stub import selectors
from bench.scale.stub.errors import ApiError, bad_request
from bench.scale.stub.kinds import SERVED
from bench.scale.stub.store import Record, selectable

_BY_PATH: Final = {(one.group, one.version, one.plural): one for one in SERVED}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection where `name` is empty."""

    resource: ApiResource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> str:
        """Of the object in its collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def prefix(self) -> str:
        """Of all keys in the collection; empty: of all namespaces."""
        return f"{self.namespace}/" if self.namespace else ""


def target_of(path: str) -> Target | None:
    """
    >>> found = target_of("/apis/hulk.dev/v1alpha1/namespaces/a/hulkjobs/b/status")
    >>> found.resource.kind, found.namespace, found.name, found.subresource
    ('HulkJob', 'a', 'b', 'status')
    >>> target_of("/api/v1/namespaces/a").resource.kind
    'Namespace'
    """
    root, *parts = path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    if root not in ("api", "apis") or not parts:
        return None
    version = parts.pop(0)
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = [*parts, "", "", ""][:3]
    resource = _BY_PATH.get((group, version, plural))
    if resource is None or len(parts) > 3 or subresource not in ("", "status"):
        return None
    return Target(resource, namespace, name, subresource)


def matcher(resource: ApiResource, query: Mapping[str, str]) -> Callable[[Record], bool]:
    """Whether an object is selected."""
    by_label = selectors.labels(query["labelSelector"]) if query.get("labelSelector") else None
    by_field = selectors.fields(query["fieldSelector"], selectable(resource)) if query.get("fieldSelector") else None

    def match(record: Record) -> bool:
        return (by_label is None or by_label(record.labels)) and (by_field is None or by_field(record.fields))

    return match


def check_query(query: Mapping[str, str], known: frozenset[str]) -> None:
    """ApiError for a parameter that would be ignored."""
    if unknown := set(query) - known:
        raise bad_request(f"this server does not know the query parameter {', '.join(sorted(unknown))}")


def check_media_type(request: web.Request) -> None:
    """ApiError unless whole objects as JSON will do."""
    accepted = [part.strip() for part in request.headers.get("Accept", "*/*").split(",")]
    if not any(part.partition(";")[0] in ("application/json", "*/*") and ";as=" not in part for part in accepted):
        raise ApiError(406, "NotAcceptable", "only application/json is served")
