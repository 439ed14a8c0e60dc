"""A collection of the API server kept in memory by list and watch, so that a pass over 1,000 nodes reads nothing.

Kopf's own watches are for the handlers' room; probing needs no more than the newest state and a sign that it changed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from hulk_operator.cluster import ApiResource, Change, Cluster, ClusterError, Newest, Object

log = logging.getLogger(__name__)

RETRY_S: Final = 2.0


@dataclass(slots=True)
class Mirror:
    """All objects of one kind, of one namespace where it has any, and with these labels.

    Who writes one puts the answer into `objects`: the watch may be late, and the next pass must know what it ordered.
    `changed` is set after every change; readers clear it.
    `heard` is called with the kind whenever the API server said something, also that nothing changed.
    """

    cluster: Cluster
    resource: ApiResource
    changed: asyncio.Event
    heard: Callable[[str], None] = lambda _: None
    namespace: str | None = None
    labels: str = ""
    objects: Newest[Object] = field(default_factory=lambda: Newest(_lean))
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Follow the collection until cancelled; after an error list it again."""
        while True:
            try:
                version = await self._list()
                async for change in self._watch(version):
                    self._take(change)
            except ClusterError as error:
                log.info("mirror of %s: %s", self.resource.plural, error)
                await asyncio.sleep(RETRY_S)

    def all(self) -> tuple[Object, ...]:
        """The objects as they are now."""
        return tuple(item for _, item in self.objects.items())

    def _watch(self, version: str) -> AsyncIterator[Change]:
        return self.cluster.watch(self.resource, self.namespace, labels=self.labels, resource_version=version)

    async def _list(self) -> str:
        found = await self.cluster.list(self.resource, self.namespace, labels=self.labels)
        self.heard(self.resource.plural)
        self.objects.replace(found)
        self.filled.set()
        self.changed.set()
        return found.resource_version

    def _take(self, change: Change) -> None:
        self.heard(self.resource.plural)
        if change.type == "BOOKMARK":
            return
        if change.type == "DELETED":
            self.objects.delete(change.object)
        else:
            self.objects.put(change.object)
        self.changed.set()


def _lean(item: Object) -> Object:
    """The object without what takes most of its memory and is never read here."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    status = {key: value for key, value in (item.get("status") or {}).items() if key != "images"}
    return {**item, "metadata": metadata, "status": status}
