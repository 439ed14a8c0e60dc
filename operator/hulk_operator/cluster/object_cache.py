"""The newest known version of every object of one kind.

Events, listings and the answers to writes arrive through different connections, in any order: an object only ever
replaces an older version of itself, and a deleted one does not come back from a listing that was made before its
deletion. A listing that is newer than what is known, and has something older, is of a restored backup, and is believed.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from hulk_operator.cluster.protocol import Listing, Object

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Newest(Generic[T]):
    """The objects by key (`namespace/name` or `name`), each parsed once.

    `told` is called with the key of every object that is new, changed or gone, as it was (None: new) and as it is
    (None: gone); `restarted` when the server counts from elsewhere.
    """

    def __init__(
        self,
        parse: Callable[[Object], T],
        told: Callable[[str, T | None, T | None], None] = lambda key, was, now: None,
        restarted: Callable[[], None] = lambda: None,
    ) -> None:
        self._parse = parse
        self._told = told
        self._restarted = restarted
        self._items: dict[str, tuple[int, T]] = {}
        self._deleted: dict[str, int] = {}

    def get(self, key: str) -> T | None:
        """The object, None when it is not known (any more)."""
        found = self._items.get(key)
        return found[1] if found else None

    def items(self) -> Iterator[tuple[str, T]]:
        """All objects by key."""
        return ((key, item) for key, (_, item) in self._items.items())

    def values(self) -> Iterator[T]:
        """All objects."""
        return (item for _, item in self._items.values())

    def put(self, item: Object, listed_at: str = "") -> bool:
        """Take over an object; False when the same or a newer version is known, a later deletion, or it is unreadable.

        `listed_at`: the version of the listing that it is from. One object that another version of the schema let
        through must not stop the operator for all others.
        """
        key, version = object_key(item), _version(item)
        known = self._items.get(key)
        newest = max(known[0] if known else -1, self._deleted.get(key, -1))
        if (known and known[0] == version) or newest > (int(listed_at) if listed_at else version - 1):
            return False
        try:
            parsed = self._parse(item)
        except ValueError as error:
            logger.warning("%s cannot be read and is left as it is: %s", key, error)
            return False
        self._items[key] = (version, parsed)
        self._told(key, known[1] if known else None, parsed)
        return True

    def delete(self, item: Object) -> bool:
        """Forget an object that was deleted, as it was in the end; False when a newer one of its name is known."""
        key, version = object_key(item), _version(item)
        known = self._items.get(key)
        if known is not None and known[0] < version:
            self.put(item)
        self._deleted[key] = max(version, self._deleted.get(key, -1))
        if known is None or known[0] > version:
            return False
        self._forget(key)
        return True

    def replace(self, listing: Listing) -> set[str]:
        """Take over a listing; answers the keys of what changed, deletions included."""
        changed = {object_key(item) for item in listing.items if self.put(item, listing.resource_version)}
        return changed | self.retain({object_key(item) for item in listing.items}, listing.resource_version)

    def retain(self, listed: Collection[str], version: str) -> set[str]:
        """Forget what a listing as of that version did not have; answers the keys."""
        at = int(version)
        gone = {key for key, (known, _) in self._items.items() if key not in listed and known <= at}
        for key in gone:
            self._forget(key)
        self._deleted = {key: known for key, known in self._deleted.items() if known > at}
        return gone

    def restart(self) -> None:
        """Believe the next listing in all it says: the server counts from elsewhere, as after a restored backup."""
        self._items = {key: (-1, item) for key, (_, item) in self._items.items()}
        self._deleted.clear()
        self._restarted()

    def _forget(self, key: str) -> None:
        _, item = self._items.pop(key)
        self._told(key, item, None)


def object_key(item: Object) -> str:
    """`namespace/name`, or the name of a cluster-scoped object."""
    namespace = item["metadata"].get("namespace")
    name: str = item["metadata"]["name"]
    return f"{namespace}/{name}" if namespace else name


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])
