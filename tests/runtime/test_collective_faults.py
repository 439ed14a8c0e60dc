"""A peer that dies, stalls, sends garbage or comes twice: every rank says the same within the bound, nothing hangs."""

import errno
import itertools
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch
from collective_ranks import (
    PATIENCE_S,
    SCOPE,
    SECRET,
    Doors,
    all_reduce,
    connect,
    doors,
    group,
    together,
    vectors,
    wait_for,
    within,
)
from depth import num_examples
from hulk_runtime.collective.connections.channel import CLOSED, Channel, PeerGoneError, _gone
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.collective.planned import roles
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.wire.failure import Failure, Verdict
from hulk_runtime.collective.wire.frames import GarbageError, Header, Kind, Phase, parse
from hulk_runtime.collective.wire.handshake import Identity, RefusedError, greet
from hulk_runtime.collective.wire.records import Plain
from hulk_runtime.errors import MembershipChangedError, PeerLostError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan, Flow, SizeClass
from hypothesis import given, settings
from hypothesis import strategies as st

BOUND_S = 2.0
QUICK = Settings(bound_s=BOUND_S, connect_s=PATIENCE_S)
PLAN = CollectivePlan(
    ((0, 1), (2,), (3,)),
    {},
    (SizeClass(1 << 40, 1 << 12, (Flow(0.6, (0, 1), ((2, 1),), ((2, 0),)), Flow(0.4, (0, 1, 2)))),),
    encryption="none",
)
"""Not encrypted where a test plays a rank and writes frames as they are."""
SEALED = replace(PLAN, encryption="wan")
LAST = 3
PAIRS = replace(CollectivePlan.direct([[0, 1], [2, 3]]), on_region_loss="continue", encryption="none")
"""Of two halves the one with rank 0 goes on."""


def identity(
    plan: CollectivePlan = PLAN, secret: bytes = SECRET, scope: str = SCOPE, settings: Settings = QUICK
) -> Identity:
    return Identity(secret, scope, settings.digest(plan))


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
def some_and_strangers(
    num_ranks: int, plan: CollectivePlan, settings: Settings
) -> Iterator[tuple[list[Collective], dict[int, list[socket.socket]], Doors]]:
    """The first ranks of the plan, and the authenticated sockets of the others, which a test plays."""
    at, strangers = doors(plan.num_ranks), range(num_ranks, plan.num_ranks)
    played = [
        lambda rank=rank: [knock(at, target, rank, identity(plan, settings=settings)) for target in range(num_ranks)]  # type: ignore[misc]
        for rank in strangers
    ]
    real = [lambda rank=rank: connect(rank, at, plan, settings) for rank in range(num_ranks)]  # type: ignore[misc]
    joined = together([*real, *played])
    ranks, sockets = joined[:num_ranks], dict(zip(strangers, joined[num_ranks:], strict=True))
    try:
        yield ranks, sockets, at
    finally:
        together([rank.close for rank in ranks])
        for connection in (*itertools.chain(*sockets.values()), *at.listeners[num_ranks:]):
            connection.close()


@contextmanager
def three_and_a_stranger() -> Iterator[tuple[list[Collective], list[socket.socket], Doors]]:
    """Ranks 0 to 2 of the plan, and the sockets of a rank 3."""
    with some_and_strangers(LAST, PLAN, QUICK) as (ranks, sockets, at):
        yield ranks, sockets[LAST], at


def errors_of(works: list[Work]) -> list[RankLostError]:
    """What every rank raises."""
    found = []
    for work in works:
        with pytest.raises(RankLostError) as caught:
            work.wait(PATIENCE_S)
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
        pytest.param(send_all(Header(Kind.BEAT).pack()), "nothing was heard of it for 1.2 s", id="stalls"),
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
        with within(BOUND_S):
            misbehave(sockets)
            errors = errors_of(works)
        assert {error.rank for error in errors} == {LAST}
        assert len({str(error) for error in errors}) == 1
        assert says in str(errors[0])
        with pytest.raises(RankLostError, match="rank 3 was lost"):  # and so does whatever comes later
            ranks[0].all_reduce(torch.zeros(4)).wait(PATIENCE_S)


BEAT = Header(Kind.BEAT).pack()


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
@pytest.mark.parametrize("apart_s", [0.0, pytest.param(BOUND_S / 16, marks=pytest.mark.whole)])
def test_ranks_that_stand_still_together_are_found_together(first: int, second: int, apart_s: float) -> None:
    """A node with two of them: the smaller one is named by all, also where it was heard of last."""
    with some_and_strangers(2, PLAN, QUICK) as (ranks, sockets, _):
        works = begin(ranks)
        send_all(BEAT)(sockets[first])
        time.sleep(apart_s)  # between their last beats
        with within(BOUND_S):
            send_all(BEAT)(sockets[second])
            errors = errors_of(works)
        assert {str(error) for error in errors} == {"rank 2 was lost: nothing was heard of it for 1.2 s"}


def test_a_rank_that_stands_still_when_another_dies_is_not_waited_for() -> None:
    """The group ends within the part of the bound in which ranks settle on whom they lost."""
    bound_s = 2 * BOUND_S
    with some_and_strangers(2, PLAN, replace(QUICK, bound_s=bound_s)) as (ranks, sockets, _):
        works = begin(ranks)
        send_all(BEAT)(sockets[3])
        with within(0.15 * bound_s):
            for connection in sockets[2]:  # closed with bytes unread it would be reset instead
                connection.shutdown(socket.SHUT_RDWR)
            errors = errors_of(works)
        assert {str(error) for error in errors} == {"rank 2 was lost: it closed its connection"}


def test_a_part_of_a_region_that_stands_still_ends_the_group_within_the_bound() -> None:
    with some_and_strangers(3, PAIRS, replace(QUICK, bound_s=2 * BOUND_S)) as (ranks, sockets, _):
        works = begin(ranks)
        with within(2 * BOUND_S):
            send_all(BEAT)(sockets[LAST])
            errors = errors_of(works)
        assert {str(error) for error in errors} == {"rank 3 was lost: nothing was heard of it for 2.4 s"}


@pytest.mark.parametrize("apart_s", [0.0, 2 * BOUND_S / 16])
def test_a_region_that_stands_still_is_left_out_within_the_bound(apart_s: float) -> None:
    """Also where its ranks were heard of last up to a beat apart."""
    with some_and_strangers(2, PAIRS, replace(QUICK, bound_s=2 * BOUND_S)) as (ranks, sockets, _):
        works = begin(ranks)
        send_all(BEAT)(sockets[2])
        time.sleep(apart_s)  # between their last beats
        with within(2 * BOUND_S):
            send_all(BEAT)(sockets[3])
            for work in works:
                with pytest.raises(MembershipChangedError, match="2 ranks go on in epoch 1"):
                    work.wait(PATIENCE_S)


@pytest.mark.parametrize("bound_s", [0.01, 2.0, 10.0, 300.0])
def test_the_parts_of_the_bound_are_no_more_than_it(bound_s: float) -> None:
    parts = LossTimeouts(bound_s)
    assert parts.silent_s + parts.tick_s + parts.regroup_s + parts.tick_s + parts.settle_s < bound_s
    assert parts.beat_s + 2 * parts.tick_s < min(parts.regroup_s, parts.settle_s), "two are found at the same time"
    assert parts.pause_s + parts.beat_s + parts.tick_s < parts.silent_s, "a pause of this process blames nobody"


def test_who_hears_all_is_done_when_all_have_spoken_and_others_when_time_is_up() -> None:
    late, early_one = Failure(5, "silent"), Failure(1, "silent")
    mesh, sparse = (Verdict(late, 0, 100.0, 3.0, hears_all) for hears_all in (True, False))
    for verdict in (mesh, sparse):
        verdict.add(late, 2)
    assert mesh.is_settled(100.1, [2, 5])
    assert not mesh.add(early_one, 2), "what is settled stays"
    assert not sparse.is_settled(102.9, [2, 5])
    assert sparse.add(early_one, 2)
    assert not sparse.add(late, 2)
    assert sparse.is_settled(103.1, [2, 5])
    assert (mesh.failure, sparse.failure) == (late, early_one)


def test_a_smaller_failure_is_passed_on_to_those_who_cannot_hear_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 0 and 5 have no connection, as in a group of very many: both see something, rank 5 a little later."""
    monkeypatch.setattr(roles, "MAX_MESH", 1)
    plan = CollectivePlan.direct([[0, 1], [2, 3], [4, 5]])
    with group(plan, replace(QUICK, bound_s=10 * BOUND_S)) as ranks:
        assert roles.partners(plan, 0) == [1, 2, 4]
        works = [rank.all_reduce(torch.ones(100)) for rank in ranks[:5]]
        ranks[0]._engine.fail(Failure(4, "it connected twice"))
        wait_for(lambda: all(rank._engine._group_state.verdict is not None for rank in ranks))
        ranks[5]._engine.fail(Failure(1, "it connected twice"))
        assert {str(error) for error in errors_of(works)} == {"rank 1 was lost: it connected twice"}


def test_a_rank_that_connects_again_ends_the_group() -> None:
    with three_and_a_stranger() as (ranks, _, at), within(BOUND_S):
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
    ranks = together([lambda rank=rank: connect(rank, at, SEALED, QUICK) for rank in range(4)])  # type: ignore[misc]
    try:
        for who, why in [
            (identity(SEALED, secret=b"another secret!!"), "another secret"),
            (identity(SEALED, scope="team/demo/0"), "another job or attempt"),
            (identity(CollectivePlan.direct([[0, 1], [2], [3]])), "another plan, or other settings"),
            (identity(SEALED, settings=replace(QUICK, drift=False)), "another plan, or other settings"),
            (identity(PLAN), "another plan, or other settings"),  # one that would not encrypt
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


def test_who_comes_with_other_settings_is_refused() -> None:
    """More connections than the others, say: both are told so, whoever is wrong."""
    at, plan = doors(2), CollectivePlan.direct([[0], [1]])
    with ThreadPoolExecutor() as threads:
        other = threads.submit(connect, 1, at, plan, Settings(connect_s=2.0))
        with pytest.raises(PeerLostError, match=r"ranks \[1\] did not .* it has another plan, or other settings"):
            connect(0, at, plan, Settings(connect_s=2.0, num_streams=2))
        with pytest.raises(PeerLostError, match=r"ranks \[0\] did not .*; rank 0 at .*: it has another plan"):
            other.result()


def test_vectors_of_other_types_are_not_added() -> None:
    """As many bytes on both, and each would take the other's for its own."""
    with group(SEALED, QUICK) as ranks:
        mine = [torch.zeros(3000, dtype=torch.float16 if rank == LAST else torch.bfloat16) for rank in range(4)]
        works = [rank.all_reduce(vector) for rank, vector in zip(ranks, mine, strict=True)]
        told = [str(error) for error in errors_of(works)]  # by whichever of the two looked first
        halves = "torch.float16", "torch.bfloat16"
        either = [f"of a vector of {its}, here of {ours}" for its, ours in (halves, halves[::-1])]
        assert all(any(why in words for why in either) for words in told), told


def test_the_words_of_a_failure_are_those_that_a_frame_holds() -> None:
    for reason in ("a\ttab", "é" * 1000, "x" * 511 + "é", "\udcff"):
        failure = Failure(3, reason)
        assert Failure.parse(memoryview(failure.pack())) == failure


def test_leaving_in_good_order_is_no_failure() -> None:
    with group(SEALED, QUICK) as ranks:
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
    with group(SEALED, QUICK) as ranks:
        works = [rank.all_reduce(torch.zeros(100)) for rank in ranks[:3]]
        with pytest.raises(PeerLostError, match="rank 3 was lost: it did not begin all-reduce 0 within 3 s"):
            works[0].wait(1.5 * BOUND_S)
        assert len({str(error) for error in errors_of(works)}) == 1


PAIR = CollectivePlan(((0,), (1,)), {}, (SizeClass(1 << 40, 1 << 12, (Flow(1.0, (0, 1)),)),), encryption="none")


@contextmanager
def overdue(rank: Collective, work: Work) -> Iterator[Future[None]]:
    """A short wait that is over, and that the engine knows of."""
    known, tell = threading.Event(), work._overdue

    def told(waited_s: float) -> None:
        tell(waited_s)
        rank._engine.do(known.set)

    work._overdue = told
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(work.wait, 0.01)
        assert known.wait(PATIENCE_S)
        yield waiting


@pytest.mark.parametrize(
    "num_before",
    [pytest.param(1, id="its chunk came"), pytest.param(0, id="its word is under way", marks=pytest.mark.whole)],
)
def test_a_peer_that_takes_part_is_not_lost_by_a_short_wait(num_before: int) -> None:
    """Before the wait ends some of its chunks have come; its beats say later that it has begun."""
    chunks = [chunk(num_bytes=4096, chunk=number) for number in range(4)]
    with some_and_strangers(1, PAIR, replace(QUICK, bound_s=4 * BOUND_S)) as (ranks, sockets, _):
        mine, connection = torch.ones(4096), sockets[1][0]
        work, running = ranks[0].all_reduce(mine), ranks[0]._engine._operations._running
        connection.sendall(BEAT + b"".join(chunks[:num_before]))
        wait_for(lambda: bool(running and len(running[0].links) == num_before))
        with overdue(ranks[0], work) as waiting:
            connection.sendall(Header(Kind.BEAT, operation=1).pack() + b"".join(chunks[num_before:]))
            waiting.result(PATIENCE_S)
        assert mine.tolist() == [1.0] * 4096


@contextmanager
def beating(sockets: Sequence[socket.socket], num_begun: int) -> Iterator[None]:
    """Says that it lives, and that it has begun so many."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BOUND_S / 16):
            with suppress(OSError):
                send_all(Header(Kind.BEAT, operation=num_begun).pack())(list(sockets))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_whoever_gives_up_is_named_by_all() -> None:
    """Rank 3 lives and says that it has begun, but its values never come."""
    with three_and_a_stranger() as (ranks, sockets, _), beating(sockets, 1):
        works = begin(ranks)
        with within(2 * BOUND_S), pytest.raises(PeerLostError) as caught:
            works[0].wait(BOUND_S / 2)
        said = "rank 0 was lost: it gave up all-reduce 0 after 3 s, though every rank had begun it"
        assert {str(error) for error in (caught.value, *errors_of(works[1:]))} == {said}


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


def receive_often(channel: Channel[Peer], times: int) -> None:
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


@settings(max_examples=num_examples(300))
@given(st.lists(st.one_of(FRAMES, st.binary(max_size=60)), max_size=8), st.data())
def test_whatever_arrives_is_a_frame_or_garbage(pieces: list[bytes], data: st.DataObject) -> None:
    """Frames, noise between them, single bits turned, cut anywhere: never another error, never a hang."""
    stream = bytearray(b"".join(pieces))
    for place in data.draw(st.lists(st.integers(0, max(0, len(stream) * 8 - 1)), max_size=3)) if stream else ():
        stream[place // 8] ^= 1 << place % 8
    ours, theirs = tcp_pair()
    with ours, theirs:
        channel = Channel(ours, Peer(1, is_far=False), Plain())
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


def come_together(ranks: list[Collective]) -> None:
    """They sum, the first and the last get the same, and they leave."""
    try:
        mine = vectors(4, 1000)
        all_reduce(ranks, mine)
        assert torch.equal(mine[0], mine[3])
    finally:
        together([rank.close for rank in ranks])


def test_ranks_that_start_late_are_waited_for() -> None:
    """The first ranks are connected long before the last one, which some of them do not talk to yet."""
    plan = CollectivePlan.direct([[0, 1], [2, 3]])
    at = doors(4)

    def late() -> Collective:
        time.sleep(2 * BOUND_S)
        return connect(3, at, plan, QUICK)

    ranks = together([*(lambda rank=rank: connect(rank, at, plan, QUICK) for rank in range(3)), late])  # type: ignore[misc]
    come_together(ranks)


def test_who_stood_still_does_not_forget_who_has_yet_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has no connection to rank 3, which the others still wait for; they say nothing until it is there."""
    monkeypatch.setattr(roles, "MAX_MESH", 1)
    plan = CollectivePlan.direct([[0, 1], [2, 3]])
    at = doors(4)

    def stands_still() -> Collective:
        rank = connect(0, at, plan, QUICK)
        rank._engine.do(lambda: time.sleep(0.7 * BOUND_S))
        return rank

    def late() -> Collective:
        time.sleep(2.5 * BOUND_S)
        return connect(3, at, plan, QUICK)

    others = [lambda rank=rank: connect(rank, at, plan, QUICK) for rank in (1, 2)]  # type: ignore[misc]
    ranks = together([stands_still, *others, late])
    come_together(ranks)


def test_strangers_who_say_nothing_keep_nobody_out() -> None:
    at = doors(4)
    host = (at.addresses[0].host, at.addresses[0].port)
    idle = [socket.create_connection(host) for _ in range(80)]
    ranks = together([lambda rank=rank: connect(rank, at, SEALED, QUICK) for rank in range(4)])  # type: ignore[misc]
    idle += [socket.create_connection(host) for _ in range(80)]
    started = time.monotonic()
    together([rank.close for rank in ranks])
    assert time.monotonic() - started < 5 * BOUND_S
    for connection in idle:
        connection.close()


def test_writing_to_a_connection_that_was_closed_says_so() -> None:
    assert str(_gone(BrokenPipeError(errno.EPIPE, "Broken pipe"))) == CLOSED
    assert str(_gone(ConnectionResetError(errno.ECONNRESET, "reset"))) == "its connection broke: reset"
