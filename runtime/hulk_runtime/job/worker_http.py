"""HTTP at a worker's metrics port: on every address of both families, each answer in a thread of its own.

Whoever reaches the port may ask, and asking costs the training time: connections, their bytes and their seconds are
bounded.

    beyond MAX_OF_CLIENT       of one address, a connection is closed at once
    beyond NUM_UNDISTURBED     the oldest one is closed: who holds connections open keeps nobody out
    beyond MAX_CONNECTIONS     a connection is closed at once: more threads there are never
    after MAX_REQUEST_BYTES    of a request, line and headers and body, its connection is closed
    after MAX_CONNECTION_S     a connection is closed, however busy it is

A connection that is closed has been accepted: whoever knocks to see whether the node lives sees that it does.
"""

import io
import socket
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from hulk_runtime import background

MAX_CONNECTIONS: Final = 32
NUM_UNDISTURBED: Final = 16
MAX_OF_CLIENT: Final = 8
MAX_REQUEST_BYTES: Final = 16_384
MAX_CONNECTION_S: Final = 10.0


class WorkerServer(ThreadingHTTPServer):
    """Listens where the kernel has an address; OSError when the port is taken. `answers`: what its threads count as."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    request_queue_size = 128  # connections that wait for the loop below: a flood must not look like a dead node

    def __init__(self, answers: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._open: dict[Any, tuple[str, float]] = {}  # by socket, the oldest first: its client, and since when
        self._closing: set[Any] = set()
        super().__init__(("", port), handler)

    @property
    def num_open(self) -> int:
        """Connections, each with a thread."""
        return len(self._open)

    def server_bind(self) -> None:
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether a new connection is answered."""
        client = str(client_address[0])
        with self._lock:
            is_greedy = sum(client == known for known, _ in self._open.values()) >= MAX_OF_CLIENT
            if is_greedy or len(self._open) >= MAX_CONNECTIONS:
                return False
            undisturbed = [one for one in self._open if one not in self._closing]
            for oldest in undisturbed[: max(0, len(undisturbed) - NUM_UNDISTURBED + 1)]:
                self._close(oldest)
            self._open[request] = client, time.monotonic()
        return True

    def service_actions(self) -> None:
        """Between connections, twice a second at least: close what took too long."""
        oldest_s = time.monotonic() - MAX_CONNECTION_S
        with self._lock:
            for late in [one for one, (_, since_s) in self._open.items() if since_s < oldest_s]:
                self._close(late)

    def _close(self, connection: Any) -> None:
        """Its thread reads the end, or fails to write, and gives the socket back."""
        self._closing.add(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._closing.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is its own matter; another one may ask again, whatever happened to this one."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            background.count(self._answers, error, "and an answer is not given")


class TooLargeError(ConnectionAbortedError):
    """A request has more bytes than any that makes sense."""


class BoundedReader(io.BufferedIOBase):
    """What a client sends, up to MAX_REQUEST_BYTES; `TooLargeError` after that."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._source, self._left = source, MAX_REQUEST_BYTES

    def readline(self, size: int | None = -1) -> bytes:
        return self._counted(self._source.readline(self._at_most(size)))

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(self._source.read(self._at_most(size)))

    def close(self) -> None:
        self._source.close()
        super().close()

    def _at_most(self, size: int | None) -> int:
        """One more than may come, so that the end of what may is not taken for the end of all."""
        return self._left + 1 if size is None or size < 0 else min(size, self._left + 1)

    def _counted(self, found: bytes) -> bytes:
        self._left -= len(found)
        if self._left < 0:
            raise TooLargeError(f"a request has more than {MAX_REQUEST_BYTES} bytes")
        return found


class WorkerHandler(BaseHTTPRequestHandler):
    """Answers whole, and logs nothing: scrapes are not worth a line."""

    timeout = MAX_CONNECTION_S

    def setup(self) -> None:
        super().setup()
        self.rfile = BoundedReader(self.rfile)

    def answer(self, status: HTTPStatus, body: bytes = b"", content_type: str = "text/plain") -> None:
        """Send one."""
        self.send_response(status)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""
