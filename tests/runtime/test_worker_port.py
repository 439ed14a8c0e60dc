"""What anyone who reaches a worker's port 9400 can do with it: give no order, keep nobody out, make it no larger."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hulk_runtime import background
from hulk_runtime.job import worker_http
from hulk_runtime.job.worker_http import MAX_CONNECTIONS, MAX_OF_CLIENT, MAX_REQUEST_BYTES, NUM_UNDISTURBED
from hulk_runtime.training.metrics import process_registry
from hulk_runtime.training.preflight import Preflight
from hulk_runtime.training.progress_server import ProgressServer
from start_order import DIGEST, ORDER, order

PATIENCE_S = 60.0


@pytest.fixture
def served() -> Iterator[ProgressServer]:
    """Rank 0 of attempt 3, which waits for the operator."""
    with ProgressServer(process_registry(), 3, 0, DIGEST) as found:
        found.publish_preflight(Preflight((1.0,), 1.0))
        yield found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connected(served: ProgressServer, client: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), PATIENCE_S, (client, 0))


def sent(served: ProgressServer, request: bytes, client: str = "127.0.0.1") -> bytes:
    """All that comes back; empty when the connection is just closed."""
    with connected(served, client) as connection:
        answer = b""
        try:
            connection.sendall(request)
            while more := connection.recv(65536):
                answer += more
        except ConnectionError:  # closed with bytes unread
            pass
    return answer


def broke(connection: socket.socket, pieces: list[bytes], pause_s: float = 0.0) -> bool:
    """Whether the other side ends a connection before it has all pieces."""
    try:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause_s)
    except ConnectionError:
        return True
    return False


def post(served: ProgressServer, body: bytes, headers: bytes = b"") -> int:
    """The status of POST /start."""
    request = b"POST /start HTTP/1.1\r\nContent-Length: %d\r\n%s\r\n" % (len(body), headers)
    return int(sent(served, request + body).split()[1])


def metrics(served: ProgressServer, client: str = "127.0.0.1") -> bool:
    return sent(served, b"GET /metrics HTTP/1.1\r\n\r\n", client).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("no order", {"attempt": 3}, 403),
        ("an empty one", {"attempt": 3, "order": ""}, 403),
        ("the digest, which every reader of pods knows", {"attempt": 3, "order": DIGEST}, 403),
        ("half of it", {"attempt": 3, "order": ORDER[:-1]}, 403),
        ("nothing a text is", {"attempt": 3, "order": ["x"]}, 403),
        ("a text without an encoding", {"attempt": 3, "order": "\ud800"}, 403),
        ("no attempt", {"order": ORDER}, 400),
        ("an earlier attempt's", {"attempt": 2, "order": ORDER}, 409),
        ("a list", [3, ORDER], 400),
    ],
)
def test_nobody_but_the_operator_lets_a_gang_begin(
    served: ProgressServer, name: str, body: object, status: int
) -> None:
    assert post(served, json.dumps(body).encode()) == status, name
    assert not served.wait_for_start(0), name


@pytest.mark.parametrize("body", [b"[" * 999, b'{"a":' * 199, b"\xff" * 99], ids=["deep", "deeper", "no text"])
def test_a_body_that_breaks_parsers_is_an_answer_like_others(served: ProgressServer, body: bytes) -> None:
    before = dict(background.failures())
    assert post(served, body) == 400
    assert dict(background.failures()) == before


def test_the_operators_order_lets_it_begin(served: ProgressServer) -> None:
    assert post(served, order(3)) == 204
    assert served.wait_for_start(0)


def test_without_a_digest_no_order_is_taken() -> None:
    """Of an operator of an earlier release, or of a pod that someone else made."""
    with ProgressServer(process_registry(), 3, 0) as served:
        served.publish_preflight(Preflight((1.0,), 1.0))
        assert post(served, order(3)) == 403
        assert post(served, json.dumps({"attempt": 3, "order": ""}).encode()) == 403


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"GET /" + b"a" * 10**6, id="an address without an end"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nA: " + b"a" * 10**6, id="a header without an end"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: %b\r\n" % (n, b"a" * 400) for n in range(90)), id="many"),
        pytest.param(b"POST /start HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + b"[" * 10**6, id="a large body"),
        pytest.param(b"POST /start HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", id="a huge length"),
        pytest.param(b"POST /start HTTP/1.1\r\nContent-Length: -1\r\n\r\n", id="a negative length"),
    ],
)
def test_a_request_without_end_ends(served: ProgressServer, request_bytes: bytes) -> None:
    before = dict(background.failures())
    answer = sent(served, request_bytes)
    assert not answer or answer.startswith(b"HTTP/1.0 400"), answer
    assert dict(background.failures()) == before
    assert metrics(served)


def test_no_more_is_read_of_a_request_than_the_bound(served: ProgressServer) -> None:
    """The sender finds out that nobody reads: its socket breaks long before 64 MiB."""
    with connected(served) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nA: ")
        assert broke(connection, 1024 * [b"a" * MAX_REQUEST_BYTES * 4])


def test_one_client_has_a_few_connections(served: ProgressServer) -> None:
    server = served._server
    with ExitStack() as stack:
        for _ in range(4 * MAX_OF_CLIENT):
            stack.enter_context(connected(served))
        until(lambda: server.num_open == MAX_OF_CLIENT)
        assert not metrics(served)
        assert metrics(served, "127.0.0.2"), "others are answered meanwhile"
    until(lambda: server.num_open == 0)
    assert metrics(served)


def test_who_holds_connections_open_from_many_addresses_keeps_nobody_out(served: ProgressServer) -> None:
    """A slow loris: hundreds of connections that say a byte now and then."""
    server, threads, most = served._server, threading.active_count(), 0
    with ExitStack() as stack:
        for number in range(300):
            slow = stack.enter_context(connected(served, f"127.0.1.{number % 100 + 1}"))
            slow.sendall(b"GET /metrics HTTP/1.1\r\nA: ")
            most = max(most, threading.active_count() - threads)
            if number % 50 == 49:
                assert metrics(served, "127.0.0.2"), number
        until(lambda: server.num_open <= NUM_UNDISTURBED)
    assert most <= MAX_CONNECTIONS
    until(lambda: server.num_open == 0)


def test_a_connection_ends_however_busy_it_is(served: ProgressServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte before each timeout of a read would hold it for ever."""
    monkeypatch.setattr(worker_http, "MAX_CONNECTION_S", 0.5)
    with connected(served) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nA: ")
        assert broke(slow, round(PATIENCE_S / 0.05) * [b"a"], pause_s=0.05)


def test_a_flood_does_not_make_a_node_look_dead(served: ProgressServer) -> None:
    """Whoever knocks is accepted, be it to be sent away."""
    with ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(connected(served, "127.0.0.3"))
        with socket.create_connection(("127.0.0.1", served.port), 1.0):
            pass
