"""Bytes without meaning that open the congestion windows of a rank's connections."""

from collections.abc import Mapping
from typing import Final

from hulk_runtime.collective.frames import Header, Kind
from hulk_runtime.collective.lines import Lines
from hulk_runtime.collective.peer import Peer
from hulk_runtime.collective.work import Work
from hulk_runtime.errors import PeerLostError

FRAME_BYTES: Final = 16 << 10


class Warming:
    """What of them has not left yet, and who waits for that."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._waiting: list[tuple[frozenset[int], Work]] = []

    def begin(self, num_bytes: Mapping[int, int], work: Work) -> None:
        """Queue so many bytes for each rank, behind whatever means something; `work` ends when they have left."""
        for rank, count in num_bytes.items():
            self._queue(self._lines.peers[rank], count)
        self._waiting.append((frozenset(num_bytes), work))

    def _queue(self, peer: Peer, count: int) -> None:
        for start in range(0, count, FRAME_BYTES):
            payload = memoryview(bytes(min(FRAME_BYTES, count - start)))
            peer.push_last(Header(Kind.WARM, len(payload)), payload)
        self._lines.touch(peer)

    def look(self) -> None:
        """End what is over."""
        waiting, self._waiting = self._waiting, []
        for ranks, work in waiting:
            if any(self._lines.peers[rank].is_busy for rank in ranks):
                self._waiting.append((ranks, work))
            else:
                work.end()

    def release(self, error: PeerLostError) -> None:
        """Whoever waits is told why it does not end."""
        while self._waiting:
            self._waiting.pop()[1].end(error)
