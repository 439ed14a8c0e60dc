"""All-reduces of one rank: each begins in its turn, takes its chunks, and ends when all have come and gone."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hulk_runtime.collective.connections.connection_set import ConnectionSet
from hulk_runtime.collective.connections.early_chunks import BegunNotices, EarlyChunks
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.loop.group_state import GroupState
from hulk_runtime.collective.planned.roles import Role
from hulk_runtime.collective.reduction.handle import LinkReport, Report, Work
from hulk_runtime.collective.reduction.hop_encoding import Hops
from hulk_runtime.collective.reduction.operation import Operation, Outgoing
from hulk_runtime.collective.reduction.vector import Values
from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.frames import GarbageError, Header
from hulk_runtime.errors import PeerLostError


@dataclass(frozen=True, slots=True)
class Order:
    """An all-reduce that somebody wants: `begin` is called when it begins, which is when all of `after` have ended.

    All ranks order the same in the same order, and what is ordered later begins later. `then` is called when the sum is
    there, and calls back, from any thread, when the all-reduce has ended. One of the group's own is not `reported`.
    """

    values: Values
    begin: Callable[[], tuple[Sequence[Role], Hops]]
    epoch: int
    after: Sequence[Work] = ()
    then: Callable[[Callable[[], None]], None] | None = None
    reported: bool = True

    @property
    def may_begin(self) -> bool:
        """Whether it waits for nothing but its turn."""
        return all(work.is_done for work in self.after)


@dataclass
class _Running:
    order: Order
    operation: Operation
    work: Work
    begun_s: float
    num_unsent: int = 0
    is_summed: bool = False
    links: dict[int, tuple[int, float]] = field(default_factory=dict)


class Operations:
    """Those that run and those that wait for their turn. `used_s` is when one ended last.

    `do` has the engine's thread do something, `reject` is told of a peer whose early chunks are garbage.
    """

    def __init__(
        self,
        rank: int,
        connections: ConnectionSet,
        group_state: GroupState,
        do: Callable[[Callable[[], None]], None],
        reject: Callable[[Peer, GarbageError], None],
    ) -> None:
        self._rank, self._connections, self._group_state, self._do, self._reject = (
            rank,
            connections,
            group_state,
            do,
            reject,
        )
        self._held: deque[tuple[int, Order, Work]] = deque()
        self._beginning: deque[tuple[_Running, Iterator[None]]] = deque()
        self._running: dict[int, _Running] = {}
        self._late: list[Work] = []
        self._early, self._notices = EarlyChunks[Peer](), BegunNotices()
        self.num_entered = self.num_begun = 0
        self.used_s = connections.now_s
        self.reports: deque[Report] = deque(maxlen=1024)

    @property
    def is_idle(self) -> bool:
        """Whether none runs."""
        return not self._running

    @property
    def is_beginning(self) -> bool:
        """Whether one has not sent all it can."""
        return bool(self._beginning)

    def awaits(self, rank: int) -> bool:
        """Whether a rank still has to send something."""
        return any(running.operation.awaits(rank) for running in self._running.values())

    def late_for(self, number: int) -> list[Peer]:
        """Those that were not heard to have begun it, by rank."""
        late = [peer for peer in self._connections.peers.values() if peer.num_begun <= number and peer.channels]
        return sorted(late, key=lambda peer: peer.rank)

    # From order to beginning.

    def enter(self, number: int, order: Order, work: Work) -> None:
        """Begin it in its turn.

        One whose epoch ended while it was on its way here must hold up none: what it is to follow may never end.
        """
        if order.epoch != self._group_state.membership.epoch:
            work.end(self._group_state.error())
            return
        self.num_entered = number + 1
        self._held.append((number, order, work))
        for awaited in order.after:
            awaited.on_end(lambda _: self._do(self._begin_held))
        self._begin_held()

    def _begin_held(self) -> None:
        """In their order, up to one that still has to wait."""
        while self._held and self._held[0][1].may_begin:
            self._begin(*self._held.popleft())

    def _begin(self, number: int, order: Order, work: Work) -> None:
        group_state = self._group_state
        gone = [peer.rank for peer in group_state.members if not peer.channels or peer.has_left]
        if gone and group_state.is_whole:
            group_state.fail(Failure(gone[0], "it left before an all-reduce"))
        if not group_state.is_whole or group_state.is_closing:
            self._late.append(work)
            return
        try:
            begun = order.begin()
        except BaseException:
            self._late.append(work)  # the engine breaks, and whoever waits is told with all others
            raise
        operation = Operation(number, order.epoch, self._rank, order.values, *begun, self._queue)
        running = _Running(order, operation, work, time.monotonic())
        self._running[number] = running
        self.num_begun = number + 1
        self._beginning.append((running, operation.begin()))
        for peer, header, payload in self._early.take(order.epoch, number):
            try:
                self._take_early(running, peer, header, payload)
            except GarbageError as error:
                self._reject(peer, error)
                return
        for peer in group_state.members:
            self._tell_begun(peer)
        self._check(running)

    def _tell_begun(self, peer: Peer) -> None:
        """Where a peer may soon have chunks that wait for that."""
        num_early_bytes = self._early.num_bytes(self._group_state.membership.epoch, peer.rank)
        if self._notices.is_due(peer.rank, self.num_begun, num_early_bytes):
            self._connections.push_first(peer, self.beat())
            self._notices.told(peer.rank, self.num_begun)

    def beat(self) -> bytes:
        """The frame that says that this rank lives, and how far it is."""
        return self._group_state.beat(self.num_entered, self.num_begun)

    def go_on_beginning(self) -> None:
        """A part of the oldest operation that has not sent all it can: frames come and go between the parts."""
        while self._beginning:
            running, parts = self._beginning[0]
            if running.operation.number in self._running and next(parts, running) is None:
                return
            self._beginning.popleft()
            self._check(running)

    # Chunks that are wanted.

    def place(self, peer: Peer, header: Header) -> memoryview | None:
        """Where to receive it; None is anywhere. Raises GarbageError."""
        if self._group_state.is_whole:
            peer.has_begun(header.operation)
            running = self._running.get(header.operation)
            if running is not None:
                return running.operation.place(peer.rank, header)
            if header.operation < self.num_begun:
                raise GarbageError(f"a chunk of operation {header.operation}, which has ended")
        self._early.expect(peer.rank, header, self.num_begun)
        return None

    def arrived(self, peer: Peer, header: Header, payload: memoryview) -> None:
        """It is here. Raises GarbageError."""
        running = self._running.get(header.operation) if self._group_state.is_whole else None
        if running is None:
            self._early.keep((peer, header, payload))
        elif self._early.is_early(header):
            self._take_early(running, peer, header, payload)
        else:
            self._take(running, peer, header, payload)

    def _take_early(self, running: _Running, peer: Peer, header: Header, payload: memoryview) -> None:
        """A chunk that came, or began to come, before its operation was begun here. Raises GarbageError."""
        self._early.checked(header)
        peer.has_begun(header.operation)
        place = running.operation.place(peer.rank, header)
        if place is not None:
            place[:] = payload
        self._take(running, peer, header, payload)

    def _take(self, running: _Running, peer: Peer, header: Header, payload: memoryview) -> None:
        num_bytes, _ = running.links.get(peer.rank, (0, 0.0))
        running.links[peer.rank] = (num_bytes + len(payload), self._connections.now_s - running.begun_s)
        running.operation.arrived(peer.rank, header, payload)
        self._notices.came(peer.rank, header)
        self._tell_begun(peer)
        self._check(running)

    def _queue(self, chunk: Outgoing) -> None:
        self._connections.push(chunk)
        self._running[chunk.urgency[0]].num_unsent += 1

    def sent(self, chunk: Outgoing) -> None:
        """It left whole."""
        running = self._running.get(chunk.urgency[0])
        if running is not None:
            running.num_unsent -= 1
            self._check(running)

    # Ends.

    def _check(self, running: _Running) -> None:
        """End an operation whose chunks have all come and gone, or first do what is to be done then."""
        if running.operation.num_pending or running.num_unsent or running.is_summed:
            return
        running.is_summed = True
        if running.order.then is None:
            self._end(running)
        else:
            running.order.then(lambda: self._do(lambda: self._end(running)))

    def _end(self, running: _Running) -> None:
        if self._running.get(running.operation.number) is not running:
            return  # the group or its epoch has ended before
        del self._running[running.operation.number]
        self.used_s = self._connections.now_s
        if running.order.reported:
            self._tell(running)
        running.work.end()

    def _tell(self, running: _Running) -> None:
        peers = self._connections.peers
        links = {rank: LinkReport(*found, peers[rank].carried()[0]) for rank, found in running.links.items()}
        seconds = time.monotonic() - running.begun_s
        self.reports.append(Report(running.operation.number, running.order.values.num_bytes, seconds, links))
        for rank, found in running.links.items():
            peers[rank].ended(*found)

    def begin_epoch(self, epoch: int) -> None:
        """They are numbered anew; chunks of the epoch may be here."""
        self.num_entered = self.num_begun = 0
        self._early.keep_only(epoch)
        self._notices = BegunNotices()

    def release(self, error: PeerLostError) -> None:
        """Whoever waits for an operation is told why it does not end."""
        for running in self._running.values():
            running.work.end(error)
        self._running.clear()
        self._beginning.clear()
        self._late += [work for _, _, work in self._held]
        self._held.clear()
        while self._late:
            self._late.pop().end(error)
