"""One collection of the API server kept in memory by list and watch: one request to begin with, then only what changes.

Kopf lists a collection in one piece, keeps whole objects and spends 1.5 ms of CPU on an event (measured: its processing
of one, in process); this loop takes pages and spends 0.1 ms. It goes on from where a connection broke, and lists again
where the server says that this is too long ago, or has gone back in time, as after a restored backup: a watch from a
version that is to come would tell nothing.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from hulk_operator.cluster.errors import ClusterError, Gone
from hulk_operator.cluster.object_cache import object_key
from hulk_operator.cluster.protocol import Change, Cluster, Object
from hulk_operator.cluster.resources import ApiResource

log = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 30.0
MAX_BUSY_S: Final = 0.01
"""A burst of events is taken over for so long at a time; then the event loop's other work has its turn."""


class Sink(Protocol):
    """What takes a collection over (see `Newest`)."""

    def put(self, item: Object, listed_at: str = "") -> bool:
        """An object was added or changed, or was there as of a version."""
        ...

    def delete(self, item: Object) -> bool:
        """An object was deleted."""
        ...

    def retain(self, listed: Collection[str], version: str) -> set[str]:
        """Nothing but these was there as of that version."""
        ...

    def restart(self) -> None:
        """What is told from now on has other versions."""
        ...


@dataclass(slots=True)
class Informer:
    """Follows all objects of one kind, of one namespace where it is given, that fit the selectors.

    `heard` is called whenever the API server said something, also that nothing changed. `synced`: it was read once.
    `connected`: it is followed, and not from a version that a restored server has not reached.
    """

    cluster: Cluster
    resource: ApiResource
    sink: Sink
    heard: Callable[[], None] = lambda: None
    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    _version: str = ""  # to go on from; empty: list first
    _retry_s: float = FIRST_RETRY_S
    _reached: int = 0  # the highest version that the server has told

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            listed = ""
            try:
                if not self._version or (not self.connected.is_set() and await self._is_back_in_time()):
                    await self.list()
                    listed = self._version
                self.connected.set()
                await self._watch()
            except Gone as error:
                if self._version == listed:  # too old as soon as it was told
                    await self._back_off(error)
                self._version = ""
            except ClusterError as error:
                await self._back_off(error)

    async def list(self) -> None:
        """Compare with everything there is, a page at a time."""
        listed: set[str] = set()
        version = ""
        pause = _Turns()
        pages = self.cluster.pages(self.resource, self.namespace, labels=self.labels, fields=self.fields)
        async for page in pages:
            if not version:
                version = page.resource_version
                self._note(version, begins=True)
            for item in page.items:
                listed.add(object_key(item))
                self.sink.put(item, version)
                await pause()
            self.heard()
        self.sink.retain(listed, version)
        self._version = version
        self.synced.set()

    async def _back_off(self, error: ClusterError) -> None:
        """Pause, the longer the more often nothing was told in between; a listing alone is no news of a watch."""
        self.connected.clear()
        log.warning("the watch of %s is interrupted: %s", self.resource.plural, error.message)
        await asyncio.sleep(self._retry_s * random.uniform(0.5, 1.0))
        self._retry_s = min(MAX_RETRY_S, 2 * self._retry_s)

    async def _is_back_in_time(self) -> bool:
        return int(await self.cluster.version(self.resource, self.namespace)) < int(self._version)

    async def _watch(self) -> None:
        pause = _Turns()
        changes = self.cluster.watch(
            self.resource, self.namespace, labels=self.labels, fields=self.fields, resource_version=self._version
        )
        async for change in changes:
            self._version = change.object["metadata"]["resourceVersion"]
            self._note(self._version)
            self._hear()
            self._take(change)
            await pause()
        self._hear()  # the server ended a quiet watch

    def _take(self, change: Change) -> None:
        if change.type == "DELETED":
            self.sink.delete(change.object)
        elif change.type != "BOOKMARK":
            self.sink.put(change.object)

    def _hear(self) -> None:
        self._retry_s = FIRST_RETRY_S
        self.heard()

    def _note(self, version: str, *, begins: bool = False) -> None:
        if begins and int(version) < self._reached:
            log.warning(
                "%s: the API server is back at version %s from %d", self.resource.plural, version, self._reached
            )
            self.sink.restart()
            self._reached = 0
        self._reached = max(self._reached, int(version))


class _Turns:
    """Gives the event loop a turn when work has gone on for long."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()

    async def __call__(self) -> None:
        if self._loop.time() - self._since_s > MAX_BUSY_S:
            await asyncio.sleep(0)
            self._since_s = self._loop.time()
