"""HTTP at a worker's metrics port: on every address of both families, each answer in a thread of its own."""

import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from hulk_runtime import background

IDLE_CLIENT_S: Final = 10.0


class WorkerServer(ThreadingHTTPServer):
    """Listens where the kernel has an address; OSError when the port is taken. `answers`: what its threads count as."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, answers: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._answers = answers
        super().__init__(("", port), handler)

    def server_bind(self) -> None:
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is its own matter; another one may ask again, whatever happened to this one."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            background.count(self._answers, error, "and an answer is not given")


class WorkerHandler(BaseHTTPRequestHandler):
    """Answers whole, and logs nothing: scrapes are not worth a line."""

    timeout = IDLE_CLIENT_S

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
