"""One TCP connection to a peer, never blocking: frames out of the peer's queue, frames in as they come.

A receiver wakes when a whole payload is there, not for every packet (SO_RCVLOWAT), and takes a payload and the header
behind it with one system call.
"""

import contextlib
import math
import socket
import struct
from typing import Final, Generic, Protocol, TypeVar

from hulk_runtime.collective.reduction.operation import Outgoing
from hulk_runtime.collective.wire.bandwidth_meter import Meter, Outlook, Path
from hulk_runtime.collective.wire.frames import HEADER_BYTES, Header, parse, steady
from hulk_runtime.collective.wire.records import Records

NOTSENT_S: Final = 0.015
"""Of its pace a connection's kernel holds so much unsent: enough to keep a link busy while this process does something
else, so little that an urgent chunk does not wait long."""
MIN_NOTSENT_BYTES: Final = 16 << 10
NOTSENT_SEGMENTS: Final = 4
"""More than leave at once, also on loopback, where one may be 64 KiB."""
MAX_NOTSENT_BYTES: Final = 128 << 10
UNPACED: Final = (1 << 64) - 1
MAX_LOW_WATER_BYTES: Final = 32 << 10
"""More would make the kernel clamp the receive window to it, before that has had time to grow."""
OPEN_SHARE: Final = 0.9
_READS_AT_ONCE: Final = 16
_WRITES_AT_ONCE: Final = 64
_SKIPPED_AT_ONCE: Final = 64 << 10
_TCP_NOTSENT_LOWAT: Final = 25
_TCP_USER_TIMEOUT: Final = 18
_SO_MAX_PACING_RATE: Final = 47
_NOTHING: Final = memoryview(b"")


CLOSED: Final = "it closed its connection"


class PeerGoneError(ConnectionError):
    """The other end closed or broke the connection."""


def _gone(error: OSError) -> PeerGoneError:
    """What the kernel says of a connection in our words: writing to one that was closed breaks the pipe."""
    is_closed = isinstance(error, BrokenPipeError)
    return PeerGoneError(CLOSED if is_closed else f"its connection broke: {error.strerror}")


class FrameQueue(Protocol):
    """What waits to be sent over a channel, and when its other end was seen last."""

    is_far: bool
    last_seen_s: float

    @property
    def has_frames(self) -> bool:
        """Whether a frame may be sent now."""

    def pop(self) -> tuple[bytes, memoryview | None, Outgoing | None] | None:
        """The next frame: header, payload, and the chunk that it carries."""


PeerT = TypeVar("PeerT", bound=FrameQueue)
SinkPeerT = TypeVar("SinkPeerT", contravariant=True)


class Sink(Protocol[SinkPeerT]):
    """What takes the frames that arrive."""

    def place(self, peer: SinkPeerT, header: Header) -> memoryview:
        """Memory for the payload of a frame. Raises GarbageError when no such frame may come."""

    def arrived(self, peer: SinkPeerT, header: Header, payload: memoryview) -> None:
        """A whole frame is here."""


class Channel(Generic[PeerT]):
    """A connected, authenticated socket to a peer. `records` is how frames are written on it."""

    def __init__(self, connection: socket.socket, peer: PeerT, records: Records) -> None:
        self.socket, self.peer, self._records = connection, peer, records
        self.wants_write = self._is_deaf = False
        self._held = b""
        self._bytes_per_s = UNPACED
        self._notsent_bytes = MAX_NOTSENT_BYTES
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if peer.is_far:
            self._set_notsent(self._notsent_bytes)
        self._head = memoryview(bytearray(HEADER_BYTES + records.tag_bytes))
        self._num_head = 0
        self._header: Header | None = None
        self._place = self._body = _NOTHING
        self._num_body = 0
        self._low_water = 1
        self._sending: list[memoryview] = []
        self._chunk: Outgoing | None = None
        self.outlook = Outlook()
        self.meter = Meter()

    def pace(self, bytes_per_s: float) -> None:
        """Send no faster than this: a router's queue that overflows costs more than a little less speed."""
        self._bytes_per_s = max(1, int(bytes_per_s))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", self._bytes_per_s))
        segment_bytes = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        least = max(MIN_NOTSENT_BYTES, NOTSENT_SEGMENTS * segment_bytes)
        self._notsent_bytes = max(least, min(MAX_NOTSENT_BYTES, int(NOTSENT_S * bytes_per_s)))
        if not self.is_held:
            self._set_notsent(self._notsent_bytes)

    def hold(self, frame: bytes) -> None:
        """Keep the congestion window through a pause: called more often than a retransmission times out (200 ms).

        TCP shrinks the window of a connection that does not use it, down to a few packets after some seconds. It does
        not where the sender has more than its socket takes: to the kernel the window waits for the application's data
        then, not the other way round. So here `frame` is kept back until a second one has found the socket full.
        Raises PeerGoneError.
        """
        if self._sending or self._path().num_unsent_bytes:
            return  # it is in use
        if not self.is_held:
            self.outlook.pause()
            self._set_notsent(1)
        self._held = frame
        try:
            if self._give(frame, socket.MSG_MORE | socket.MSG_EOR):
                self._give(frame, 0)
        except BlockingIOError:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what was kept back leaves
        except OSError as error:
            raise _gone(error) from error

    def closed_bytes(self, share: float = OPEN_SHARE) -> int:
        """What the path holds at the connection's pace where the window is below a share of that; else 0.

        Raises PeerGoneError.
        """
        if self._bytes_per_s == UNPACED:
            return 0
        path = self._path()
        held_bytes = math.ceil(self._bytes_per_s * path.min_rtt_s)
        return held_bytes if path.window_bytes < share * held_bytes else 0

    def set_timeout(self, seconds: float) -> None:
        """Break when nothing is acknowledged for so long: of several connections one may stall unheard."""
        self.socket.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, math.ceil(1000 * seconds))

    def _give(self, frame: bytes, flags: int) -> bool:
        """Whether the socket took all of a frame; the rest of one that it took in part goes before everything else.

        Raises BlockingIOError where it took nothing.
        """
        (record,) = self._records.seal(frame, None)
        try:
            count = self.socket.send(record, flags)
        except BlockingIOError:
            self._records.take_back()
            raise
        if count < len(record):
            self._sending = [record[count:]]
            self._end_pause()
        return not self._sending

    def _path(self) -> Path:
        try:
            return Path.of(self.socket)
        except OSError as error:
            raise _gone(error) from error

    @property
    def is_held(self) -> bool:
        """Whether there is a pause."""
        return bool(self._held)

    def release(self) -> None:
        """The pause is over: what follows finds a window that was held just now. Raises PeerGoneError."""
        if self.is_held:
            self.hold(self._held)
            self._end_pause()

    def _end_pause(self) -> None:
        self._held = b""
        self._set_notsent(self._notsent_bytes)

    def _set_notsent(self, num_bytes: int) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, num_bytes)

    def finish(self) -> None:
        """Nothing more will be sent: the peer reads what is on the way, then the end."""
        self._held = b""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def divert(self) -> None:
        """Receive the payload under way elsewhere, with what is here of it: its place belongs to others again."""
        elsewhere = memoryview(bytearray(len(self._place)))
        if self._body is self._place:
            elsewhere[: self._num_body] = self._body[: self._num_body]
            self._body = elsewhere
        self._place = elsewhere

    def send(self) -> list[Outgoing]:
        """Send until nothing waits, or the kernel takes no more or others have their turn, which is when it
        `wants_write`; the chunks that left whole."""
        left: list[Outgoing] = []
        self._look()
        for _ in range(_WRITES_AT_ONCE):
            if not self._sending and not self._take():
                self.wants_write = False
                return left
            try:
                count = self.socket.sendmsg(self._sending)
            except BlockingIOError:
                break
            except OSError as error:
                raise _gone(error) from error
            self._advance(count)
            if not self._sending and self._chunk is not None:
                left.append(self._chunk)
                self._chunk = None
        self.wants_write = True
        return left

    def _look(self) -> None:
        """Only the ways between regions are measured."""
        if self.peer.is_far and (self._sending or self.peer.has_frames):
            with contextlib.suppress(OSError):
                self.outlook.look(Path.of(self.socket), self._bytes_per_s if self._bytes_per_s < UNPACED else 0)

    def _take(self) -> bool:
        taken = self.peer.pop()
        if taken is None:
            return False
        head, payload, self._chunk = taken
        if self.peer.is_far and self.outlook.begin():
            head = steady(head)
        self._sending = self._records.seal(head, payload)
        return True

    def _advance(self, count: int) -> None:
        while self._sending and count >= len(self._sending[0]):
            count -= len(self._sending.pop(0))
        if count:
            self._sending[0] = self._sending[0][count:]

    def receive(self, sink: Sink[PeerT], now_s: float) -> None:
        """Take what is there. Raises PeerGoneError, TamperedError and GarbageError."""
        if self._is_deaf:
            self._skip()
            return
        for _ in range(_READS_AT_ONCE):
            wanted = len(self._head) - self._num_head + len(self._body) - self._num_body
            count = self._read()
            if not count:
                break
            self.peer.last_seen_s = now_s
            self._deliver(sink, now_s)
            if count < wanted:
                break
        self._await_whole()

    def deafen(self) -> None:
        """Throw away what comes from now on: nobody can take it any more."""
        self._is_deaf = True

    def _skip(self) -> None:
        try:
            is_over = not self.socket.recv(_SKIPPED_AT_ONCE)
        except BlockingIOError:
            return
        except OSError as error:
            raise _gone(error) from error
        if is_over:
            raise PeerGoneError(CLOSED)

    def _read(self) -> int:
        """One system call into payload and header; 0 when nothing is there."""
        try:
            if self._header is None:
                count = self.socket.recv_into(self._head[self._num_head :])
            else:
                count = self.socket.recvmsg_into([self._body[self._num_body :], self._head])[0]
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _gone(error) from error
        if count == 0:
            raise PeerGoneError(CLOSED)
        of_body = min(count, len(self._body) - self._num_body)
        self._num_body += of_body
        self._num_head += count - of_body
        return count

    def _deliver(self, sink: Sink[PeerT], now_s: float) -> None:
        while True:
            if self._header is not None:
                if self._num_body < len(self._body):
                    return
                header, body, place = self._header, self._body, self._place
                self._header, self._num_body = None, 0
                self._body = self._place = _NOTHING
                if header.num_bytes:
                    self._records.open_payload(body, place)
                sink.arrived(self.peer, header, place)
            if self._num_head < len(self._head):
                return
            self._num_head = 0
            header = parse(self._records.open_head(self._head))
            self.meter.take(header, now_s)
            self._header = header
            if header.num_bytes:
                self._place = sink.place(self.peer, header)
                self._body = self._records.room(self._place)

    def _await_whole(self) -> None:
        """Have the kernel wake us when the rest of the frame is there."""
        rest = len(self._body) - self._num_body if self._header is not None else len(self._head) - self._num_head
        wanted = min(max(rest, 1), MAX_LOW_WATER_BYTES)
        if wanted != self._low_water:
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            except OSError as error:
                raise _gone(error) from error
            self._low_water = wanted
