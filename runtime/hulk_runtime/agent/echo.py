"""The light echo: answers every agent's requests and measures the round-trip time to the ordered targets.

One UDP socket for each family of the pod network does both. Times are taken by the kernel where it can (arrival of a
datagram), so that neither a busy event loop here nor a slow answer there is counted: rtt = (arrival - sent) - the
peer's hold time. The send time is taken in the process directly before the system call.
"""

import asyncio
import logging
import secrets
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from hulk_runtime.agent import echo_datagram
from hulk_runtime.agent.orders import Address
from hulk_runtime.agent.rtt_window import MIN_SAMPLES, Rtt, Window

log = logging.getLogger(__name__)

SO_TIMESTAMPNS: Final = 35  # Linux; the socket module has no name for it
MAX_RTT_NS: Final = 5_000_000_000  # an answer later than this counts as lost
MAX_HOLD_NS: Final = 20_000_000  # of a peer that is busy for longer nothing is believed: it could say anything
MAX_REPLIES_PER_S: Final = 2_000  # answers to strangers cost at most this much of a CPU
MAX_DATAGRAMS_PER_WAKE: Final = 64
_TIMESPEC: Final = struct.Struct("@qq")


@dataclass(slots=True)
class Counters:
    """What happened to datagrams, for the agent's own metrics."""

    sent: int = 0
    answered: int = 0
    lost: int = 0
    replied: int = 0
    refused: int = 0  # foreign, wrong version, over the limit, or an answer nobody waits for


@dataclass(frozen=True, slots=True)
class _Pending:
    target: str
    address: Address
    sent_ns: int
    expires_s: float  # by the clock that is never set


@dataclass(slots=True)
class _ReplyBudget:
    """A token bucket of one second's replies."""

    tokens: float = MAX_REPLIES_PER_S
    updated_ns: int = 0

    def take(self, now_ns: int) -> bool:
        gained = max(0, now_ns - self.updated_ns) * MAX_REPLIES_PER_S / 1e9
        self.tokens = min(MAX_REPLIES_PER_S, self.tokens + gained)
        self.updated_ns = now_ns
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class Echo:
    """The echo sockets, one for each own address, with one window per target.

    Memory is bounded by the targets and `MAX_RTT_NS` of requests.
    `clock` says (Unix) when a sample was taken, for others.
    """

    sockets: tuple[socket.socket, ...]
    clock: Callable[[], float] = time.time
    counters: Counters = field(default_factory=Counters)
    _windows: dict[str, tuple[Address, Window]] = field(default_factory=dict)
    _pending: "OrderedDict[int, _Pending]" = field(default_factory=OrderedDict)
    _replies: _ReplyBudget = field(default_factory=_ReplyBudget)

    @classmethod
    def open(cls, addresses: Iterable[str], port: int, clock: Callable[[], float] = time.time) -> "Echo":
        """Bind the sockets and answer from now on; needs a running event loop. `OSError` when the port is taken."""
        echo = cls(tuple(_bound(address, port) for address in addresses), clock)
        for sock in echo.sockets:
            asyncio.get_running_loop().add_reader(sock.fileno(), echo._drain, sock)
        return echo

    def close(self) -> None:
        """Stop answering."""
        for sock in self.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
            sock.close()

    @property
    def port(self) -> int:
        """The port in use at the first address (of interest when bound to port 0)."""
        return int(self.sockets[0].getsockname()[1])

    def aim(self, targets: dict[str, Address]) -> None:
        """Measure exactly these targets from now on. A target that moved to another address starts a new window."""
        self._windows = {
            name: self._windows[name]
            if name in self._windows and self._windows[name][0] == address
            else (address, Window())
            for name, address in targets.items()
        }

    def ask(self, target: str) -> None:
        """Send one request to a target; a full socket or an unreachable network counts as a lost sample."""
        address, window = self._windows[target]
        nonce = secrets.randbits(64)
        sent_ns = time.time_ns()
        self._pending[nonce] = _Pending(target, address, sent_ns, time.monotonic() + MAX_RTT_NS / 1e9)
        self.counters.sent += 1
        try:
            self._socket_towards(address.host).sendto(
                echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REQUEST, nonce)), (address.host, address.port)
            )
        except OSError:
            del self._pending[nonce]
            self.counters.lost += 1
            window.lose()

    def expire(self) -> None:
        """Count requests without an answer after `MAX_RTT_NS` as lost."""
        now_s = time.monotonic()
        while self._pending:
            nonce, pending = next(iter(self._pending.items()))
            if pending.expires_s > now_s:
                return
            del self._pending[nonce]
            self.counters.lost += 1
            if pending.target in self._windows:
                self._windows[pending.target][1].lose()

    def targets(self) -> list[str]:
        """Names of the ordered targets."""
        return list(self._windows)

    def num_samples(self, target: str) -> int:
        """Samples in a target's window."""
        return self._windows[target][1].num_samples

    def is_new(self, target: str) -> bool:
        """Whether a target has no figures yet and may still get them soon (nothing was lost)."""
        window = self._windows[target][1]
        return window.num_samples < MIN_SAMPLES and not window.num_lost_in_a_row

    def results(self) -> dict[str, Rtt]:
        """What the windows say, targets with too few samples left out."""
        found = ((name, window.rtt()) for name, (_, window) in self._windows.items())
        return {name: rtt for name, rtt in found if rtt is not None}

    def _socket_towards(self, host: str) -> socket.socket:
        """The one of the target's family; where there is none, the first, which then fails to send."""
        family = _family(host)
        return next((sock for sock in self.sockets if sock.family is family), self.sockets[0])

    def _drain(self, sock: socket.socket) -> None:
        for _ in range(MAX_DATAGRAMS_PER_WAKE):
            try:
                data, ancillary, _, sender = sock.recvmsg(
                    echo_datagram.NUM_BYTES + 1, socket.CMSG_SPACE(_TIMESPEC.size)
                )
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP error of an earlier datagram is reported here
                log.debug("echo socket: %s", error)
                continue
            self._take(sock, data, _arrival_ns(ancillary), sender)

    def _take(self, sock: socket.socket, data: bytes, arrival_ns: int, sender: tuple[str, int]) -> None:
        datagram = echo_datagram.decode(data)
        if datagram is None:
            self.counters.refused += 1
        elif datagram.kind == echo_datagram.REQUEST:
            self._reply(sock, datagram.nonce, arrival_ns, sender)
        else:
            self._measure(datagram, arrival_ns, sender)

    def _reply(self, sock: socket.socket, nonce: int, arrival_ns: int, sender: tuple[str, int]) -> None:
        if not self._replies.take(time.monotonic_ns()):
            self.counters.refused += 1
            return
        hold_ns = max(0, time.time_ns() - arrival_ns)
        try:
            sock.sendto(echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REPLY, nonce, hold_ns)), sender)
            self.counters.replied += 1
        except OSError as error:
            log.debug("reply to %s: %s", sender[0], error)

    def _measure(self, datagram: echo_datagram.Datagram, arrival_ns: int, sender: tuple[str, int]) -> None:
        pending = self._pending.pop(datagram.nonce, None)
        if pending is None or sender[0] != pending.address.host or pending.target not in self._windows:
            self.counters.refused += 1
            return
        rtt_ns = arrival_ns - pending.sent_ns - datagram.hold_ns
        window = self._windows[pending.target][1]
        if 0 < rtt_ns <= MAX_RTT_NS and datagram.hold_ns <= MAX_HOLD_NS:
            self.counters.answered += 1
            window.add(self.clock(), max(1, round(rtt_ns / 1000)))
        else:  # a clock was set meanwhile, or the peer's hold time is a lie or long
            self.counters.lost += 1
            window.lose()


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(_family(address), socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.bind((address, port))
    return sock


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The kernel's arrival time (Unix), or now where it gave none."""
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(value[: _TIMESPEC.size])
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return time.time_ns()
