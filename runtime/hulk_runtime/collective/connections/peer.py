"""Another rank as this one sees it: what waits to be sent to it, by urgency, and what it said."""

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from hulk_runtime.collective.connections.channel import Channel
from hulk_runtime.collective.connections.early_chunks import SendWindow
from hulk_runtime.collective.reduction.operation import Outgoing
from hulk_runtime.collective.wire.frames import Header

_LAST: Final = (1 << 62, 0.0, 0.0)


@dataclass(eq=False)
class Peer:
    """Another rank: what waits to be sent to it, what it said last, and when (seconds of the monotonic clock).

    `num_begun` operations were asked of it, as far as it was heard; `told_s` is when it said so itself last. `broken`
    is when and how one of several connections ended.
    """

    rank: int
    is_far: bool
    channels: list[Channel["Peer"]] = field(default_factory=list)
    last_seen_s: float = 0.0
    beat_s: float = 0.0
    num_begun: int = 0
    told_s: float = 0.0
    has_left: bool = False
    broken: tuple[float, str] | None = None
    ahead: SendWindow = field(default_factory=SendWindow)
    _num_brought: int = 0
    _brought: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=32))
    _first: deque[tuple[bytes, memoryview | None, Outgoing | None]] = field(default_factory=deque)
    _chunks: list[tuple[tuple[int, float, float], int, Outgoing]] = field(default_factory=list)
    _count: "itertools.count[int]" = field(default_factory=itertools.count)

    def has_begun(self, number: int) -> None:
        """It has begun this operation, and so all before it; whatever comes later may have left earlier."""
        self.num_begun = max(self.num_begun, number + 1)

    def push(self, chunk: Outgoing) -> None:
        """Queue a chunk by its urgency."""
        heapq.heappush(self._chunks, (chunk.urgency, next(self._count), chunk))

    def push_first(self, head: bytes, payload: memoryview | None = None) -> None:
        """Queue a frame that goes before all chunks."""
        self._first.append((head, payload, None))

    def push_last(self, header: Header, payload: memoryview) -> None:
        """Queue a frame that waits for all chunks."""
        self.push(Outgoing(self.rank, header.pack(), payload, _LAST))

    def pop(self) -> tuple[bytes, memoryview | None, Outgoing | None] | None:
        """What goes next. Chunks that the peer has no room for wait."""
        if self._first:
            return self._first.popleft()
        if self._may_go:
            chunk = heapq.heappop(self._chunks)[2]
            if chunk.urgency is not _LAST:
                self.ahead.went(chunk.urgency[0], len(chunk.payload))
            return chunk.header, chunk.payload, chunk
        return None

    @property
    def _may_go(self) -> bool:
        """Whether the first of the chunks that wait may be sent: those behind it belong to the same or a later one."""
        if not self._chunks:
            return False
        urgency, _, chunk = self._chunks[0]
        return urgency is _LAST or self.ahead.may_go(urgency[0], len(chunk.payload))

    def carried(self) -> tuple[float, float]:
        """Bytes/s that came over all connections while more waited to be sent, and seconds that were measured."""
        measured = [channel.meter for channel in self.channels if channel.meter.seconds > 0]
        if not measured:
            return 0.0, 0.0
        rate = sum(meter.bytes_per_s for meter in measured) * len(self.channels) / len(measured)
        return rate, max(meter.seconds for meter in measured)

    def ended(self, num_bytes: int, last_s: float) -> None:
        """An all-reduce got so many bytes from here, the last of them `last_s` after it had begun."""
        self._num_brought += num_bytes
        self._brought.append((num_bytes, last_s))

    def brought(self) -> tuple[int, float]:
        """Bytes since the last call; the median of `last_s`, of the all-reduces that got most."""
        num_bytes, brought = self._num_brought, list(self._brought)
        self._num_brought = 0
        self._brought.clear()
        most = max((count for count, _ in brought), default=0)
        return num_bytes, median([last_s for count, last_s in brought if 2 * count >= most] or [0.0])

    @property
    def has_frames(self) -> bool:
        """Whether anything that may be sent now waits here, not in the kernel."""
        return bool(self._first) or self._may_go

    @property
    def is_busy(self) -> bool:
        """Whether anything still has to leave."""
        return bool(self.channels and (self._first or self._chunks or any(c.wants_write for c in self.channels)))

    def drop_last(self) -> None:
        """Forget the frames that wait for all chunks."""
        self._chunks = [entry for entry in self._chunks if entry[0] is not _LAST]
        heapq.heapify(self._chunks)

    def drop_chunks(self) -> None:
        """Forget the chunks that wait: what they belong to has failed."""
        self._chunks.clear()
