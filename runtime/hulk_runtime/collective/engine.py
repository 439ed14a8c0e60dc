"""The thread that moves chunks: one loop over all connections, operations and timers of a rank.

It never blocks on a peer: what arrives is always taken, what must leave waits in the peer's queue by urgency. A peer
that closes, sends garbage or stays silent ends the group: every rank is told which one it was, so that all of them
raise the same error.
"""

import contextlib
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from hulk_runtime.collective.channel import Channel, Peer, PeerGoneError
from hulk_runtime.collective.failure import Failure, Verdict
from hulk_runtime.collective.frames import GarbageError, Header, Kind
from hulk_runtime.collective.hops import Hops
from hulk_runtime.collective.members import Membership, Regroup
from hulk_runtime.collective.members import pack as pack_view
from hulk_runtime.collective.members import parse as parse_view
from hulk_runtime.collective.operation import Operation, Outgoing
from hulk_runtime.collective.roles import Role
from hulk_runtime.collective.values import Values
from hulk_runtime.collective.work import LinkReport, Report, Work
from hulk_runtime.errors import MembershipChangedError, PeerLostError, RankLostError

MAX_EARLY_BYTES: Final = 1 << 30
"""Of chunks for operations that were not begun here yet; more is garbage."""
EARLY_FRAME_BYTES: Final = 200
"""What is counted for such a chunk beside its payload."""
MAX_AHEAD: Final = 1024
"""So many operations a peer may be ahead."""
TICK_S: Final = 0.1
"""Half of the least time after which TCP calls a connection idle."""
WARM_FRAME_BYTES: Final = 16 << 10
BEATS_PER_BOUND: Final = 8
"""A peer sends something at least so often in the bound."""
SILENT_SHARE: Final = 0.8
"""Of the bound: so long nothing is heard of a lost peer. The rest is for telling all others."""


@dataclass(frozen=True, slots=True)
class Order:
    """An all-reduce that somebody wants: `begin` is called when it begins, which is when `after` has ended.

    All ranks order the same in the same order, and what is ordered later begins later. One of the group's own is not
    `reported`.
    """

    values: Values
    begin: Callable[[], tuple[Sequence[Role], Hops]]
    epoch: int
    after: Work | None = None
    reported: bool = True


@dataclass
class _Running:
    order: Order
    operation: Operation
    work: Work
    begun_s: float
    num_unsent: int = 0
    links: dict[int, tuple[int, float]] = field(default_factory=dict)


class Engine(threading.Thread):
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
        super().__init__(name="hulk-collective", daemon=True)
        self._rank, self._peers, self._bound_s, self._hold_s = rank, peers, bound_s, hold_s
        self.membership, self._regions = membership, regions
        self._everybody = membership.members
        self._regroup: Regroup | None = None
        self._channels = {c.socket.fileno(): c for peer in peers.values() for c in peer.channels}
        self._poll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._poll.register(self._bell, select.EPOLLIN)
        self._commands: deque[Callable[[], None]] = deque()
        self._running: dict[int, _Running] = {}
        self._beginning: deque[tuple[_Running, Iterator[None]]] = deque()
        self._early: dict[tuple[int, int], list[tuple[Peer, Header, memoryview]]] = {}
        self._num_early_bytes = 0
        self._unchecked: dict[int, Header] = {}
        self._next = 0
        self._next_here = 0
        self._next_tick_s = time.monotonic()
        self._touched: set[Peer] = set()
        self._now_s = self._used_s = time.monotonic()
        self._closing = False
        self._closing_until_s = math.inf
        self._is_ended = False
        self._late: list[Work] = []
        self._held: deque[tuple[int, Order, Work]] = deque()
        self.verdict: Verdict | None = None
        self.reports: deque[Report] = deque(maxlen=1024)
        self._lock = threading.Lock()
        for peer in peers.values():
            peer.heard_s = self._now_s + first_s
        for channel in self._channels.values():
            self._poll.register(channel.socket, select.EPOLLIN)

    # Called from other threads.

    def all_reduce(self, order: Order) -> Work:
        """Begin to sum a vector over all ranks, in place. A caller that does not know of the epoch yet is told so."""
        with self._lock:
            work = Work(partial(self._blame, self._next), self._bound_s)
            if self._is_ended or order.epoch != self.membership.epoch:
                work.end(self._error())
                return work
            number, self._next = self._next, self._next + 1
            self._commands.append(lambda: self._enter(number, order, work))
            os.eventfd_write(self._bell, 1)
        return work

    def _blame(self, number: int, waited_s: float) -> None:
        """Somebody waited long enough: a peer that has not begun the operation is lost."""

        def find() -> None:
            older = max((running for running in self._running if running <= number), default=-1)
            late = [rank for rank, peer in self._peers.items() if peer.num_begun <= older and peer.channels]
            if late:
                self._fail(Failure(late[0], f"it did not begin all-reduce {older} within {waited_s:g} s"))

        self._do(find)

    def warm(self, num_bytes: Mapping[int, int]) -> None:
        """Send so many bytes without meaning to each peer, so that congestion windows open."""

        def push() -> None:
            for rank, count in num_bytes.items():
                self._push_warm(self._peers[rank], count)

        self._do(push)

    def fail(self, failure: Failure) -> None:
        """End the group because of something seen outside the loop."""
        self._do(lambda: self._fail(failure))

    def close(self) -> None:
        """Say goodbye and stop; peers do not take it for a failure."""
        if self.is_alive():
            self._do(self._leave)
            self.join()

    def _do(self, command: Callable[[], None]) -> None:
        """Have the loop do it; after its end nothing is done any more."""
        with self._lock:
            if not self._is_ended:
                self._commands.append(command)
                os.eventfd_write(self._bell, 1)

    # The loop.

    def run(self) -> None:
        """Serve until closed or failed."""
        try:
            while not self._is_over():
                events = self._poll.poll(0 if self._beginning else TICK_S)
                self._now_s = time.monotonic()
                for descriptor, what in events:
                    if descriptor == self._bell:
                        self._obey()
                    else:
                        channel = self._channels.get(descriptor)  # dropped by an event before it, perhaps
                        if channel is not None:
                            self._serve(channel, what)
                self._go_on_beginning()
                self._flush()
                self._keep_time()
        except Exception as error:
            self.verdict = Verdict(Failure(self._rank, f"its engine broke: {error!r}"), self._rank, self._now_s)
            raise
        finally:
            self._end()

    def _is_over(self) -> bool:
        connected = [peer.rank for peer in self._peers.values() if peer.channels]
        if self.verdict is not None:
            if self.verdict.is_settled(self._now_s, connected):
                self._release(self._error())
                self._finish()
            return not connected or self.verdict.is_late(self._now_s)
        if self._closing and not any(peer.is_busy for peer in self._peers.values()):
            self._finish()
            return not connected or self._now_s > self._closing_until_s
        return False

    def _is_whole(self) -> bool:
        """Whether nobody was lost that the group has not got over."""
        return self.verdict is None and self._regroup is None

    def _members(self) -> list[Peer]:
        return [peer for rank, peer in self._peers.items() if rank in self.membership.members]

    def _obey(self) -> None:
        os.eventfd_read(self._bell)
        while self._commands:
            self._commands.popleft()()

    def _serve(self, channel: Channel, what: int) -> None:
        peer = channel.peer
        try:
            if what & ~select.EPOLLOUT:
                channel.receive(self, self._now_s)
            if what & select.EPOLLOUT:
                self._touched.add(peer)
        except PeerGoneError as error:
            self._gone(channel, error)
        except GarbageError as error:
            self._reject(peer, error)

    def _gone(self, channel: Channel, error: PeerGoneError) -> None:
        """The other end closed: a peer that said goodbye may, when nothing is awaited of it."""
        peer = channel.peer
        self._drop(channel)
        if self.verdict is not None or peer.rank not in self.membership.members or (peer.has_left and peer.channels):
            return
        if not peer.has_left:
            self._lose([Failure(peer.rank, str(error))])
        elif any(running.operation.awaits(peer.rank) for running in self._running.values()):
            self._fail(Failure(peer.rank, "it left in the middle of an all-reduce"))

    def _reject(self, peer: Peer, error: GarbageError) -> None:
        """What it sends is not understood: it is told why, as all are, and read no further."""
        self._fail(Failure(peer.rank, f"it sent garbage: {error}"))
        for channel in list(peer.channels):
            with contextlib.suppress(PeerGoneError):
                channel.send(self._now_s)
            self._drop(channel)

    def _flush(self) -> None:
        """Send what waits for the peers that something happened to."""
        touched, self._touched = self._touched, set()
        for peer in touched:
            for channel in list(peer.channels):
                with self._watch(channel):
                    self._send(channel)

    @contextlib.contextmanager
    def _watch(self, channel: Channel) -> Iterator[None]:
        try:
            yield
        except PeerGoneError as error:
            self._gone(channel, error)

    def _send(self, channel: Channel) -> None:
        wanted = channel.wants_write
        channel.release(self._beat())
        for chunk in channel.send(self._now_s):
            self._sent(chunk)
        if channel.wants_write != wanted:
            self._poll.modify(channel.socket, select.EPOLLIN | (select.EPOLLOUT if channel.wants_write else 0))

    def _sent(self, chunk: Outgoing) -> None:
        running = self._running.get(chunk.urgency[0])
        if running is not None:
            running.num_unsent -= 1
            self._check(running)

    def _keep_time(self) -> None:
        if self._now_s < self._next_tick_s:
            return
        if self._now_s > self._next_tick_s + self._bound_s / 2:  # it was this process that stood still
            for peer in self._peers.values():
                peer.heard_s = self._now_s
        self._next_tick_s = self._now_s + TICK_S
        for peer in self._peers.values():
            if not peer.channels:
                continue
            if self._now_s - peer.beat_s > self._bound_s / BEATS_PER_BOUND:
                peer.beat_s = self._now_s
                if not any(channel.is_held for channel in peer.channels):
                    peer.push_first(self._beat())
                    self._touched.add(peer)
            silent_s = SILENT_SHARE * self._bound_s
            if self._now_s - peer.heard_s > silent_s and self.verdict is None and not self._may_be_silent(peer):
                self._lose([Failure(peer.rank, f"nothing was heard of it for {silent_s:g} s")])
        self._settle()
        self._keep_windows()
        self._flush()

    def _may_be_silent(self, peer: Peer) -> bool:
        """It said goodbye, and nothing is awaited of it."""
        return peer.has_left and not any(running.operation.awaits(peer.rank) for running in self._running.values())

    # Frames (the channels' sink).

    def place(self, peer: Peer, header: Header) -> memoryview:
        """Memory for a frame that arrives."""
        if header.epoch > self.membership.epoch + (self._regroup is not None):
            raise GarbageError(f"a frame of epoch {header.epoch} in epoch {self.membership.epoch}")
        place = self._place_chunk(peer, header) if self._is_wanted(header) else None
        return memoryview(bytearray(header.num_bytes)) if place is None else place

    def _is_wanted(self, header: Header) -> bool:
        """Whether it is a chunk that still means something: of this epoch, or already of the next one."""
        if header.kind is not Kind.CHUNK or self.verdict is not None:
            return False
        return header.epoch == self.membership.epoch + (self._regroup is not None)

    def _require_ranks(self, failures: Sequence[Failure]) -> None:
        unknown = [failure.rank for failure in failures if failure.rank not in self._everybody]
        if unknown:
            raise GarbageError(f"a loss of ranks {unknown}, which do not exist")

    def _place_chunk(self, peer: Peer, header: Header) -> memoryview | None:
        running = self._running.get(header.operation) if self._is_whole() else None
        if running is not None:
            return running.operation.place(peer.rank, header)
        if self._is_whole() and header.operation < self._next_here:
            raise GarbageError(f"a chunk of operation {header.operation}, which has ended")
        if header.operation >= self._next_here + MAX_AHEAD:
            raise GarbageError(f"a chunk of operation {header.operation}, only {self._next_here} were begun here")
        self._num_early_bytes += header.num_bytes + EARLY_FRAME_BYTES
        if self._num_early_bytes > MAX_EARLY_BYTES:
            raise GarbageError(f"{self._num_early_bytes} bytes of operations that were not begun here")
        self._unchecked[id(header)] = header
        return None

    def arrived(self, peer: Peer, header: Header, payload: memoryview) -> None:
        """A whole frame is here."""
        if header.kind is Kind.ABORT:
            failure = Failure.parse(payload)
            self._require_ranks([failure])
            self._fail(failure, told_by=peer.rank)
        elif header.kind is Kind.VIEW:
            self._hear(peer, header.epoch, payload)
        elif header.kind is Kind.BEAT:
            peer.num_begun = header.operation if header.epoch == self.membership.epoch else 0
        elif header.kind is Kind.LEAVE:
            peer.has_left = True
        elif self._is_wanted(header):
            running = self._running.get(header.operation) if self._is_whole() else None
            if running is None:
                self._early.setdefault((header.epoch, header.operation), []).append((peer, header, payload))
            elif id(header) in self._unchecked:
                self._take_early(running, peer, header, payload)
            else:
                self._take(running, peer, header, payload)

    def _take_early(self, running: _Running, peer: Peer, header: Header, payload: memoryview) -> None:
        """A chunk that came, or began to come, before its operation was begun here. Raises GarbageError."""
        del self._unchecked[id(header)]
        self._num_early_bytes -= header.num_bytes + EARLY_FRAME_BYTES
        place = running.operation.place(peer.rank, header)
        if place is not None:
            place[:] = payload
        self._take(running, peer, header, payload)

    def _take(self, running: _Running, peer: Peer, header: Header, payload: memoryview) -> None:
        num_bytes, _ = running.links.get(peer.rank, (0, 0.0))
        running.links[peer.rank] = (num_bytes + len(payload), self._now_s - running.begun_s)
        running.operation.arrived(peer.rank, header, payload)
        self._check(running)

    # Operations.

    def _enter(self, number: int, order: Order, work: Work) -> None:
        if order.after is not None:
            order.after.on_end(lambda _: self._do(self._begin_held))
        self._held.append((number, order, work))
        self._begin_held()

    def _begin_held(self) -> None:
        """In their order, up to one that still has to wait."""
        while self._held and (self._held[0][1].after is None or self._held[0][1].after.is_done):
            self._begin(*self._held.popleft())

    def _begin(self, number: int, order: Order, work: Work) -> None:
        if order.epoch != self.membership.epoch:
            work.end(self._error())
            return
        gone = [peer.rank for peer in self._members() if not peer.channels or peer.has_left]
        if gone and self._is_whole():
            self._fail(Failure(gone[0], "it left before an all-reduce"))
        if not self._is_whole() or self._closing:
            self._late.append(work)
            return
        operation = Operation(number, order.epoch, self._rank, order.values, *order.begin(), self._queue)
        running = _Running(order, operation, work, time.monotonic())
        self._running[number] = running
        self._next_here = number + 1
        self._beginning.append((running, operation.begin()))
        for peer, header, payload in self._early.pop((order.epoch, number), ()):
            try:
                self._take_early(running, peer, header, payload)
            except GarbageError as error:
                self._reject(peer, error)
                return
        self._check(running)

    def _go_on_beginning(self) -> None:
        """A part of the oldest operation that has not sent all it can: frames come and go between the parts."""
        while self._beginning:
            running, parts = self._beginning[0]
            if running.operation.number in self._running and next(parts, running) is None:
                return
            self._beginning.popleft()
            self._check(running)

    def _queue(self, chunk: Outgoing) -> None:
        peer = self._peers[chunk.target]
        peer.push(chunk)
        self._touched.add(peer)
        self._running[chunk.urgency[0]].num_unsent += 1

    def _check(self, running: _Running) -> None:
        """End an operation whose chunks have all come and gone."""
        number = running.operation.number
        if running.operation.num_pending or running.num_unsent or number not in self._running:
            return
        del self._running[number]
        self._used_s = self._now_s
        if running.order.reported:
            self.reports.append(self._report(running))
        running.work.end()

    def _report(self, running: _Running) -> Report:
        values = running.order.values
        links = {rank: LinkReport(*found, self._peers[rank].carried()[0]) for rank, found in running.links.items()}
        seconds = time.monotonic() - running.begun_s
        return Report(running.operation.number, values.num_bytes, seconds, links)

    def _beat(self) -> bytes:
        """The frame that says that this rank lives, and how far it is."""
        return Header(Kind.BEAT, epoch=self.membership.epoch, operation=self._next_here).pack()

    def _keep_windows(self) -> None:
        """In a pause, for a while: connections to other regions keep their congestion windows."""
        is_pause = self._is_whole() and not self._running and not self._closing
        for peer in self._peers.values() if is_pause else ():
            if not peer.is_far or peer.has_left or peer.has_frames:
                continue
            for channel in list(peer.channels):
                with self._watch(channel):
                    if self._now_s - self._used_s > self._hold_s:
                        channel.release(self._beat())
                    else:
                        channel.hold(self._beat())

    def _push_warm(self, peer: Peer, count: int) -> None:
        for start in range(0, count, WARM_FRAME_BYTES):
            payload = memoryview(bytes(min(WARM_FRAME_BYTES, count - start)))
            peer.push_last(Header(Kind.WARM, len(payload)), payload)
        self._touched.add(peer)

    # Ends.

    def _leave(self) -> None:
        self._closing, self._closing_until_s = True, self._now_s + self._bound_s
        for peer in self._peers.values():
            if peer.channels:
                peer.push_first(Header(Kind.LEAVE).pack())
                self._touched.add(peer)

    def _drop(self, channel: Channel) -> None:
        if self._channels.pop(channel.socket.fileno(), None) is not None:
            self._poll.unregister(channel.socket)
            channel.peer.channels.remove(channel)
            channel.socket.close()

    def _fail(self, failure: Failure, told_by: int | None = None) -> None:
        """Tell every peer, once, and collect what they say; the group ends when all have said something."""
        teller = self._rank if told_by is None else told_by
        if self.verdict is not None:
            self.verdict.add(failure, teller)
            return
        self.verdict = Verdict(failure, teller, self._now_s)
        for channel in self._channels.values():
            channel.divert()
        for peer in self._peers.values():
            peer.drop_chunks()
            if peer.channels:
                payload = memoryview(failure.pack())
                peer.push_first(Header(Kind.ABORT, len(payload)).pack(), payload)
                self._touched.add(peer)

    def _lose(self, losses: Sequence[Failure]) -> None:
        """Members were lost: the group ends, or those who are left find out whether they may go on."""
        if not self._regions:
            self._fail(losses[0])
            return
        if self._regroup is None:
            self._suspend()
        assert self._regroup is not None
        self._say(self._regroup.lose(losses))

    def _suspend(self) -> None:
        """Operations stop where they are; what arrives of them is not wanted any more."""
        deadline_s = self._now_s + self._bound_s / 2
        self._regroup = Regroup(self._rank, self.membership, self._regions, deadline_s)
        for channel in self._channels.values():
            channel.divert()
        for peer in self._peers.values():
            peer.drop_chunks()

    def _hear(self, peer: Peer, epoch: int, payload: memoryview) -> None:
        """A member says whom it has lost."""
        losses = parse_view(payload)
        self._require_ranks(losses)
        if self.verdict is not None:
            return
        if not self._regions or epoch != self.membership.epoch:
            self._fail(min(losses))
            return
        if self._regroup is None:
            self._suspend()
        assert self._regroup is not None
        self._say(self._regroup.hear(peer.rank, losses))
        self._settle()

    def _say(self, new: frozenset[int]) -> None:
        """Tell those who are left whom they have lost, and talk to lost ones no more."""
        assert self._regroup is not None
        for rank in new & self._peers.keys():
            for channel in list(self._peers[rank].channels):
                self._drop(channel)
        if new:
            payload = memoryview(pack_view(self._regroup.losses.values()))
            for peer in self._members():
                if peer.channels:
                    peer.push_first(Header(Kind.VIEW, len(payload), self.membership.epoch).pack(), payload)
                    self._touched.add(peer)

    def _settle(self) -> None:
        """Go on in a new epoch, or end, when that is decided."""
        if self._regroup is None or self.verdict is not None:
            return
        outcome = self._regroup.outcome(self._now_s)
        if isinstance(outcome, Failure):
            self._fail(outcome)
        elif outcome is not None:
            with self._lock:
                self.membership, self._next = outcome, 0
            self._regroup, self._next_here = None, 0
            self._early = {key: frames for key, frames in self._early.items() if key[0] == outcome.epoch}
            self._unchecked = {key: h for key, h in self._unchecked.items() if h.epoch == outcome.epoch}
            self._num_early_bytes = sum(
                header.num_bytes + EARLY_FRAME_BYTES for _, header, _ in chain(*self._early.values())
            )
            for peer in self._peers.values():
                peer.num_begun = 0
            self._release(self._error())

    def _release(self, error: PeerLostError) -> None:
        """Whoever waits for an operation is told why it does not end."""
        for running in self._running.values():
            running.work.end(error)
        self._running.clear()
        self._beginning.clear()
        self._late += [work for _, _, work in self._held]
        self._held.clear()
        while self._late:
            self._late.pop().end(error)

    def _finish(self) -> None:
        """Nothing more is sent; what was sent still arrives, because reading goes on until the other ends close."""
        for channel in self._channels.values():
            channel.finish()

    def _error(self) -> PeerLostError:
        if self.verdict is not None:
            return RankLostError(self.verdict.failure.rank, self.verdict.failure.reason)
        if self.membership.epoch and not self._closing:
            num_members = len(self.membership.members)
            return MembershipChangedError(f"{num_members} ranks go on in epoch {self.membership.epoch}")
        return PeerLostError("the group was closed")

    def _end(self) -> None:
        """Close everything; from now on `_do` ends what it is given."""
        with self._lock:
            self._is_ended = True
        self._closing = True
        while self._commands:
            self._commands.popleft()()
        self._release(self._error())
        for channel in list(self._channels.values()):
            self._drop(channel)
        self._poll.close()
        os.close(self._bell)
