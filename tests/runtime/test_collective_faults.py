"""A peer that dies, stalls, sends garbage or comes twice: every rank says the same within the bound, nothing hangs."""

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from collective_ranks import PATIENCE_S, SCOPE, SECRET, Doors, all_reduce, connect, doors, group, together, vectors
from hulk_runtime.collective.channel import Channel, PeerGoneError
from hulk_runtime.collective.failure import Failure
from hulk_runtime.collective.frames import GarbageError, Header, Kind, Phase, parse
from hulk_runtime.collective.group import Collective, Settings, digest
from hulk_runtime.collective.handshake import Identity, RefusedError, greet
from hulk_runtime.collective.peer import Peer
from hulk_runtime.collective.plan import CollectivePlan, Flow, SizeClass
from hulk_runtime.collective.work import Work
from hulk_runtime.errors import PeerLostError, RankLostError
from hypothesis import given, settings
from hypothesis import strategies as st

BOUND_S = 2.0
QUICK = Settings(bound_s=BOUND_S, connect_s=PATIENCE_S)
PLAN = CollectivePlan(
    ((0, 1), (2,), (3,)),
    {},
    (SizeClass(1 << 40, 1 << 12, (Flow(0.6, (0, 1), ((2, 1),), ((2, 0),)), Flow(0.4, (0, 1, 2)))),),
)
LAST = 3


def identity(plan: CollectivePlan = PLAN, secret: bytes = SECRET, scope: str = SCOPE) -> Identity:
    return Identity(secret, scope, digest(plan))


def knock(at: Doors, target: int, rank: int = LAST, who: Identity | None = None) -> socket.socket:
    """A connection as `rank`, authenticated. Raises RefusedError."""
    connection = socket.create_connection((at.addresses[target].host, at.addresses[target].port))
    try:
        greet(connection, who or identity(), 0, rank, target)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def three_and_a_stranger() -> Iterator[tuple[list[Collective], list[socket.socket], Doors]]:
    """Ranks 0 to 2 of the plan, and the authenticated sockets of a rank 3 that a test plays."""
    at = doors(PLAN.num_ranks)
    joined = together(
        [
            *(lambda rank=rank: connect(rank, at, PLAN, QUICK) for rank in range(LAST)),  # type: ignore[misc]
            lambda: [knock(at, target) for target in range(LAST)],
        ]
    )
    ranks, sockets = joined[:LAST], joined[LAST]
    try:
        yield ranks, sockets, at
    finally:
        together([rank.close for rank in ranks])
        for connection in (*sockets, at.listeners[LAST]):
            connection.close()


def errors_of(works: list[Work]) -> list[RankLostError]:
    """What every rank raises, within the bound and what a slow machine takes."""
    found = []
    for work in works:
        with pytest.raises(RankLostError) as caught:
            work.wait(10 * BOUND_S)
        found.append(caught.value)
    return found


def begin(ranks: list[Collective]) -> list[Work]:
    return [rank.all_reduce(vector) for rank, vector in zip(ranks, vectors(len(ranks), 40_000), strict=True)]


def close_all(sockets: list[socket.socket]) -> None:
    for connection in sockets:
        connection.close()


def send_all(payload: bytes) -> Callable[[list[socket.socket]], None]:
    def send(sockets: list[socket.socket]) -> None:
        for connection in sockets:
            connection.sendall(payload)

    return send


def chunk(**changes: object) -> bytes:
    """A chunk's header and payload."""
    header = Header(Kind.CHUNK, **{"num_bytes": 4, "phase": Phase.EXCHANGE, **changes})  # type: ignore[arg-type]
    return header.pack() + bytes(header.num_bytes)


@pytest.mark.parametrize(
    ("misbehave", "says"),
    [
        pytest.param(close_all, "connection", id="dies"),
        pytest.param(send_all(Header(Kind.BEAT).pack()), "nothing was heard of it for 1.6 s", id="stalls"),
        pytest.param(
            send_all(b"GET / HTTP/1.1\r\nHost: hulk\r\n\r\n"), "it sent garbage: a frame begins with", id="http"
        ),
        pytest.param(send_all(chunk(part=999)), "it sent garbage: chunk 0 of part 999", id="no such part"),
        pytest.param(send_all(chunk(chunk=70_000)), "it sent garbage: chunk 70000", id="no such chunk"),
        pytest.param(send_all(chunk(num_bytes=12)), "has 12 bytes", id="wrong length"),
        pytest.param(send_all(chunk(phase=Phase.RESULT)), "phase RESULT", id="not its part"),
        pytest.param(
            send_all(struct.pack("<HBBIIHHII", 0x4B48, 1, 0, 0, 0, 0, 0, 0, 1 << 30)), "bytes", id="too large"
        ),
    ],
)
def test_every_rank_names_the_same_culprit(misbehave: Callable[[list[socket.socket]], None], says: str) -> None:
    with three_and_a_stranger() as (ranks, sockets, _):
        works = begin(ranks)
        started = time.monotonic()
        misbehave(sockets)
        errors = errors_of(works)
        assert {error.rank for error in errors} == {LAST}
        assert len({str(error) for error in errors}) == 1
        assert says in str(errors[0])
        assert time.monotonic() - started < 10 * BOUND_S
        with pytest.raises(RankLostError, match="rank 3 was lost"):  # and so does whatever comes later
            ranks[0].all_reduce(torch.zeros(4)).wait(PATIENCE_S)


def test_a_rank_that_connects_again_ends_the_group() -> None:
    with three_and_a_stranger() as (ranks, _, at):
        works = begin(ranks)
        again = knock(at, target=1)
        errors = errors_of(works)
        again.close()
        assert {str(error) for error in errors} == {"rank 3 was lost: it connected twice"}


def test_a_chunk_that_begins_before_its_operation_is_looked_at_like_any_other() -> None:
    """Its header comes first, the operation is begun, and then comes its payload."""
    with three_and_a_stranger() as (ranks, sockets, _):
        for connection in sockets:
            connection.sendall(chunk(part=999)[:-2])
        time.sleep(0.2)
        works = begin(ranks)
        time.sleep(0.2)
        for connection in sockets:
            connection.sendall(bytes(2))
        errors = errors_of(works)
        assert {str(error)[:50] for error in errors} == {"rank 3 was lost: it sent garbage: chunk 0 of part "}


def test_strangers_at_the_door_disturb_nobody() -> None:
    at = doors(PLAN.num_ranks)
    ranks = together([lambda rank=rank: connect(rank, at, PLAN, QUICK) for rank in range(4)])  # type: ignore[misc]
    try:
        for who, why in [
            (identity(secret=b"another secret!!"), "another secret"),
            (identity(scope="team/demo/0"), "another job or attempt"),
            (identity(CollectivePlan.direct([[0, 1], [2], [3]])), "another plan"),
        ]:
            with pytest.raises(RefusedError, match=why):
                knock(at, target=0, who=who)
        with socket.create_connection((at.addresses[0].host, at.addresses[0].port)) as scanner:
            scanner.sendall(b"\x16\x03\x01" + random.Random(1).randbytes(200))
            idle = socket.create_connection((at.addresses[0].host, at.addresses[0].port))
            mine = vectors(4, 1000)
            all_reduce(ranks, mine)
            idle.close()
        assert torch.equal(mine[0], mine[3])
    finally:
        together([rank.close for rank in ranks])


def test_who_does_not_come_is_named() -> None:
    at = doors(PLAN.num_ranks)
    with pytest.raises(PeerLostError, match=r"ranks \[1, 2, 3\] did not connect within 0.5 s"):
        connect(0, at, PLAN, Settings(connect_s=0.5))
    for listener in at.listeners[1:]:
        listener.close()


def test_leaving_in_good_order_is_no_failure() -> None:
    with group(PLAN, QUICK) as ranks:
        mine = vectors(4, 5000)
        works = [rank.all_reduce(vector) for rank, vector in zip(ranks, mine, strict=True)]
        works[3].wait(PATIENCE_S)
        ranks[3].close()  # while others may still be adding
        for work in works:
            work.wait(PATIENCE_S)
        with pytest.raises(RankLostError, match="rank 3 was lost: it left"):
            ranks[0].all_reduce(torch.zeros(100)).wait(PATIENCE_S)


def test_a_rank_that_does_not_take_part_is_waited_for_only_so_long() -> None:
    """Its process lives and its connections beat: only whoever waits can tell how long is too long."""
    with group(PLAN, QUICK) as ranks:
        works = [rank.all_reduce(torch.zeros(100)) for rank in ranks[:3]]
        with pytest.raises(PeerLostError, match="rank 3 was lost: it did not begin all-reduce 0 within 3 s"):
            works[0].wait(1.5 * BOUND_S)
        assert len({str(error) for error in errors_of(works)}) == 1


class Nothing:
    """Takes every frame."""

    def place(self, _: Peer, header: Header) -> memoryview:
        return memoryview(bytearray(header.num_bytes))

    def arrived(self, _: Peer, header: Header, payload: memoryview) -> None:
        assert len(payload) == header.num_bytes
        if header.kind is Kind.ABORT:
            Failure.parse(payload)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def receive_often(channel: Channel, times: int) -> None:
    for _ in range(times):
        channel.receive(Nothing(), 0.0)


FRAMES = st.builds(
    lambda kind, length, numbers: (
        Header(kind, length if kind in (Kind.CHUNK, Kind.WARM, Kind.ABORT) else 0, *numbers).pack()
        + bytes(length if kind in (Kind.CHUNK, Kind.WARM, Kind.ABORT) else 0)
    ),
    st.sampled_from(Kind),
    st.integers(1, 300),
    st.tuples(*[st.integers(0, 65_535)] * 4),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(FRAMES, st.binary(max_size=60)), max_size=8), st.data())
def test_whatever_arrives_is_a_frame_or_garbage(pieces: list[bytes], data: st.DataObject) -> None:
    """Frames, noise between them, single bits turned, cut anywhere: never another error, never a hang."""
    stream = bytearray(b"".join(pieces))
    for place in data.draw(st.lists(st.integers(0, max(0, len(stream) * 8 - 1)), max_size=3)) if stream else ():
        stream[place // 8] ^= 1 << place % 8
    ours, theirs = tcp_pair()
    with ours, theirs:
        channel = Channel(ours, Peer(1, is_far=False))
        theirs.sendall(stream)
        theirs.close()
        with pytest.raises((GarbageError, PeerGoneError)):
            receive_often(channel, 10 + len(stream))


@given(st.binary(min_size=24, max_size=24))
def test_a_header_is_parsed_back_or_garbage(head: bytes) -> None:
    try:
        header = parse(head)
    except GarbageError:
        return
    assert header.pack() == head


@given(st.binary(max_size=700))
def test_a_failure_is_parsed_or_garbage(payload: bytes) -> None:
    try:
        failure = Failure.parse(memoryview(payload))
    except GarbageError:
        return
    assert failure.reason.isprintable()


def test_a_goodbye_and_then_silence_is_noticed() -> None:
    """A node may die right after it has said that it leaves."""
    with three_and_a_stranger() as (ranks, sockets, _):
        works = begin(ranks)
        send_all(Header(Kind.LEAVE).pack())(sockets)
        errors = errors_of(works)
        assert {error.rank for error in errors} == {LAST}


def test_ranks_that_start_late_are_waited_for() -> None:
    """The first ranks are connected long before the last one, which some of them do not talk to yet."""
    plan = CollectivePlan.direct([[0, 1], [2, 3]])
    at = doors(4)

    def late() -> Collective:
        time.sleep(2 * BOUND_S)
        return connect(3, at, plan, QUICK)

    ranks = together([*(lambda rank=rank: connect(rank, at, plan, QUICK) for rank in range(3)), late])  # type: ignore[misc]
    try:
        mine = vectors(4, 1000)
        all_reduce(ranks, mine)
        assert torch.equal(mine[0], mine[3])
    finally:
        together([rank.close for rank in ranks])


def test_strangers_who_say_nothing_keep_nobody_out() -> None:
    at = doors(4)
    host = (at.addresses[0].host, at.addresses[0].port)
    idle = [socket.create_connection(host) for _ in range(80)]
    ranks = together([lambda rank=rank: connect(rank, at, PLAN, QUICK) for rank in range(4)])  # type: ignore[misc]
    idle += [socket.create_connection(host) for _ in range(80)]
    started = time.monotonic()
    together([rank.close for rank in ranks])
    assert time.monotonic() - started < 5 * BOUND_S
    for connection in idle:
        connection.close()
