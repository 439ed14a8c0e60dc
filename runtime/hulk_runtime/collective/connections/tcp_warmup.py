"""Bytes without meaning that open the congestion windows of a rank's connections.

At the start all of them; in a pause those that the kernel has closed, because packets were lost on the way or a machine
stood still: the next all-reduce would pay for it.
"""

from collections.abc import Mapping
from typing import Final

from hulk_runtime.collective.connections.channel import Channel
from hulk_runtime.collective.connections.connection_set import ConnectionSet
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.wire.frames import Header, Kind
from hulk_runtime.errors import PeerLostError

FRAME_BYTES: Final = 16 << 10
WARM_S: Final = 5.0
"""What has not left after so long leaves no more: slow start fills a path sooner, unless packets are lost on it."""
REOPEN_S: Final = 1.0
MAX_REOPEN_S: Final = 64.0
"""A window that does not stay open is opened again after this time, twice as long each time, up to so long."""

_ZEROS: Final = memoryview(bytes(FRAME_BYTES))


class TcpWarmup:
    """What of them has not left yet, and who waits for that."""

    def __init__(self, connections: ConnectionSet) -> None:
        self._connections = connections
        self._waiting: list[tuple[frozenset[int], Work]] = []
        self._until_s: dict[int, float] = {}
        self._reopened: dict[Channel[Peer], tuple[float, float]] = {}

    def begin(self, num_bytes: Mapping[int, int], work: Work) -> None:
        """Queue so many bytes for each rank, behind whatever means something; `work` ends when they have left."""
        for rank, count in num_bytes.items():
            self._queue(self._connections.peers[rank], count)
        self._waiting.append((frozenset(num_bytes), work))

    def reopen(self, channel: Channel[Peer], now_s: float) -> None:
        """Open a connection's window again where it has closed; not too often. Raises PeerGoneError."""
        if self._waiting:
            return
        num_bytes = channel.closed_bytes()
        if not num_bytes:
            self._reopened.pop(channel, None)
            return
        due_s, pause_s = self._reopened.get(channel, (now_s, REOPEN_S))
        if now_s >= due_s:
            self._reopened[channel] = (now_s + pause_s, min(2 * pause_s, MAX_REOPEN_S))
            self._queue(channel.peer, 2 * num_bytes)

    def _queue(self, peer: Peer, count: int) -> None:
        self._until_s[peer.rank] = self._connections.now_s + WARM_S
        for start in range(0, count, FRAME_BYTES):
            payload = _ZEROS[: min(FRAME_BYTES, count - start)]
            peer.push_last(Header(Kind.WARM, len(payload)), payload)
        self._connections.touch(peer)

    def look(self) -> None:
        """End what is over, or has taken too long."""
        for rank in [rank for rank, until_s in self._until_s.items() if self._connections.now_s > until_s]:
            self._connections.peers[rank].drop_last()
            del self._until_s[rank]
        waiting, self._waiting = self._waiting, []
        for ranks, work in waiting:
            if any(self._connections.peers[rank].is_busy for rank in ranks):
                self._waiting.append((ranks, work))
            else:
                work.end()

    def release(self, error: PeerLostError) -> None:
        """Whoever waits is told why it does not end."""
        while self._waiting:
            self._waiting.pop()[1].end(error)
