"""What a rank does by the clock: it says that it lives, loses peers that say nothing, and keeps windows in pauses."""

import time
from collections.abc import Iterator

from hulk_runtime.collective.connections.channel import Channel
from hulk_runtime.collective.connections.connection_set import ConnectionSet
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.connections.tcp_warmup import TcpWarmup
from hulk_runtime.collective.loop.group_state import GroupState
from hulk_runtime.collective.loop.operations import Operations
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.wire.failure import Failure


class Heartbeat:
    """One rank's clock. `hold_s`: so long a pause may be until congestion windows are let go."""

    def __init__(
        self,
        connections: ConnectionSet,
        group_state: GroupState,
        operations: Operations,
        warmup: TcpWarmup,
        bounds: LossTimeouts,
        hold_s: float,
    ) -> None:
        self._connections, self._group_state, self._operations = connections, group_state, operations
        self._warmup, self._bounds, self._hold_s = warmup, bounds, hold_s
        self._next_tick_s = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to `tick`."""
        return self._connections.now_s >= self._next_tick_s

    @property
    def frame(self) -> bytes:
        """Says that this rank lives, and how far it is."""
        return self._operations.beat()

    def tick(self) -> None:
        """Look at every peer."""
        now_s, peers = self._connections.now_s, self._connections.peers.values()
        if now_s > self._next_tick_s + self._bounds.pause_s:  # it was this process that stood still
            for peer in peers:
                peer.last_seen_s = max(peer.last_seen_s, now_s)
        self._next_tick_s = now_s + self._bounds.tick_s
        for peer in peers:
            if peer.channels:
                self._beat(peer)
                self._require_sound(peer)

    def _beat(self, peer: Peer) -> None:
        if self._connections.now_s - peer.beat_s > self._bounds.beat_s:
            peer.beat_s = self._connections.now_s
            if not any(channel.is_held for channel in peer.channels):
                self._connections.push_first(peer, self.frame)

    def _require_sound(self, peer: Peer) -> None:
        """A peer that says nothing for too long is lost, unless it said goodbye and nothing is awaited of it."""
        if self._group_state.has_word_of(peer.rank):
            return
        silent_s, now_s = self._bounds.silent_s, self._connections.now_s
        if peer.broken is not None and not peer.has_left and now_s - peer.broken[0] > self._bounds.settle_s:
            self._group_state.lose(Failure(peer.rank, peer.broken[1]))
        if now_s - peer.last_seen_s <= silent_s:
            return
        if not peer.has_left or self._operations.awaits(peer.rank):
            self._group_state.lose(Failure(peer.rank, f"nothing was heard of it for {silent_s:g} s"))

    def resting(self) -> Iterator[Channel[Peer]]:
        """The connections to other regions on which nothing waits, also while an all-reduce waits for somebody."""
        if not self._group_state.is_whole or self._group_state.is_closing:
            return
        for peer in self._connections.peers.values():
            if peer.is_far and not peer.has_left and not peer.has_frames:
                yield from list(peer.channels)

    def rest(self, channel: Channel[Peer]) -> None:
        """Keep a connection's window, or open it again; not for ever. Raises PeerGoneError."""
        is_idle, now_s = self._operations.is_idle, self._connections.now_s
        if is_idle and now_s - self._operations.used_s > self._hold_s:
            channel.release()
            return
        channel.hold(self.frame)
        if is_idle:
            self._warmup.reopen(channel, now_s)
