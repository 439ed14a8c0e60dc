"""The light echo between two real sockets, and what it does with traffic that is not its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest
from hulk_runtime.agent import echo_datagram
from hulk_runtime.agent.echo import Echo
from hulk_runtime.agent.orders import Address
from hulk_runtime.agent.rtt_window import MIN_SAMPLES, WINDOW_SIZE, Window


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for a condition, failing when it does not come true."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def near() -> AsyncIterator[Echo]:
    echo = Echo.open(("127.0.0.1",), 0)
    yield echo
    echo.close()


@pytest.fixture
async def far() -> AsyncIterator[Echo]:
    echo = Echo.open(("127.0.0.2",), 0)
    yield echo
    echo.close()


def stranger() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(("127.0.0.3", 0))
    return sock


async def test_measures_a_round_trip_between_two_addresses(near: Echo, far: Echo) -> None:
    near.aim({"far": Address("127.0.0.2", far.port)})
    for _ in range(MIN_SAMPLES):
        near.ask("far")
    await until(lambda: near.num_samples("far") == MIN_SAMPLES)
    rtt = near.results()["far"]
    assert 0 < rtt.p50_us <= rtt.p95_us < 1_000_000
    assert rtt.num_samples == MIN_SAMPLES
    assert far.counters.replied == MIN_SAMPLES


async def test_the_peers_hold_time_is_not_network_time(near: Echo) -> None:
    peer = stranger()
    near.aim({"slow": Address("127.0.0.3", peer.getsockname()[1])})
    loop = asyncio.get_running_loop()
    while near.counters.answered < MIN_SAMPLES:  # on a busy machine some are held for longer than is believed
        taken = near.counters.answered + near.counters.lost
        near.ask("slow")
        data, sender = await loop.sock_recvfrom(peer, 64)
        arrived = loop.time()
        await until(lambda arrived=arrived: loop.time() - arrived >= 0.015)  # type: ignore[misc]
        request = echo_datagram.decode(data)
        assert request is not None
        hold_ns = int((loop.time() - arrived) * 1e9)
        peer.sendto(echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REPLY, request.nonce, hold_ns)), sender)
        await until(lambda taken=taken: near.counters.answered + near.counters.lost > taken)  # type: ignore[misc]
    assert near.results()["slow"].p50_us < 10_000
    peer.close()


async def test_a_peer_cannot_claim_that_the_network_was_fast(near: Echo) -> None:
    """It answers after 100 ms, and says that it held the request for 99 of them."""
    peer = stranger()
    near.aim({"liar": Address("127.0.0.3", peer.getsockname()[1])})
    near.ask("liar")
    data, sender = await asyncio.get_running_loop().sock_recvfrom(peer, 64)
    await asyncio.sleep(0.1)
    request = echo_datagram.decode(data)
    assert request is not None
    peer.sendto(
        echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REPLY, request.nonce, hold_ns=99_000_000)), sender
    )
    await until(lambda: near.counters.lost == 1)
    assert near.num_samples("liar") == 0
    peer.close()


async def test_a_reply_is_never_larger_than_its_request_and_foreign_datagrams_get_none(near: Echo) -> None:
    peer = stranger()
    request = echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REQUEST, nonce=5))
    newer = request[:4] + bytes([echo_datagram.VERSION + 1]) + request[5:]
    foreign = [
        b"",
        b"x" * 32,
        request[:-1],
        request + b"!",
        newer,
        echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REPLY, nonce=5)),
    ]
    for data in [*foreign, request]:
        peer.sendto(data, ("127.0.0.1", near.port))
    reply = await asyncio.get_running_loop().sock_recv(peer, 2048)
    assert len(reply) == len(request)
    assert echo_datagram.decode(reply) is not None
    await until(lambda: near.counters.refused == len(foreign))
    assert near.counters.replied == 1
    peer.close()


async def test_answers_with_a_wrong_nonce_or_sender_or_hold_time_are_refused(near: Echo) -> None:
    peer, other = stranger(), stranger()
    near.aim({"peer": Address("127.0.0.2", peer.getsockname()[1]), "liar": Address("127.0.0.3", peer.getsockname()[1])})
    near.ask("liar")
    data, sender = await asyncio.get_running_loop().sock_recvfrom(peer, 64)
    request = echo_datagram.decode(data)
    assert request is not None
    peer.sendto(echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REPLY, request.nonce ^ 1)), sender)
    peer.sendto(
        echo_datagram.encode(echo_datagram.Datagram(echo_datagram.REPLY, request.nonce, hold_ns=10**15)), sender
    )
    await until(lambda: near.counters.refused == 1 and near.counters.lost == 1)
    assert near.num_samples("liar") == 0
    peer.close()
    other.close()


async def test_a_target_that_moved_starts_again_and_one_no_longer_ordered_is_forgotten(near: Echo, far: Echo) -> None:
    near.aim({"far": Address("127.0.0.2", far.port)})
    near.ask("far")
    await until(lambda: near.num_samples("far") == 1)
    near.aim({"far": Address("127.0.0.2", far.port)})
    assert near.num_samples("far") == 1
    near.aim({"far": Address("127.0.0.9", far.port)})
    assert near.num_samples("far") == 0
    near.aim({})
    assert near.targets() == []


@pytest.mark.parametrize(
    ("samples", "p50_us", "p95_us"),
    [
        ([10] * 5, 10, 10),
        (list(range(1, 21)), 10, 19),
        ([*range(1, 101)], 70, 97),  # only the newest 60 count: 41..100
    ],
)
def test_percentiles_are_nearest_rank_over_the_newest_samples(samples: list[int], p50_us: int, p95_us: int) -> None:
    window = Window()
    for index, sample in enumerate(samples):
        window.add(float(index), sample)
    rtt = window.rtt()
    assert rtt is not None
    assert (rtt.p50_us, rtt.p95_us, rtt.num_samples) == (p50_us, p95_us, min(WINDOW_SIZE, len(samples)))


def test_a_whole_window_of_losses_forgets_the_old_path() -> None:
    window = Window()
    for index in range(MIN_SAMPLES):
        window.add(float(index), 100)
    for _ in range(WINDOW_SIZE - 1):
        window.lose()
    assert window.rtt() is not None
    window.lose()
    assert window.rtt() is None
