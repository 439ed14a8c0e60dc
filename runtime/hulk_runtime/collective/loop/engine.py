"""The thread that moves chunks: one loop over all connections, operations and timers of a rank.

It never blocks on a peer: what arrives is always taken, what must leave waits in the peer's queue by urgency. A peer
that closes, sends garbage or stays silent ends the group: every rank is told which one it was, so that all of them
raise the same error.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from hulk_runtime import background
from hulk_runtime.collective.connections.channel import Channel, PeerGoneError
from hulk_runtime.collective.connections.connection_set import WRITABLE, ConnectionSet
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.connections.tcp_warmup import TcpWarmup
from hulk_runtime.collective.loop.group_state import GroupState
from hulk_runtime.collective.loop.heartbeat import Heartbeat
from hulk_runtime.collective.loop.operation_timeout import OperationTimeout
from hulk_runtime.collective.loop.operations import Operations, Order
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.reduction.handle import Report, Work
from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.frames import GarbageError, Header, Kind
from hulk_runtime.collective.wire.membership import Membership
from hulk_runtime.collective.wire.records import TamperedError
from hulk_runtime.errors import PeerLostError


class Engine(background.Thread):
    """The loop. `bound_s`: within it every rank knows of a peer that is lost. A peer may still wait for others when it
    has connected here: it is given `first_s` more for its first frame.

    `regions` are the ranks of each region where the others may go on when one is cut off; empty where they may not.
    """

    def __init__(
        self,
        rank: int,
        peers: Mapping[int, Peer],
        bound_s: float,
        hold_s: float,
        first_s: float,
        membership: Membership,
        regions: Sequence[frozenset[int]],
    ) -> None:
        super().__init__("hulk-collective", self._serve_all, broke=self._told)
        self._rank, self._bounds = rank, LossTimeouts(bound_s)
        self._connections = ConnectionSet(peers, first_s, self._bounds.stalled_s)
        self._group_state = GroupState(rank, self._connections, self._bounds, membership, regions)
        self._operations = Operations(rank, self._connections, self._group_state, self.do, self._reject)
        self._warmup = TcpWarmup(self._connections)
        self._heartbeat = Heartbeat(
            self._connections, self._group_state, self._operations, self._warmup, self._bounds, hold_s
        )
        self._timeout = OperationTimeout(rank, self._connections, self._group_state, self._operations, self._bounds)
        self._commands: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._next = 0
        self._is_ended = False
        self._closing_until_s = math.inf

    # Called from other threads.

    def all_reduce(self, order: Order) -> Work:
        """Begin to sum a vector over all ranks, in place. A caller that does not know of the epoch yet is told so."""
        with self._lock:
            number = self._next
            work = Work(lambda waited_s: self._overdue(number, work, waited_s), self._bounds.bound_s)
            if self._is_ended or order.epoch != self._group_state.membership.epoch:
                work.end(self._group_state.error())
                return work
            self._next += 1
            self._commands.append(lambda: self._operations.enter(number, order, work))
            self._connections.ring()
        return work

    @property
    def membership(self) -> Membership:
        """Who takes part now."""
        return self._group_state.membership

    def error(self) -> PeerLostError:
        """What whoever waits is told at the end."""
        return self._group_state.error()

    @property
    def reports(self) -> Sequence[Report]:
        """What the last all-reduces took."""
        return self._operations.reports

    def warm(self, num_bytes: Mapping[int, int]) -> Work:
        """Open congestion windows by so many bytes without meaning to each peer; ends when they have left."""
        work = Work(lambda _: None, self._bounds.bound_s)
        if not self._take(lambda: self._warmup.begin(num_bytes, work)):
            work.end(self._group_state.error())
        return work

    def add(self, channels: Sequence[Channel[Peer]]) -> None:
        """More connections to peers; closed where the loop has ended, or the peer has gone."""

        def join() -> None:
            for channel in channels:
                if channel.peer.rank in self.membership.members and channel.peer.channels:
                    self._connections.add(channel)
                else:
                    channel.socket.close()

        if not self._take(join):
            for channel in channels:
                channel.socket.close()

    def fail(self, failure: Failure, epoch: int | None = None) -> None:
        """End the group because of something seen outside the loop; with `epoch` only if that still lasts."""

        def find() -> None:
            if epoch is None or (self._group_state.is_whole and self.membership.epoch == epoch):
                self._group_state.fail(failure)

        self.do(find)

    def close(self) -> None:
        """Say goodbye and stop; peers do not take it for a failure."""
        if self.is_alive():
            self.do(self._leave)
            self.join()

    def forsake(self) -> None:
        """In a forked child, which has no such thread: it holds the parent's connections open no longer."""
        if not self._is_ended:
            self._is_ended = True
            self._connections.forsake()

    def do(self, command: Callable[[], None]) -> None:
        """Have the loop do it; after its end nothing is done any more."""
        self._take(command)

    def _take(self, command: Callable[[], None]) -> bool:
        """Whether the loop will do it."""
        with self._lock:
            if not self._is_ended:
                self._commands.append(command)
                self._connections.ring()
            return not self._is_ended

    def _overdue(self, number: int, work: Work, waited_s: float) -> None:
        self.do(lambda: self._timeout.end(number, work, waited_s))

    # The loop.

    def _serve_all(self) -> None:
        """Until closed or failed. An engine that breaks names itself, and still tells the others."""
        try:
            self._loop()
        except Exception as error:
            for channel in self._connections.channels:
                channel.deafen()
            self._group_state.fail(Failure(self._rank, f"its engine broke: {error!r}"))
            self._flush()
            self._loop()
            raise
        finally:
            self._end()

    def _told(self, name: str, error: BaseException) -> None:
        """Whoever waits, here and elsewhere, has the group's error by now, which names this rank."""

    def _loop(self) -> None:
        while not self._is_over():
            self._obey()
            is_due = bool(self._commands) or self._operations.is_beginning
            for channel, what in self._connections.wait(0 if is_due else self._bounds.tick_s):
                if channel is None:
                    self._obey()
                else:
                    self._serve(channel, what)
            self._operations.go_on_beginning()
            self._flush()
            self._keep_time()

    def _is_over(self) -> bool:
        connected, verdict, now_s = self._connections.connected, self._group_state.verdict, self._connections.now_s
        if verdict is not None:
            if verdict.is_settled(now_s, connected):
                self._release()
                self._connections.finish()
            return not connected or verdict.is_late(now_s)
        if self._group_state.is_closing and not self._connections.is_busy:
            self._connections.finish()
            return not connected or now_s > self._closing_until_s
        return False

    def _obey(self) -> None:
        """What others had the loop do, for a tick at most: there may be ever more, and peers wait to be served."""
        until_s = time.monotonic() + self._bounds.tick_s
        while self._commands and time.monotonic() < until_s:
            self._commands.popleft()()

    def _serve(self, channel: Channel[Peer], what: int) -> None:
        peer = channel.peer
        try:
            if what & ~WRITABLE:
                channel.receive(self, self._connections.now_s)
            if what & WRITABLE:
                self._connections.touch(peer)
        except PeerGoneError as error:
            self._gone(channel, error)
        except TamperedError as error:
            self._distrust(peer, error)
        except GarbageError as error:
            self._reject(peer, error)

    def _gone(self, channel: Channel[Peer], error: PeerGoneError) -> None:
        """The other end closed: a peer that said goodbye may, when nothing is awaited of it."""
        peer, group_state = channel.peer, self._group_state
        self._connections.drop(channel)
        is_member = peer.rank in group_state.membership.members
        if group_state.verdict is not None or not is_member:
            return
        if peer.channels:  # its goodbye may still be on its way on another one
            peer.broken = peer.broken or (self._connections.now_s, str(error))
        elif not peer.has_left:
            group_state.lose(Failure(peer.rank, str(error)))
        elif self._operations.awaits(peer.rank):
            group_state.fail(Failure(peer.rank, "it left in the middle of an all-reduce"))

    def _reject(self, peer: Peer, error: GarbageError) -> None:
        """What it sends is not understood: it is told why, as all are, and heard no further.

        Its connections stay until it closes: closed upon what was not read yet, they would take the reason with them.
        """
        self._group_state.fail(Failure(peer.rank, f"it sent garbage: {error}"))
        for channel in peer.channels:
            channel.deafen()

    def _distrust(self, peer: Peer, error: TamperedError) -> None:
        """Somebody on the way to it plays with its bytes: it is lost like one that was cut off, and heard no further.

        What is sent to it may still arrive: where the group ends, it is told why.
        """
        for channel in peer.channels:
            channel.deafen()
        self._group_state.lose(Failure(peer.rank, str(error)))

    def _flush(self) -> None:
        """Send what waits for the peers that something happened to."""
        for peer in self._connections.touched():
            for channel in list(peer.channels):
                with self._watch(channel):
                    for chunk in self._connections.send(channel):
                        self._operations.sent(chunk)

    @contextlib.contextmanager
    def _watch(self, channel: Channel[Peer]) -> Iterator[None]:
        try:
            yield
        except PeerGoneError as error:
            self._gone(channel, error)

    def _keep_time(self) -> None:
        if self._heartbeat.is_due:
            self._heartbeat.tick()
            self._timeout.look()
            self._settle()
            self._warmup.look()
            for channel in self._heartbeat.resting():
                with self._watch(channel):
                    self._heartbeat.rest(channel)
            self._flush()

    # Frames (the channels' sink).

    def place(self, peer: Peer, header: Header) -> memoryview:
        """Memory for a frame that arrives."""
        place = self._operations.place(peer, header) if self._group_state.wants(header) else None
        return memoryview(bytearray(header.num_bytes)) if place is None else place

    def arrived(self, peer: Peer, header: Header, payload: memoryview) -> None:
        """A whole frame is here."""
        if header.kind is Kind.CHUNK:
            if self._group_state.wants(header):
                self._operations.arrived(peer, header, payload)
        elif header.kind is Kind.ABORT:
            self._group_state.told(peer, payload)
        elif header.kind is Kind.VIEW:
            self._group_state.hear(peer, header.epoch, payload)
            self._settle()
        elif header.kind is Kind.BEAT:
            if header.epoch == self.membership.epoch:
                peer.has_begun(header.operation - 1)
                peer.told_s = self._connections.now_s
                peer.ahead.begun(header.chunk)
            if peer.has_frames:
                self._connections.touch(peer)
        elif header.kind is Kind.LEAVE:
            peer.has_left = True

    # Ends.

    def _settle(self) -> None:
        """Go on in a new epoch, or end, when that is decided."""
        membership = self._group_state.agreed()
        if membership is not None:
            with self._lock:
                self._group_state.adopt(membership)
                self._next = 0
            self._operations.begin_epoch(membership.epoch)
            self._release()
            self._group_state.hear_early()

    def _release(self) -> None:
        error = self._group_state.error()
        self._operations.release(error)
        self._warmup.release(error)

    def _leave(self) -> None:
        self._closing_until_s = self._connections.now_s + self._bounds.bound_s
        self._group_state.leave()

    def _end(self) -> None:
        """Close everything; from now on `do` ends what it is given."""
        with self._lock:
            self._is_ended = True
        self._group_state.is_closing = True
        while self._commands:
            self._obey()
        self._release()
        self._connections.close()
