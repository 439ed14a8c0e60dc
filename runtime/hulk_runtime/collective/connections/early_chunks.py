"""Chunks of operations that their receiver has not begun yet: ranks may be ahead of each other, but not without bounds.

`SendWindow` is the sender's side: chunks beyond the bounds wait until the receiver reports that it has begun more
operations. `BegunNotices` decides when a receiver reports that at once. `EarlyChunks` is the receiver's side: an honest
peer never passes the bounds, and what passes them is garbage. Whatever arrives is read. No circle of ranks can wait for
each other: chunks of operations that the receiver has begun never wait, and no rank needs chunks of an operation, or of
a younger one, to begin it.
"""

from typing import Final, Generic, TypeVar

from hulk_runtime.collective.wire.frames import GarbageError, Header

MAX_EARLY_BYTES: Final = 256 << 20
"""Of one peer. While the receiver's word is on its way, so much is sent: enough to fill any link meanwhile."""
MAX_AHEAD: Final = 1024
"""Of so many operations beyond those that the receiver has begun chunks may come."""
EARLY_FRAME_BYTES: Final = 200
"""What is counted for a chunk beside its payload."""
TOLD_AT: Final = 4
"""A receiver says at each such part of the bounds how far it is."""

Sender = TypeVar("Sender")


def _cost(num_bytes: int) -> int:
    return num_bytes + EARLY_FRAME_BYTES


class SendWindow:
    """What was sent to a peer of operations that it had not begun, as far as it has said."""

    def __init__(self) -> None:
        self._num_begun = self._num_bytes = 0
        self._sent: dict[int, int] = {}

    def may_go(self, operation: int, num_bytes: int) -> bool:
        """Whether a chunk stays within the bounds."""
        if operation < self._num_begun:
            return True
        return operation < self._num_begun + MAX_AHEAD and self._num_bytes + _cost(num_bytes) <= MAX_EARLY_BYTES

    def went(self, operation: int, num_bytes: int) -> None:
        """A chunk is on its way."""
        if operation >= self._num_begun:
            self._sent[operation] = self._sent.get(operation, 0) + _cost(num_bytes)
            self._num_bytes += _cost(num_bytes)

    def begun(self, num_begun: int) -> None:
        """The peer says how many it has begun; what it said before may come later, over another connection."""
        if num_begun > self._num_begun:
            self._num_begun = num_begun
            self._sent = {operation: sent for operation, sent in self._sent.items() if operation >= num_begun}
            self._num_bytes = sum(self._sent.values())


class BegunNotices:
    """What peers were told of how many operations were begun here, beside what every beat says."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}
        self._come: dict[int, int] = {}

    def came(self, rank: int, header: Header) -> None:
        """A chunk of an operation that was begun, perhaps without the sender's knowledge."""
        if header.operation >= self._told.get(rank, 0):
            self._come[rank] = self._come.get(rank, 0) + _cost(header.num_bytes)

    def is_due(self, rank: int, num_begun: int, num_early_bytes: int) -> bool:
        """Whether a peer may soon have to wait for what it was not told."""
        untold = num_begun - self._told.get(rank, 0)
        if untold <= 0:
            return False
        num_bytes = self._come.get(rank, 0) + num_early_bytes
        return num_bytes >= MAX_EARLY_BYTES // TOLD_AT or untold >= MAX_AHEAD // TOLD_AT

    def told(self, rank: int, num_begun: int) -> None:
        """It knows."""
        self._told[rank], self._come[rank] = num_begun, 0


class EarlyChunks(Generic[Sender]):
    """Those that are here, by epoch and operation, and those that have begun to come."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int], list[tuple[Sender, Header, memoryview]]] = {}
        self._coming: dict[int, Header] = {}
        self._num_bytes: dict[tuple[int, int], int] = {}
        self._by_rank: dict[tuple[int, int], dict[int, int]] = {}

    def num_bytes(self, epoch: int, rank: int) -> int:
        """What counts of a peer's."""
        return self._num_bytes.get((epoch, rank), 0)

    def expect(self, rank: int, header: Header, num_begun: int) -> None:
        """One begins to come. Raises GarbageError when it is beyond the bounds."""
        if header.operation >= num_begun + MAX_AHEAD:
            raise GarbageError(f"a chunk of operation {header.operation}, only {num_begun} were begun here")
        num_bytes = self.num_bytes(header.epoch, rank) + _cost(header.num_bytes)
        if num_bytes > MAX_EARLY_BYTES:
            raise GarbageError(f"{num_bytes} bytes of operations that were not begun here")
        self._num_bytes[header.epoch, rank] = num_bytes
        by_rank = self._by_rank.setdefault((header.epoch, header.operation), {})
        by_rank[rank] = by_rank.get(rank, 0) + _cost(header.num_bytes)
        self._coming[id(header)] = header

    def is_early(self, header: Header) -> bool:
        """Whether it was not checked when it began to come."""
        return id(header) in self._coming

    def keep(self, frame: tuple[Sender, Header, memoryview]) -> None:
        """It is here whole."""
        header = frame[1]
        self._frames.setdefault((header.epoch, header.operation), []).append(frame)

    def take(self, epoch: int, operation: int) -> list[tuple[Sender, Header, memoryview]]:
        """What is here of an operation that begins. Nor does what is still coming of it count any more."""
        for rank, num_bytes in self._by_rank.pop((epoch, operation), {}).items():
            self._num_bytes[epoch, rank] -= num_bytes
        return self._frames.pop((epoch, operation), [])

    def checked(self, header: Header) -> None:
        """It was early no longer than this."""
        del self._coming[id(header)]

    def keep_only(self, epoch: int) -> None:
        """All others belong to nothing any more."""
        self._frames = {key: frames for key, frames in self._frames.items() if key[0] == epoch}
        self._coming = {key: header for key, header in self._coming.items() if header.epoch == epoch}
        self._num_bytes = {key: count for key, count in self._num_bytes.items() if key[0] == epoch}
        self._by_rank = {key: by_rank for key, by_rank in self._by_rank.items() if key[0] == epoch}
