"""All connections of one rank: what happens on them, and whom something waits to be sent to.

Nothing here blocks but `wait`, which a bell ends too.
"""

import os
import select
import time
from collections.abc import Iterator, Mapping
from typing import Final

from hulk_runtime.collective.connections.channel import Channel
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.reduction.operation import Outgoing

WRITABLE: Final = select.EPOLLOUT


class ConnectionSet:
    """The peers and their channels. `now_s` is when something happened last; peers may be silent until `first_s`.

    Where a peer has several channels, one breaks that acknowledges nothing for `stalled_s`.
    """

    def __init__(self, peers: Mapping[int, Peer], first_s: float, stalled_s: float) -> None:
        self.peers = peers
        self.now_s = time.monotonic()
        self._stalled_s = stalled_s
        self._channels: dict[int, Channel[Peer]] = {}
        self._touched: set[Peer] = set()
        self._is_finished = False
        self._poll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._poll.register(self._bell, select.EPOLLIN)
        for peer in peers.values():
            peer.last_seen_s = self.now_s + first_s
            for channel in peer.channels:
                self._watch(channel)

    def ring(self) -> None:
        """End the wait, from any thread."""
        os.eventfd_write(self._bell, 1)

    def wait(self, timeout_s: float) -> Iterator[tuple[Channel[Peer] | None, int]]:
        """What happens next, by channel with epoll's bits; None is the bell."""
        events = self._poll.poll(timeout_s)
        self.now_s = time.monotonic()
        for descriptor, what in events:
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
                yield None, what
            elif descriptor in self._channels:  # not dropped by an event before it
                yield self._channels[descriptor], what

    @property
    def channels(self) -> list[Channel[Peer]]:
        """Those that are open."""
        return list(self._channels.values())

    @property
    def connected(self) -> list[int]:
        """The ranks that there is a connection to."""
        return [peer.rank for peer in self.peers.values() if peer.channels]

    @property
    def is_busy(self) -> bool:
        """Whether anything still has to leave."""
        return any(peer.is_busy for peer in self.peers.values())

    def push(self, chunk: Outgoing) -> None:
        """Queue a chunk by its urgency."""
        peer = self.peers[chunk.target]
        peer.push(chunk)
        self._touched.add(peer)

    def push_first(self, peer: Peer, head: bytes, payload: memoryview | None = None) -> None:
        """Queue a frame that goes before all chunks, where there is a connection."""
        if peer.channels and not self._is_finished:
            peer.push_first(head, payload)
            self._touched.add(peer)

    def touch(self, peer: Peer) -> None:
        """Something waits to be sent to it, perhaps."""
        self._touched.add(peer)

    def touched(self) -> set[Peer]:
        """The peers that something happened to since this was asked last."""
        found, self._touched = self._touched, set()
        return found

    def send(self, channel: Channel[Peer]) -> list[Outgoing]:
        """What waits for its peer; the chunks that left whole. Raises PeerGoneError."""
        wanted = channel.wants_write
        channel.release()
        left = channel.send()
        if channel.wants_write != wanted:
            self._poll.modify(channel.socket, select.EPOLLIN | (WRITABLE if channel.wants_write else 0))
        return left

    def add(self, channel: Channel[Peer]) -> None:
        """Another connection to a peer."""
        channel.peer.channels.append(channel)
        self._watch(channel)

    def _watch(self, channel: Channel[Peer]) -> None:
        self._channels[channel.socket.fileno()] = channel
        self._poll.register(channel.socket, select.EPOLLIN)
        if len(channel.peer.channels) > 1:
            for each in channel.peer.channels:
                each.set_timeout(self._stalled_s)

    def forget_chunks(self) -> None:
        """What waits and what is under way belongs to nothing any more."""
        for channel in self._channels.values():
            channel.divert()
        for peer in self.peers.values():
            peer.drop_chunks()

    def drop(self, channel: Channel[Peer]) -> None:
        """Close a connection."""
        if self._channels.pop(channel.socket.fileno(), None) is not None:
            self._poll.unregister(channel.socket)
            channel.peer.channels.remove(channel)
            channel.socket.close()

    def finish(self) -> None:
        """Nothing more is sent; what was sent still arrives, because reading goes on until the other ends close."""
        self._is_finished = True
        for channel in self._channels.values():
            channel.finish()

    def forsake(self) -> None:
        """Close this process's copies of everything, of which another process goes on with its own."""
        for channel in self._channels.values():
            channel.socket.close()
        self._poll.close()
        os.close(self._bell)

    def close(self) -> None:
        """Close everything."""
        for channel in self.channels:
            self.drop(channel)
        self._poll.close()
        os.close(self._bell)
