"""The worker's window to the operator: one small HTTP server per pod.

    GET  /metrics    every worker: its process; rank 0 also the job's progress
    GET  /preflight  rank 0: {"attempt", "computeSeconds": [per rank], "slowestSeconds"}, 404 before it is known
    POST /start      rank 0: {"attempt"}: the operator has written its prediction, step 1 may begin

The server runs in a thread and only reads values, so a slow reader never delays a step.
"""

import json
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from hulk_runtime import background
from hulk_runtime.errors import PortError
from hulk_runtime.job import step_record
from hulk_runtime.training.preflight import Preflight

MAX_BODY_BYTES: Final = 4096
IDLE_CLIENT_S: Final = 10.0


class ProgressServer:
    """Serves `registry` on a port for the length of a `with` block. Port 0 takes any free one (see `port`)."""

    def __init__(self, registry: CollectorRegistry, attempt: int, port: int) -> None:
        self.registry = registry
        self._attempt = attempt
        self._preflight: Preflight | None = None
        self._go = threading.Event()
        self._is_closed = False
        try:
            self._server = _Server(port, self)
        except OSError as error:
            raise PortError(f"metrics port {port} cannot be opened: {error.strerror}") from error
        if step_record.own is not None:
            step_record.own.serve()

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def publish_preflight(self, found: Preflight) -> None:
        """Offer what the ranks measured to the operator."""
        self._preflight = found

    def wait_for_start(self, timeout_s: float) -> bool:
        """Wait for the operator's go; False when it did not come in time."""
        return self._go.wait(timeout_s)

    def preflight(self) -> bytes | None:
        """Body of GET /preflight."""
        found = self._preflight
        if found is None:
            return None
        seconds = {"computeSeconds": found.compute_s, "slowestSeconds": found.slowest_s}
        return json.dumps({"attempt": self._attempt, **seconds}).encode()

    def start(self, body: bytes) -> HTTPStatus:
        """Take POST /start. A go for another attempt, or before preflight is known, is a conflict."""
        try:
            asked = json.loads(body)
        except ValueError:
            return HTTPStatus.BAD_REQUEST
        if not isinstance(asked, dict) or "attempt" not in asked:
            return HTTPStatus.BAD_REQUEST
        if asked["attempt"] != self._attempt or self._preflight is None:
            return HTTPStatus.CONFLICT
        self._go.set()
        return HTTPStatus.NO_CONTENT

    def __enter__(self) -> Self:
        background.Thread("hulk-progress", self._server.serve_forever, restarts=lambda: not self._is_closed).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_closed = True
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Listens on every address of both families, where the kernel has both."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, progress: ProgressServer) -> None:
        self.progress = progress
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is its own matter; another one may ask again, whatever happened to this one."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            background.count("hulk-progress-answer", error, "and an answer is not given")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = IDLE_CLIENT_S

    def do_GET(self) -> None:
        progress = self.server.progress
        if self.path == "/metrics":
            self._answer(HTTPStatus.OK, generate_latest(progress.registry), CONTENT_TYPE_PLAIN_0_0_4)
        elif self.path == "/preflight" and (body := progress.preflight()) is not None:
            self._answer(HTTPStatus.OK, body, "application/json")
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != "/start":
            self._answer(HTTPStatus.NOT_FOUND)
        elif not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self._answer(HTTPStatus.BAD_REQUEST)
        else:
            self._answer(self.server.progress.start(self.rfile.read(int(length))))

    def _answer(self, status: HTTPStatus, body: bytes = b"", content_type: str = "text/plain") -> None:
        self.send_response(status)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Scrapes are not worth a log line."""
