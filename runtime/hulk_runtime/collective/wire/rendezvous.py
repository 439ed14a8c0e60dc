"""Addresses of all ranks -> a connected, authenticated socket to every partner.

The higher rank of a pair connects to the lower one. The listener stays open afterwards: a second connection for a rank
that is already connected comes from a copy of the secret and ends the group.

Where all ranks listen already, a connection waits until the other end comes to accept it: meanwhile it shows that its
rank lives, and only one place in the listener's backlog is taken, which a full one would not let others reach.
"""

import contextlib
import errno
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hulk_runtime import background
from hulk_runtime.collective.forks import in_child
from hulk_runtime.collective.wire.handshake import TIMEOUT_S, Identity, StrangerError, answer, greet
from hulk_runtime.collective.wire.records import Keys
from hulk_runtime.errors import PeerLostError, PortError

RETRY_S: Final = 0.2
CONNECT_TIMEOUT_S: Final = 5.0
WATCH_S: Final = 5.0
"""After so long a rank that has not all its connections has one more to each partner, which ends when that does."""
GONE_S: Final = 15.0
"""A rank that listened, and which nothing has come back from so long, in several tries, has gone with its machine."""
GONE_TRIES: Final = 3
UNREACHABLE: Final = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT}
KEEPALIVE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A connection ends when its other end's machine has not answered for 20 s."""
MAX_GREETING: Final = 256
"""Connections that may wait for their handshake at once; one more, and the oldest has to go."""
BACKLOG: Final = 4096
"""Connections that wait for a late rank, of all its partners; Linux's own bound (somaxconn)."""
MOST_PROBLEMS: Final = 4


@dataclass(frozen=True, slots=True)
class Address:
    """Where a rank listens.

    >>> print(Address("10.0.0.7", 29401), Address("fd00::7", 29401))
    10.0.0.7:29401 [fd00::7]:29401
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Connection:
    """A socket whose other end has proved who it is, and the keys for what follows."""

    socket: socket.socket
    keys: Keys


Admit = Callable[[int, int, Connection], None]
"""Takes rank, stream and connection."""


class Listener:
    """The listening socket of one rank, and a thread that lets peers in until it is closed."""

    def __init__(self, listener: socket.socket, rank: int, identity: Identity, admit: Admit) -> None:
        self._listener, self._rank, self._identity, self._admit = listener, rank, identity, admit
        self._greeting: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = background.Thread("hulk-listener", self._serve, restarts=lambda: not self._is_closed)
        self.refused: deque[str] = deque(maxlen=4)
        """Who was sent away last, and why."""

    def open(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def close(self) -> None:
        """Accept nobody any more."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._thread.is_alive():
            self._thread.join()

    def forsake(self) -> None:
        """In a forked child: the parent goes on listening."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError as error:
                if self._is_closed:
                    return
                problem = f"somebody: {error}"  # no descriptors left, or who knocked has gone
                if problem not in self.refused:
                    self.refused.append(problem)
                time.sleep(RETRY_S)
                continue
            with self._lock:
                self._greeting.append(connection)
                oldest = self._greeting.popleft() if len(self._greeting) > MAX_GREETING else None
            if oldest is not None:  # whoever says nothing keeps nobody else out
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._begin_to_greet(connection, address[0])

    def _begin_to_greet(self, connection: socket.socket, host: str) -> None:
        """In a thread of its own; where that breaks, the other end has to try again."""

        def refuse(_: str, error: BaseException) -> None:
            self.refused.append(f"{host}: {error!r}")
            connection.close()

        background.Thread("hulk-greet", lambda: self._greet(connection, host), broke=refuse).start()

    def _greet(self, connection: socket.socket, host: str) -> None:
        try:
            hello, keys = answer(connection, self._identity, self._rank)
        except OSError as error:
            self.refused.append(f"{host}: {error}")
            connection.close()
        else:
            self._admit(hello.source, hello.stream, Connection(connection, keys))
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._greeting.remove(connection)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 means any, no host all addresses of both families. Raises PortError."""
    try:
        if host == "" and socket.has_dualstack_ipv6():
            return socket.create_server((host, port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise PortError(f"cannot listen at {host or 'any address'}, port {port}: {error.strerror}") from error


class Rendezvous:
    """Connections to all partners as they come together."""

    def __init__(
        self,
        rank: int,
        addresses: Sequence[Address],
        wanted: dict[int, int],
        identity: Identity,
        *,
        all_listen: bool = False,
    ) -> None:
        """`wanted` says how many connections each partner gets. `all_listen`: already, so who refuses has gone."""
        self._rank, self._addresses, self._wanted, self._identity = rank, addresses, wanted, identity
        self._all_listen = all_listen
        self._found: dict[tuple[int, int], Connection] = {}
        self._changed = threading.Condition()
        self._complete = False
        self._waiting: set[socket.socket] = set()
        self._error: str | None = None
        self._problems: dict[int, str] = {}
        self.twice: Callable[[int], None] = lambda _: None
        in_child(self, Rendezvous._forsake)

    def admit(self, rank: int, stream: int, connection: Connection) -> None:
        """One from either side."""
        if stream >= self._wanted.get(rank, 0):
            connection.socket.close()
            return
        with self._changed:
            if not self._complete:
                older = self._found.get((rank, stream))
                if older is not None:  # the other end did not hear that it had been let in, and tried again
                    older.socket.close()
                self._found[rank, stream] = connection
                self._changed.notify_all()
                return
        connection.socket.close()
        self.twice(rank)

    def gather(self, timeout_s: float, refused: Iterable[str] = ()) -> dict[int, list[Connection]]:
        """Every partner's connections. Raises PeerLostError that names who is missing, and who was refused."""
        deadline_s = time.monotonic() + timeout_s
        for rank, count in self._wanted.items():
            for stream in range(count if rank < self._rank else 0):
                self._begin(rank, partial(self._connect, rank, stream, deadline_s))
            if self._all_listen:
                self._begin(rank, partial(self._watch, rank))
        num_wanted = sum(self._wanted.values())
        with self._changed:
            self._changed.wait_for(lambda: self._error or len(self._found) == num_wanted, timeout_s)
            self._complete = True
            self._changed.notify_all()
            problem = self._error or self._late(timeout_s)
            for waiting in self._waiting:
                with contextlib.suppress(OSError):
                    waiting.shutdown(socket.SHUT_RDWR)
            if self._error or len(self._found) < num_wanted:
                for connection in self._found.values():
                    connection.socket.close()
                raise PeerLostError("; refused ".join([problem, *refused]))
            return {
                rank: [self._found[rank, stream] for stream in range(count)] for rank, count in self._wanted.items()
            }

    def _late(self, timeout_s: float) -> str:
        """Which ranks not all connections are there to, and what the last tries to reach some of them came to."""
        wanted = ((rank, stream) for rank, count in self._wanted.items() for stream in range(count))
        missing = sorted({rank for rank, stream in wanted if (rank, stream) not in self._found})
        problems = [self._problems[rank] for rank in missing if rank in self._problems][:MOST_PROBLEMS]
        return "; ".join([f"ranks {missing} did not connect within {timeout_s:g} s", *problems])

    def _begin(self, rank: int, work: Callable[[], None]) -> None:
        background.Thread(
            "hulk-connect",
            work,
            broke=lambda _, error: self._give_up(f"rank {rank}: {error!r}"),
            restarts=lambda: not self._complete,
        ).start()

    def _connect(self, rank: int, stream: int, deadline_s: float) -> None:
        failed_s: list[float] = []
        while (left_s := deadline_s - time.monotonic()) > 0 and not self._complete:
            try:
                with self._reach(rank, failed_s) as connection:
                    accept_s = left_s if self._all_listen else TIMEOUT_S
                    keys = greet(connection, self._identity, stream, self._rank, rank, accept_s)
            except OSError as error:
                if isinstance(error, StrangerError) or self._has_gone(error, failed_s):
                    self._give_up(self._problems[rank])
                    return
                time.sleep(RETRY_S)
            else:
                self.admit(rank, stream, Connection(connection, keys))
                return

    def _watch(self, rank: int) -> None:
        """Until all have connected, or it has gone."""
        failed_s: list[float] = []
        pause_s = WATCH_S
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._complete, pause_s):
                    return
            pause_s = RETRY_S
            try:
                with self._reach(rank, failed_s) as connection:
                    connection.settimeout(None)
                    connection.recv(1)
                    connection.close()
            except OSError as error:
                if self._has_gone(error, failed_s):
                    self._give_up(self._problems[rank])
                    return

    @contextlib.contextmanager
    def _reach(self, rank: int, failed_s: list[float]) -> Iterator[socket.socket]:
        """A connection to a rank, closed where something fails. `failed_s`: when nothing came back, in a row."""
        address = self._addresses[rank]
        try:
            connection = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
        except OSError as error:
            self._problems[rank] = f"rank {rank} at {address}: {error}"
            is_silent = isinstance(error, TimeoutError) or error.errno in UNREACHABLE
            failed_s[:] = [*failed_s, time.monotonic()] if is_silent else []
            raise
        failed_s.clear()
        try:
            with self._changed:
                self._waiting.add(connection)
                if self._complete:
                    connection.shutdown(socket.SHUT_RDWR)
            _end_without_answers(connection)
            yield connection
        except BaseException as error:
            self._problems[rank] = f"rank {rank} at {address}: {error}"
            connection.close()
            raise
        finally:
            with self._changed:
                self._waiting.discard(connection)

    def _has_gone(self, error: OSError, failed_s: Sequence[float]) -> bool:
        if not self._all_listen:
            return False
        is_silent = len(failed_s) >= GONE_TRIES and failed_s[-1] - failed_s[0] >= GONE_S
        return is_silent or isinstance(error, ConnectionRefusedError)

    def _forsake(self) -> None:
        """In a forked child: connections are its parent's."""
        if not self._complete:
            for connection in [*self._waiting, *(found.socket for found in self._found.values())]:
                connection.close()

    def _give_up(self, problem: str) -> None:
        with self._changed:
            self._error = self._error or problem
            self._changed.notify_all()


def _end_without_answers(connection: socket.socket) -> None:
    """However long it waits for data."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
