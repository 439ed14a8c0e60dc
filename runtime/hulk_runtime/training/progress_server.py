"""The worker's window to the operator: one small HTTP server per pod.

    GET  /metrics    every worker: its process; rank 0 also the job's progress
    GET  /preflight  rank 0: {"attempt", "computeSeconds": [per rank], "slowestSeconds"}, 404 before it is known
    POST /start      rank 0: {"attempt", "order"}: the operator has written its prediction, step 1 may begin

The server runs in a thread and only reads values, so a slow reader never delays a step. The one thing that it takes
from outside, the order to begin, must have the SHA-256 that the operator gave the attempt's pods.
"""

import hmac
import json
import threading
from hashlib import sha256
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from hulk_runtime import background
from hulk_runtime.errors import PortError
from hulk_runtime.job import step_record
from hulk_runtime.job.worker_http import WorkerHandler, WorkerServer
from hulk_runtime.training.preflight import Preflight

MAX_BODY_DIGITS: Final = 3
"""Of an order's length."""


class ProgressServer:
    """Serves `registry` on a port for the length of a `with` block. Port 0 takes any free one (see `port`).

    `start_digest`: what the order to begin is known by; without one, no order is taken.
    """

    def __init__(self, registry: CollectorRegistry, attempt: int, port: int, start_digest: str = "") -> None:
        self.registry = registry
        self._attempt, self._start_digest = attempt, start_digest
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
        """Take POST /start, from the operator alone: before preflight is known, it is a conflict."""
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return HTTPStatus.BAD_REQUEST
        if not isinstance(asked, dict) or "attempt" not in asked:
            return HTTPStatus.BAD_REQUEST
        if not self._is_the_operators(asked.get("order")):
            return HTTPStatus.FORBIDDEN
        if asked["attempt"] != self._attempt or self._preflight is None:
            return HTTPStatus.CONFLICT
        self._go.set()
        return HTTPStatus.NO_CONTENT

    def _is_the_operators(self, order: object) -> bool:
        if not isinstance(order, str) or not self._start_digest:
            return False
        digest = sha256(order.encode(errors="replace")).hexdigest()
        return hmac.compare_digest(digest.encode(), self._start_digest.encode())

    def __enter__(self) -> Self:
        background.Thread("hulk-progress", self._server.serve_forever, restarts=lambda: not self._is_closed).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_closed = True
        self._server.shutdown()
        self._server.server_close()


class _Server(WorkerServer):
    def __init__(self, port: int, progress: ProgressServer) -> None:
        self.progress = progress
        super().__init__("hulk-progress-answer", port, _Handler)


class _Handler(WorkerHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802  # the standard library's name
        progress = self.server.progress
        if self.path == "/metrics":
            self.answer(HTTPStatus.OK, generate_latest(progress.registry), CONTENT_TYPE_PLAIN_0_0_4)
        elif self.path == "/preflight" and (body := progress.preflight()) is not None:
            self.answer(HTTPStatus.OK, body, "application/json")
        else:
            self.answer(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:  # noqa: N802  # as above
        length = self.headers.get("Content-Length", "")
        if self.path != "/start":
            self.answer(HTTPStatus.NOT_FOUND)
        elif not length.isdecimal() or len(length) > MAX_BODY_DIGITS:
            self.answer(HTTPStatus.BAD_REQUEST)
        else:
            self.answer(self.server.progress.start(self.rfile.read(int(length))))
