"""A `Cluster` in memory, for tests of what the operator asks for; answers are tested on a real API server."""

import copy
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from hulk_operator import names
from hulk_operator.cluster import (
    ORIGIN,
    SECRETS,
    AlreadyExists,
    ApiResource,
    Change,
    ClusterError,
    Conflict,
    Forbidden,
    Listing,
    NotFound,
    Object,
)

Key = tuple[str, str | None, str]


class FakeCluster:
    """Objects by plural, namespace and name. `refuse` may name an error for a write; `writes` says what was written."""

    def __init__(self, *objects: tuple[ApiResource, Object]) -> None:
        self.objects: dict[Key, Object] = {}
        self.writes: list[tuple[str, str]] = []
        self.tried: list[Object] = []
        self.refuse: Callable[[str, Object], ClusterError | None] = lambda write, body: None
        self.logs: dict[str, list[str]] = {}  # by pod
        self.writing: set[str] = set()  # pods with lines that are recent by their node's clock
        self._version = 0
        for resource, body in objects:
            self._store(resource, body)

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object:
        if resource is SECRETS and name != names.ORDER_SECRET:  # as the chart's rights have it
            raise Forbidden(403, "Forbidden", f"secrets {name} is forbidden: cannot get")
        return copy.deepcopy(self._known(resource, name, namespace))

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Listing:
        wanted = [term for term in fields.split(",") if term]
        of_kind = [
            body
            for (plural, where, _), body in self.objects.items()
            if plural == resource.plural and namespace in (None, where)
        ]
        found = [body for body in of_kind if all(_fits(body, term) for term in wanted) and selected(body, labels)]
        return Listing(tuple(copy.deepcopy(found)), str(self._version))

    async def pages(
        self, resource: ApiResource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[Listing]:
        found = await self.list(resource, namespace, labels=labels, fields=fields)
        for one in found.items:
            yield Listing((one,), found.resource_version)
        yield Listing((), found.resource_version)

    async def version(self, resource: ApiResource, namespace: str | None = None) -> str:
        return str(self._version)

    def watch(self, *_: Any, **__: Any) -> AsyncIterator[Change]:
        raise NotImplementedError("no test watches a fake")

    async def create(self, resource: ApiResource, body: Object) -> Object:
        self._write(f"create {resource.plural}", body)
        if (resource.plural, body["metadata"].get("namespace"), body["metadata"]["name"]) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{resource.plural} {body['metadata']['name']} exists")
        return self._store(resource, body)

    async def try_create(self, resource: ApiResource, body: Object) -> None:
        self.tried.append(body)
        if error := self.refuse(f"try {resource.plural}", body):
            raise error

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
        body = copy.deepcopy(self._known(resource, name, namespace))
        self._write(f"patch {resource.plural}" + (f"/{subresource}" if subresource else ""), body)
        if resource_version not in (None, body["metadata"]["resourceVersion"]):
            raise Conflict(409, "Conflict", f"{resource.plural} {name} was changed")
        _merge(body, change)
        return self._store(resource, body)

    async def apply(self, resource: ApiResource, name: str, namespace: str | None, body: Any, **_: Any) -> Object:
        return await self.patch(resource, name, namespace, body)

    async def delete(self, resource: ApiResource, name: str, namespace: str | None = None, **_: Any) -> None:
        self._write(f"delete {resource.plural}", self._known(resource, name, namespace))
        del self.objects[resource.plural, namespace, name]

    async def delete_all(self, resource: ApiResource, namespace: str, *, labels: str) -> None:
        self._write(f"delete {resource.plural}", {"labels": labels})

    async def log(self, pod: str, namespace: str, *, tail_lines: int, since_s: int | None = None, **_: Any) -> Any:
        if pod not in self.logs:
            raise NotFound(404, "NotFound", f"pods {pod} not found")
        return () if since_s and pod not in self.writing else tuple(self.logs[pod][-tail_lines:])

    def _write(self, name: str, body: Object) -> None:
        self.writes.append((ORIGIN.get(), name))
        if error := self.refuse(name, body):
            raise error

    def _known(self, resource: ApiResource, name: str, namespace: str | None) -> Object:
        try:
            return self.objects[resource.plural, namespace, name]
        except KeyError:
            raise NotFound(404, "NotFound", f"{resource.plural} {name} not found") from None

    def _store(self, resource: ApiResource, body: Object) -> Object:
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", **body["metadata"], "resourceVersion": str(self._version)}
        stored = {**copy.deepcopy(body), "metadata": metadata}
        self.objects[resource.plural, metadata.get("namespace"), metadata["name"]] = stored
        return copy.deepcopy(stored)


def selected(body: Object, labels: str) -> bool:
    """Whether an object fits a label selector of the forms `key`, `!key`, `key=value` and `key!=value`."""
    own = body["metadata"].get("labels") or {}
    return all(_has(own, term) for term in labels.split(",") if term)


def _has(own: Mapping[str, str], term: str) -> bool:
    if "=" not in term:
        return (term.removeprefix("!") in own) != term.startswith("!")
    key, operator, value = term.partition("!=") if "!=" in term else term.partition("=")
    return (own.get(key) == value) == (operator == "=")


def _fits(body: Object, term: str) -> bool:
    """One term of a field selector: `path=value` or `path!=value`; an absent field is empty."""
    path, is_not, value = term.partition("!=") if "!=" in term else term.partition("=")
    found: Any = body
    for name in path.split("."):
        found = found.get(name) or {}
    return ((found or "") == value) == (is_not == "=")


def _merge(target: Object, change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)
