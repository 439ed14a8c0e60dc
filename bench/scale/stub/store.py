"""Objects as the bytes that are sent, their versions, and what happened to each kind: etcd and watch cache in one."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hulk_operator.cluster import ApiResource

Object = dict[str, Any]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]
WINDOW: Final = 50_000
"""Events of a kind that a watch can still begin at."""
SELECTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": ("spec.nodeName", "spec.schedulerName", "status.phase", "status.podIP"),
    "nodes": ("spec.unschedulable",),
    "events": ("involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"),
    "secrets": ("type",),
}
ALWAYS_SELECTABLE: Final = ("metadata.name", "metadata.namespace")


class ExpiredError(Exception):
    """What happened since that version is not known any more."""


@dataclass(frozen=True, slots=True)
class Record:
    """One object at one version. `owners`: uids of those that it goes with."""

    key: str
    version: int
    body: bytes
    uid: str
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...]

    def read(self) -> Object:
        """The object; the caller's to change."""
        found: Object = json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True)
class Event:
    """What happened: the object after it (as it was last, where it was deleted) and before."""

    type: EventType
    record: Record
    before: Record | None


@dataclass(slots=True)
class Collection:
    """All objects of one kind."""

    resource: ApiResource
    window: int = WINDOW
    records: dict[str, Record] = field(default_factory=dict)
    listeners: set[asyncio.Event] = field(default_factory=set)
    oldest: int = 0  # what happened after this version is known
    _keys: list[str] = field(default_factory=list)
    _log: list[Event] = field(default_factory=list)

    def sorted(self, prefix: str = "") -> list[Record]:
        """In the order of their keys; those of one namespace where there is a prefix."""
        if not prefix:
            return [self.records[key] for key in self._keys]
        first = bisect_left(self._keys, prefix)
        last = bisect_right(self._keys, prefix + "\U0010ffff", lo=first)
        return [self.records[key] for key in self._keys[first:last]]

    def after(self, version: int) -> list[Event]:
        """What happened since a version, in order."""
        if version < self.oldest:
            raise ExpiredError(f"too old resource version: {version} ({self.oldest})")
        return self._log[bisect_right(self._log, version, key=lambda event: event.record.version) :]

    def take(self, event: Event) -> None:
        """Carry out and write down."""
        key = event.record.key
        if event.type == "DELETED":
            del self.records[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if event.type == "ADDED":
                insort(self._keys, key)
            self.records[key] = event.record
        self._log.append(event)
        if len(self._log) > 2 * self.window:
            self.oldest = self._log[self.window - 1].record.version
            del self._log[: self.window]
        for listener in self.listeners:
            listener.set()

    def load(self, records: list[Record]) -> None:
        """Objects that were there before anybody watched."""
        self.records |= {record.key: record for record in records}
        self._keys = sorted(self.records)
        self.oldest = max(record.version for record in self.records.values())


class Store:
    """Collections by kind, with one counter of versions. `happened` is told of every event."""

    def __init__(self, resources: tuple[ApiResource, ...], window: int = WINDOW) -> None:
        self.version = 1
        self.collections = {resource: Collection(resource, window) for resource in resources}
        self.dependents: dict[str, set[tuple[ApiResource, str]]] = {}
        self.happened: list[Callable[[ApiResource, Event], None]] = []

    def put(self, resource: ApiResource, item: Object) -> Record:
        """Add or replace an object."""
        collection, record = self.collections[resource], self.record(resource, item)
        before = collection.records.get(record.key)
        self._note(resource, Event("MODIFIED" if before else "ADDED", record, before))
        return record

    def remove(self, resource: ApiResource, before: Record) -> None:
        """Delete an object, and tell so with what it was last."""
        self._note(resource, Event("DELETED", self.record(resource, before.read()), before))

    def load(self, resource: ApiResource, items: list[Object]) -> None:
        """Put many objects before anybody watches."""
        records = [self.record(resource, item) for item in items]
        self.collections[resource].load(records)
        for record in records:
            self._own(resource, record)

    def record(self, resource: ApiResource, item: Object) -> Record:
        """An object at the next version."""
        self.version += 1
        metadata = item["metadata"]
        metadata["resourceVersion"] = str(self.version)
        ordered = {"kind": resource.kind, "apiVersion": resource.api_version, **item}
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        fields = {"metadata.name": name, "metadata.namespace": namespace}
        for path in SELECTABLE.get(resource.plural, ()):
            fields[path] = _at(item, path)
        return Record(
            f"{namespace}/{name}" if namespace else name,
            self.version,
            json.dumps(ordered, separators=(",", ":")).encode(),
            metadata["uid"],
            metadata.get("labels") or {},
            fields,
            tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ()),
        )

    def _note(self, resource: ApiResource, event: Event) -> None:
        self.collections[resource].take(event)
        if event.type == "ADDED":
            self._own(resource, event.record)
        elif event.type == "DELETED":
            for uid in event.record.owners:
                self.dependents.get(uid, set()).discard((resource, event.record.key))
        for tell in self.happened:
            tell(resource, event)

    def _own(self, resource: ApiResource, record: Record) -> None:
        for uid in record.owners:
            self.dependents.setdefault(uid, set()).add((resource, record.key))


def selectable(resource: ApiResource) -> frozenset[str]:
    """The fields that a selector may name."""
    return frozenset((*ALWAYS_SELECTABLE, *SELECTABLE.get(resource.plural, ())))


def _at(item: Object, path: str) -> str:
    node: Any = item
    for name in path.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return (
        {None: "", True: "true", False: "false"}.get(node, "") if node is None or isinstance(node, bool) else str(node)
    )
