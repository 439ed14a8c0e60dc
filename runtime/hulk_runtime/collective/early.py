"""Chunks of operations that were not begun here yet: peers may be ahead, but not without bounds."""

from itertools import chain
from typing import Final

from hulk_runtime.collective.frames import GarbageError, Header
from hulk_runtime.collective.peer import Peer

MAX_EARLY_BYTES: Final = 1 << 30
"""More is garbage."""
EARLY_FRAME_BYTES: Final = 200
"""What is counted for a chunk beside its payload."""

Frame = tuple[Peer, Header, memoryview]


class Early:
    """Those that are here, by epoch and operation, and those that have begun to come."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int], list[Frame]] = {}
        self._coming: dict[int, Header] = {}
        self._num_bytes = 0

    def expect(self, header: Header) -> None:
        """One begins to come. Raises GarbageError when it is too much."""
        self._num_bytes += header.num_bytes + EARLY_FRAME_BYTES
        if self._num_bytes > MAX_EARLY_BYTES:
            raise GarbageError(f"{self._num_bytes} bytes of operations that were not begun here")
        self._coming[id(header)] = header

    def is_early(self, header: Header) -> bool:
        """Whether it was not checked when it began to come."""
        return id(header) in self._coming

    def keep(self, frame: Frame) -> None:
        """It is here whole."""
        header = frame[1]
        self._frames.setdefault((header.epoch, header.operation), []).append(frame)

    def take(self, epoch: int, operation: int) -> list[Frame]:
        """What is here of an operation that begins."""
        return self._frames.pop((epoch, operation), [])

    def checked(self, header: Header) -> None:
        """It counts no more."""
        del self._coming[id(header)]
        self._num_bytes -= header.num_bytes + EARLY_FRAME_BYTES

    def keep_only(self, epoch: int) -> None:
        """All others belong to nothing any more."""
        self._frames = {key: frames for key, frames in self._frames.items() if key[0] == epoch}
        self._coming = {key: header for key, header in self._coming.items() if header.epoch == epoch}
        kept = (header for _, header, _ in chain(*self._frames.values()))
        self._num_bytes = sum(header.num_bytes + EARLY_FRAME_BYTES for header in kept)
