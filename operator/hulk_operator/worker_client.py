"""A worker's HTTP endpoint -> `Observation`, `Preflight`: what an attempt says of itself, bounded in size and time.

The operator believes none of it further than its own status: a worker is the user's code, so an answer that is too
large, too slow or not what it should be is an `ObserveError` with a sentence, never an exception of a parser. It is
asked by HTTP/1.0, one connection for each request: the answer is then the bytes up to the end, without chunks, trailers
or interim answers without end, so what is counted is what comes over the wire.
"""

import asyncio
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from hulk_operator.observation import Expected, Observation, ObserveError, Preflight
from hulk_operator.worker_answers import max_bytes, parse_metrics, parse_preflight

MAX_SECONDS: Final = 2.0
MAX_KNOCK_SECONDS: Final = 1.0  # a first packet that is lost is sent again after as long
MAX_HEAD_BYTES: Final = 8192
MAX_INLINE_BYTES: Final = 16384  # parsed at once; what is longer is parsed in a thread, beside the event loop
_PARSER: Final = ThreadPoolExecutor(1, "parser")  # one: the event loop has half of the interpreter's time at least
_PIECE_BYTES: Final = 65536
_SMALL_BYTES: Final = 1024
_NUM_SMALL: Final = 16
_SMALL_PAUSE_S: Final = 0.02
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*\r\n", re.IGNORECASE)
_ENCODED: Final = re.compile(rb"\r\n(transfer|content)-encoding:", re.IGNORECASE)
_HTTP_OK: Final = 200
_HTTP_NOT_FOUND: Final = 404


async def metrics(address: str, expected: Expected) -> Observation:
    """Read a worker's /metrics (`address`: host:port). `ObserveError` when it gives no readable answer."""
    status, body = await _read("GET", address, "/metrics", max_bytes(expected))
    if status != _HTTP_OK:
        raise ObserveError(f"{address}/metrics answered {status}")
    if len(body) <= MAX_INLINE_BYTES:
        return parse_metrics(body, expected)
    return await asyncio.get_running_loop().run_in_executor(_PARSER, parse_metrics, body, expected)


async def preflight(address: str, expected: Expected) -> Preflight | None:
    """Read a worker's /preflight; None before it is ready. `ObserveError` when it gives no readable answer."""
    status, body = await _read("GET", address, "/preflight", max_bytes(expected))
    if status == _HTTP_NOT_FOUND:
        return None
    if status != _HTTP_OK:
        raise ObserveError(f"{address}/preflight answered {status}")
    return parse_preflight(body)


async def start(address: str, attempt: int, order: str) -> None:
    """Tell an attempt to start its first step; safe to repeat. `ObserveError` when it refuses or is not there."""
    status, _ = await _read("POST", address, "/start", MAX_HEAD_BYTES, {"attempt": attempt, "order": order})
    if not _HTTP_OK <= status < 300:
        raise ObserveError(f"{address}/start answered {status}")


async def answers(address: str) -> bool:
    """Whether anything answers there, and be it with a refusal: then the node lives."""
    try:
        async with asyncio.timeout(MAX_KNOCK_SECONDS):
            with _socket(address) as connection:
                await asyncio.get_running_loop().sock_connect(connection, _endpoint(address))
    except ConnectionRefusedError:
        return True
    except OSError:  # no answer in time among them
        return False
    return True


async def _read(method: str, address: str, path: str, most: int, body: Any = None) -> tuple[int, str]:
    """One request: the status of its answer, and its body of at most so many bytes."""
    content = b"" if body is None else json.dumps(body).encode()
    kind = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
    request = f"{method} {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n{kind}\r\n".encode() + content
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(MAX_SECONDS):
            with _socket(address) as connection:
                await loop.sock_connect(connection, _endpoint(address))
                await loop.sock_sendall(connection, request)
                status, answer = await _answer(_Received(connection), most)
    except (OSError, ValueError) as error:  # no answer in time among them
        raise ObserveError(f"{address}{path}: {error!r}") from error
    if len(answer) > most:
        raise ObserveError(f"{address}{path} answered more than {most} bytes")
    return status, answer.decode("utf-8", errors="replace")


async def _answer(received: "_Received", most: int) -> tuple[int, bytes]:
    """Status and body, the latter up to its announced length or the end; one byte more than `most` is enough to know.

    `ValueError` when it is no answer of HTTP/1.0, or ends early.
    """
    head = await received.head()
    status, length = _STATUS.match(head), _LENGTH.search(head)
    if status is None or _ENCODED.search(head):
        raise ValueError(f"no HTTP/1.0 answer: {head[:80]!r}")
    announced = int(length[1]) if length else None
    body = await received.read(most + 1 if announced is None else min(announced, most + 1))
    if announced is not None and len(body) < min(announced, most + 1):
        raise ValueError(f"ended after {len(body)} of {announced} bytes")
    return int(status[1]), body


class _Received:
    """The bytes that come over a connection.

    Each piece costs the operator about as much, be it a byte or a page: after `_NUM_SMALL` small ones it waits for
    `_SMALL_PAUSE_S` before each, while the kernel puts together what comes.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bytes = bytearray()
        self._num_small = 0

    async def head(self) -> bytes:
        """Up to the empty line, which is taken off the rest."""
        while (end := self._bytes.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)) < 0:
            if len(self._bytes) >= MAX_HEAD_BYTES or not await self._more():
                raise ValueError(f"no HTTP answer: {bytes(self._bytes[:80])!r}")
        head = bytes(self._bytes[: end + 2])
        del self._bytes[: end + 4]
        return head

    async def read(self, num_bytes: int) -> bytes:
        """So many bytes, or those that there are up to the end."""
        while len(self._bytes) < num_bytes and await self._more():
            pass
        return bytes(self._bytes[:num_bytes])

    async def _more(self) -> bool:
        if self._num_small > _NUM_SMALL:
            await asyncio.sleep(_SMALL_PAUSE_S)
        piece = await asyncio.get_running_loop().sock_recv(self._connection, _PIECE_BYTES)
        self._bytes += piece
        self._num_small += len(piece) < _SMALL_BYTES
        return bool(piece)


def _socket(address: str) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if address.startswith("[") else socket.AF_INET, socket.SOCK_STREAM)
    found.setblocking(False)
    return found


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
