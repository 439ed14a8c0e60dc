"""Bandwidth tests with the real iperf3 program between loopback addresses, and the reading of its reports."""

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hulk_runtime.agent import bandwidth, iperf, tcp_peers
from hulk_runtime.agent.iperf import IperfError, Transfer
from hulk_runtime.agent.orders import Address, BandwidthOrder

NEAR, FAR, STRANGER = "127.0.1.1", "127.0.1.2", "127.0.1.3"


@pytest.fixture(autouse=True)
def every_process_is_waited_for(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio warns when it cannot learn how one of its processes ended."""
    yield
    assert "Unknown child process" not in caplog.text


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind((FAR, 0))
        return int(probe.getsockname()[1])


def order(
    port: int, role: str, num_bytes: int = 0, seconds: int = 1, not_before_s: float | None = None
) -> BandwidthOrder:
    peer = FAR if role == "client" else NEAR
    start_s = time.time() if not_before_s is None else not_before_s
    return BandwidthOrder(7, role, "peer", Address(peer, port), 2, seconds, num_bytes, start_s)


def children() -> set[str]:
    """Command lines of this process's iperf3 processes."""
    found = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = directory.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            command = directory.joinpath("cmdline").read_bytes().decode().replace("\0", " ")
        except OSError:
            continue
        if int(parent) == os.getpid() and command.startswith("iperf3"):
            found.add(command)
    return found


async def until_open(port: int) -> None:
    """Wait until a server listens."""
    async with asyncio.timeout(10):
        while not listens(port):
            await asyncio.sleep(0.01)


def listens(port: int) -> bool:
    """Whether a server has the port open, seen without connecting to it."""
    return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


async def test_the_client_gets_the_rate_that_arrived_and_the_server_closes(port: int) -> None:
    client, server = order(port, "client"), order(port, "server")
    result, nothing = await asyncio.gather(
        bandwidth.run(client, NEAR, time.time), bandwidth.run(server, FAR, time.time)
    )
    assert nothing is None
    assert isinstance(result, Transfer)
    assert result.num_streams == 2
    assert result.bytes_per_s > 1_000_000
    assert not children()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((FAR, port), timeout=1)


@pytest.mark.parametrize("wrong_s", [-3600.0, 3600.0], ids=["slow", "fast"])
async def test_an_appointment_is_by_the_given_clock(port: int, wrong_s: float) -> None:
    """The nodes' own clocks are an hour off."""

    def clock() -> float:
        return time.time() + wrong_s

    sides = [order(port, role, not_before_s=clock()) for role in ("client", "server")]
    result, _ = await asyncio.gather(bandwidth.run(sides[0], NEAR, clock), bandwidth.run(sides[1], FAR, clock))
    assert isinstance(result, Transfer)


async def test_the_client_waits_for_a_server_that_comes_later(port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=bandwidth.__name__)
    client = asyncio.create_task(bandwidth.run(order(port, "client"), NEAR, time.time))
    async with asyncio.timeout(10):
        while caplog.text.count("Connection refused") < 2:
            await asyncio.sleep(0.01)
    assert not client.done()
    _, result = await asyncio.gather(bandwidth.run(order(port, "server"), FAR, time.time), client)
    assert result is not None


async def test_a_byte_budget_is_kept_by_two_runs(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[bytes] = []
    parse = iperf.parse

    def spy(output: bytes) -> Transfer:
        reports.append(output)
        return parse(output)

    monkeypatch.setattr(iperf, "parse", spy)
    num_bytes = 40_000_000
    client, server = order(port, "client", num_bytes), order(port, "server", num_bytes)
    result, _ = await asyncio.gather(bandwidth.run(client, NEAR, time.time), bandwidth.run(server, FAR, time.time))
    assert result is not None
    sent = [json.loads(output)["start"]["test_start"] for output in reports if b'"connecting_to"' in output]
    assert [run["bytes"] for run in sent] == [0, num_bytes // 2]
    assert sent[0]["target_bitrate"] * 2 == num_bytes / 2 / 2 * 8  # two streams; one second and one omitted
    assert result.bytes_per_s > num_bytes  # loopback is far faster than the pace


async def test_a_stranger_cannot_hold_the_server(port: int) -> None:
    server = asyncio.create_task(bandwidth.run(order(port, "server"), FAR, time.time))
    await until_open(port)
    with socket.create_connection((FAR, port), timeout=1, source_address=(STRANGER, 0)) as intruder:
        intruder.setblocking(False)
        assert await closed(intruder)
    result, _ = await asyncio.gather(bandwidth.run(order(port, "client"), NEAR, time.time), server)
    assert result is not None


async def closed(connection: socket.socket) -> bool:
    """Whether the other side ends the connection, with or without a reset."""
    try:
        async with asyncio.timeout(5):
            while await asyncio.get_running_loop().sock_recv(connection, 64):
                continue  # iperf3 says what it is doing
            return True
    except ConnectionResetError:
        return True


async def test_nobody_comes(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "PATIENCE_S", 0.5)
    monkeypatch.setattr(bandwidth, "HANDSHAKE_S", 0.5)
    with pytest.raises(IperfError, match="peer did not come"):
        await bandwidth.run(order(port, "server"), FAR, time.time)
    with pytest.raises(IperfError, match=r"test 7 to peer: .*refused"):
        await bandwidth.run(order(port, "client"), NEAR, time.time)
    assert not children()


@pytest.mark.parametrize("role", ["client", "server"])
async def test_an_old_order_is_given_up_at_once(port: int, role: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(IperfError):
        await bandwidth.run(
            order(port, role, not_before_s=time.time() - 3600), NEAR if role == "client" else FAR, time.time
        )
    assert time.monotonic() - started_s < 10


BREAKS_OFF = """#!/bin/sh
echo run >> {runs}
echo '{{"start": {{"connected": [{{"socket": 5}}]}}, "end": {{}}, "error": "control socket has closed unexpectedly"}}'
"""


async def test_a_run_that_broke_off_is_not_paid_for_twice(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, runs = tmp_path / "iperf3", tmp_path / "runs"
    program.write_text(BREAKS_OFF.format(runs=runs))
    program.chmod(0o755)
    monkeypatch.setattr(iperf, "PROGRAM", str(program))
    with pytest.raises(IperfError, match="control socket has closed"):
        await bandwidth.run(order(port, "client", num_bytes=1_000_000), NEAR, time.time)
    assert runs.read_text() == "run\n"


async def test_an_order_without_a_time_runs_at_once(port: int) -> None:
    now, server = order(port, "client", not_before_s=0.0), order(port, "server", not_before_s=0.0)
    result, _ = await asyncio.gather(bandwidth.run(now, NEAR, time.time), bandwidth.run(server, FAR, time.time))
    assert result is not None


async def test_cancelling_ends_the_program(port: int) -> None:
    server = asyncio.create_task(bandwidth.run(order(port, "server"), FAR, time.time))
    await until_open(port)
    assert len(children()) == 1
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server
    assert not children()


async def test_connections_are_read_from_the_kernel() -> None:
    with socket.create_server((FAR, 0)) as listener:
        port = listener.getsockname()[1]
        assert tcp_peers.peers(port) == frozenset()
        with socket.create_connection((FAR, port), source_address=(STRANGER, 0)):
            assert tcp_peers.peers(port) == {STRANGER}


def test_connections_in_the_ipv6_table() -> None:
    mapped = "1: 0000000000000000FFFF00000201007F:24BC 0000000000000000FFFF00000301007F:9C41 01"
    real = "2: B80D0120000000000000000001000000:24BC B80D0120000000000000000002000000:9C41 01"
    listening = "3: 00000000000000000000000000000000:24BC 00000000000000000000000000000000:0000 0A"
    table = "\n".join(["header", mapped, real, listening])
    assert tcp_peers.parse(table, 0x24BC) == {"127.0.1.3", "2001:db8::2"}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"", "printed no JSON"),
        (b"iperf3: parameter error", "printed no JSON"),
        (b"[1]", "printed no report"),
        (b'{"error": "the server is busy running a test"}', "server is busy"),
        (b'{"end": {}}', "has no 'sum_received'"),
        (b'{"end": {"sum_received": {"bits_per_second": 0}, "streams": [{}]}}', "nothing arrived"),
        (b'{"end": {"sum_received": {"bits_per_second": 80}, "streams": []}}', "nothing arrived"),
    ],
)
def test_a_report_without_a_result_is_refused(output: bytes, message: str) -> None:
    with pytest.raises(IperfError, match=message):
        iperf.parse(output)


@pytest.mark.parametrize(("start", "believed"), [('{"connecting_to": {}}', 1_000_000), ("{}", 125_000_000)])
def test_a_sender_believes_no_more_than_it_has_sent(start: str, believed: int) -> None:
    sums = '"sum_received": {"bits_per_second": 1e9}, "sum_sent": {"bits_per_second": 8e6}'
    report = f'{{"start": {start}, "end": {{{sums}, "streams": [{{}}]}}}}'
    assert iperf.parse(report.encode()) == Transfer(believed, 1)


@pytest.mark.parametrize(
    ("num_bytes", "rate", "expected"),
    [(0, 10**12, False), (60_000_000, 10_000_000, False), (60_000_000, 12_000_000, True)],
)
def test_a_second_run_only_where_the_pace_was_the_limit(num_bytes: int, rate: float, expected: bool) -> None:
    # 60 MB over 1 + 1 seconds: the pace is 15 MB/s, 80 % of it 12 MB/s
    assert iperf.needs_second_run(order(1, "client", num_bytes), rate) is expected
