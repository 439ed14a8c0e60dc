"""What somebody at the door without the secret, and a rank that misbehaves with it, can not do."""

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch
from collective_ranks import PATIENCE_S, SCOPE, SECRET, Doors, all_reduce, connect, doors, together, vectors
from hulk_runtime.collective.connections import early_chunks
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.reduction.handle import Both, Work
from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.frames import Header, Kind, Phase
from hulk_runtime.collective.wire.handshake import Identity, RefusedError, greet
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.errors import MembershipChangedError, PeerLostError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan, Flow, SizeClass

PAIR = CollectivePlan(((0,), (1,)), {}, (SizeClass(1 << 40, 1 << 12, (Flow(1.0, (0, 1)),)),), encryption="none")
"""A test writes frames as they are; what it may not write, no record makes good."""
THREE = CollectivePlan(
    ((0,), (1,), (2,)),
    {},
    (SizeClass(1 << 40, 1 << 12, (Flow(1.0, (0, 1, 2)),)),),
    without={2: PAIR.classes},
    on_region_loss="continue",
    encryption="none",
)
SETTINGS = Settings(bound_s=2.0, connect_s=PATIENCE_S)
IDENTITY = Identity(SECRET, SCOPE, SETTINGS.digest(PAIR))


@contextmanager
def one_and_strangers(plan: CollectivePlan = PAIR) -> Iterator[tuple[Collective, list[socket.socket]]]:
    """Rank 0, and the authenticated sockets of all the others, whom a test plays."""
    at = doors(plan.num_ranks)
    others = [lambda rank=rank: knock(at, plan, rank) for rank in range(1, plan.num_ranks)]  # type: ignore[misc]
    rank, *strangers = together([lambda: connect(0, at, plan, SETTINGS), *others])
    try:
        yield rank, strangers
    finally:
        for open_socket in (*strangers, *at.listeners[1:]):
            open_socket.close()
        rank.close()


@contextmanager
def one_and_a_stranger(plan: CollectivePlan = PAIR) -> Iterator[tuple[Collective, socket.socket]]:
    """Rank 0 of two, and the authenticated socket of a rank 1 that a test plays."""
    with one_and_strangers(plan) as (rank, (stranger,)):
        yield rank, stranger


@contextmanager
def after_a_loss() -> Iterator[tuple[Collective, socket.socket]]:
    """As `one_and_a_stranger`, but they had a rank 2, which is gone, and are in epoch 1."""
    with one_and_strangers(THREE) as (rank, (stranger, third)):
        third.close()
        stranger.sendall(view(loss_of(2)))
        begun_s = time.monotonic()
        while rank._engine.membership.epoch == 0:
            assert time.monotonic() < begun_s + PATIENCE_S
            time.sleep(0.005)
        rank.adopt()
        yield rank, stranger


def door(at: Doors) -> socket.socket:
    return socket.create_connection((at.addresses[0].host, at.addresses[0].port))


def knock(at: Doors, plan: CollectivePlan, rank: int) -> socket.socket:
    connection = door(at)
    greet(connection, Identity(SECRET, SCOPE, SETTINGS.digest(plan)), stream=0, rank=rank, peer=0)
    return connection


def loss_of(rank: int) -> bytes:
    loss = Failure(rank, "gone").pack()
    return struct.pack("<H", len(loss)) + loss


def view(*losses: bytes, epoch: int = 0) -> bytes:
    payload = struct.pack("<H", len(losses)) + b"".join(losses)
    return Header(Kind.VIEW, len(payload), epoch).pack() + payload


def abort(payload: bytes) -> bytes:
    return Header(Kind.ABORT, len(payload)).pack() + payload


def chunk(num_bytes: int = 4, **changes: object) -> bytes:
    header = Header(Kind.CHUNK, **{"num_bytes": num_bytes, "phase": Phase.EXCHANGE, **changes})  # type: ignore[arg-type]
    return header.pack() + bytes(num_bytes)


LEAVE = Header(Kind.LEAVE).pack()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        pytest.param(Header(Kind.CHUNK, 0).pack(), "kind CHUNK with 0 bytes", id="a chunk of nothing"),
        pytest.param(Header(Kind.BEAT, 4).pack(), "kind BEAT with 4 bytes", id="a beat with a payload"),
        pytest.param(chunk(epoch=1), "a frame of epoch 1 in epoch 0", id="a later epoch"),
        pytest.param(chunk(4096, phase=Phase.SUM), "phase SUM from rank 1 was not expected", id="not its phase"),
        pytest.param(chunk(4096) + chunk(4096), "was not expected", id="a chunk twice"),
        pytest.param(chunk(part=65_535), "chunk 0 of part 65535", id="the last part number"),
        pytest.param(chunk(chunk=2**32 - 1), "chunk 4294967295 of part 0", id="the last chunk number"),
        pytest.param(chunk(operation=2**32 - 1), "only 1 were begun here", id="a chunk for another day"),
        pytest.param(LEAVE + chunk(part=9), "chunk 0 of part 9", id="garbage after goodbye"),
        pytest.param(abort(bytes(4)), "a failure in 4 bytes", id="an abort without a reason"),
        pytest.param(abort(bytes(517)), "a failure in 517 bytes", id="an abort with a long reason"),
        pytest.param(abort(bytes(3)), "a failure in 3 bytes", id="an abort of nobody"),
        pytest.param(view(), "a view of 0 lost ranks", id="a view of nobody"),
        pytest.param(view(struct.pack("<H", 900)), "a failure in 0 bytes", id="a view that is cut off"),
    ],
)
def test_garbage_is_named(sent: bytes, says: str) -> None:
    with one_and_a_stranger() as (rank, stranger):
        work = rank.all_reduce(torch.ones(4096))
        stranger.sendall(sent)
        with pytest.raises(RankLostError, match="rank 1 was lost: it sent garbage: ") as caught:
            work.wait(PATIENCE_S)
        assert says in str(caught.value)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(Header(Kind.WARM, 4 << 20).pack() + bytes(100), id="a payload that does not end"),
        pytest.param(chunk()[:11], id="half a header"),
        pytest.param(Header(Kind.BEAT, epoch=9, operation=2**32 - 1).pack(), id="a beat from the future"),
    ],
)
def test_silence_after_anything_is_silence(sent: bytes) -> None:
    with one_and_a_stranger() as (rank, stranger):
        work = rank.all_reduce(torch.ones(4096))
        stranger.sendall(sent)
        with pytest.raises(RankLostError, match="rank 1 was lost: nothing was heard of it"):
            work.wait(PATIENCE_S)


def test_who_leaves_in_the_middle_is_named() -> None:
    with one_and_a_stranger() as (rank, stranger):
        work = rank.all_reduce(torch.ones(4096))
        stranger.sendall(LEAVE)
        stranger.shutdown(socket.SHUT_WR)
        with pytest.raises(RankLostError, match="rank 1 was lost: it left in the middle of an all-reduce"):
            work.wait(PATIENCE_S)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("named", [0, 1, 2])
def test_who_names_itself_or_whom_it_speaks_to_or_who_has_gone_is_named(named: int) -> None:
    with after_a_loss() as (rank, stranger):
        work = rank.all_reduce(torch.ones(4096))
        half = chunk(4096, epoch=1, chunk=1)[:50]
        stranger.sendall(chunk(4096, epoch=1) + view(loss_of(named), epoch=1) + half)
        with pytest.raises(RankLostError) as caught:
            work.wait(PATIENCE_S)
        assert f"rank 1 was lost: it sent garbage: a loss of ranks [{named}], in epoch 1" in str(caught.value)


def test_chunks_that_nobody_asked_for_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_chunks, "MAX_EARLY_BYTES", 1 << 20)
    with one_and_a_stranger() as (rank, stranger):
        with suppress(OSError):
            for number in range(1000):
                stranger.sendall(chunk(4096, operation=number))
        with pytest.raises(RankLostError, match=r"garbage: \d+ bytes of operations that were not begun here"):
            rank.all_reduce(torch.ones(4096)).wait(PATIENCE_S)


def test_meaningless_frames_delay_nothing() -> None:
    """WARM as fast as the receiver takes it, and the chunk of an all-reduce behind it."""
    with one_and_a_stranger() as (rank, stranger):
        mine = torch.ones(1024)
        work = rank.all_reduce(mine)
        for _ in range(500):
            stranger.sendall(Header(Kind.WARM, 16 << 10).pack() + bytes(16 << 10))
        stranger.sendall(
            Header(Kind.CHUNK, 4096, phase=Phase.EXCHANGE).pack() + torch.full((1024,), 2.0).numpy().tobytes()
        )
        work.wait(PATIENCE_S)
        assert mine.tolist() == [3.0] * 1024


class Recorder:
    """A socket that remembers what was sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.sent: list[bytes] = []

    def sendall(self, payload: bytes) -> None:
        self.sent.append(payload)
        self._connection.sendall(payload)

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self._connection, name)  # type: ignore[no-any-return]


@contextmanager
def a_pair() -> Iterator[tuple[list[Collective], Doors]]:
    at = doors(2)
    ranks = together([lambda rank=rank: connect(rank, at, PAIR, SETTINGS) for rank in range(2)])  # type: ignore[misc]
    try:
        yield ranks, at
    finally:
        together([rank.close for rank in ranks])


def test_a_recorded_handshake_opens_nothing() -> None:
    at = doors(2)
    recorded = Recorder(door(at))
    joining = [lambda: connect(0, at, PAIR, SETTINGS), lambda: greet(recorded, IDENTITY, 0, 1, 0)]  # type: ignore[arg-type,return-value]
    rank = together(joining)[0]
    with door(at) as again:
        hello, proof = recorded.sent
        again.sendall(hello)
        assert len(again.recv(100, socket.MSG_WAITALL)) == 100
        again.sendall(proof)
        assert again.recv(100, socket.MSG_WAITALL) == bytes(32), "refused: the server's number was another one"
    work = rank.all_reduce(torch.ones(8))
    assert not work.is_done, "nor does it disturb those who are there"
    recorded.close()
    rank.close()
    at.listeners[1].close()


def test_an_echo_is_not_a_proof() -> None:
    """Whoever sends a rank's own words back to it gets no proof that he could use."""
    with socket.create_server(("127.0.0.1", 0)) as mirror:

        def reflect() -> None:
            connection, _ = mirror.accept()
            with connection, suppress(OSError):
                while heard := connection.recv(4096):
                    connection.sendall(heard)

        threading.Thread(target=reflect, daemon=True).start()
        with socket.create_connection(mirror.getsockname()) as connection, pytest.raises(RefusedError):
            greet(connection, IDENTITY, stream=0, rank=1, peer=0)


def test_half_handshakes_and_noise_disturb_nobody() -> None:
    draw = random.Random(7)
    with a_pair() as (ranks, at):
        hello = IDENTITY.hello(0, 1, 0)
        strangers = [door(at) for _ in range(40)]
        for number, stranger in enumerate(strangers):
            with suppress(OSError):
                stranger.sendall(
                    (hello, draw.randbytes(500), hello + bytes(32), b"")[number % 4][: draw.randint(1, 200)]
                )
        mine = vectors(2, 5000)
        all_reduce(ranks, mine)
        assert torch.equal(mine[0], mine[1])
        for stranger in strangers:
            stranger.close()
        all_reduce(ranks, mine)


@contextmanager
def in_pieces(target: Address, draw: random.Random) -> Iterator[Address]:
    """The way to an address over which bytes arrive a few at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def carry(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while heard := source.recv(draw.randint(1, 9)):
                    sink.sendall(heard)
                sink.shutdown(socket.SHUT_WR)

        def serve() -> None:
            near, _ = listener.accept()
            far = socket.create_connection((target.host, target.port))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=carry, args=(near, far), daemon=True).start()
            carry(far, near)

        threading.Thread(target=serve, daemon=True).start()
        yield Address(*listener.getsockname()[:2])


def test_frames_may_come_in_the_smallest_pieces() -> None:
    at = doors(2)
    with in_pieces(at.addresses[0], random.Random(3)) as way:
        at.addresses[0] = way
        ranks = together([lambda rank=rank: connect(rank, at, PAIR, SETTINGS) for rank in range(2)])  # type: ignore[misc]
        for seed in range(3):
            mine = vectors(2, 3000, seed=seed)
            wanted = mine[0] + mine[1]
            all_reduce(ranks, mine)
            assert torch.equal(mine[0], mine[1])
            assert torch.equal(mine[0], wanted)
        together([rank.close for rank in ranks])


MINE, THEIRS, SUM = 1.0, 2.0, 3.0
"""Every value of a vector: rank 0's, the stranger's, and of both."""


def right_chunk(number: int, operation: int, epoch: int) -> bytes:
    header = Header(Kind.CHUNK, 4096, epoch, operation, 0, number, Phase.EXCHANGE)
    return header.pack() + torch.full((1024,), THEIRS).numpy().tobytes()


def right_frames(draw: random.Random, operation: int, epoch: int) -> bytes:
    """All that a rank must send for an all-reduce of 4096 values, in any order, and what it may send besides."""
    frames = [right_chunk(number, operation, epoch) for number in range(4)]
    frames += [Header(Kind.WARM, 9).pack() + bytes(9), Header(Kind.BEAT, epoch=epoch, operation=operation + 1).pack()]
    return b"".join(draw.sample(frames, len(frames)))


def any_frame(draw: random.Random, operation: int, epoch: int) -> bytes:
    """Mostly what a rank may send at some time; now and then one field is not."""

    def near(*right: int) -> int:
        return draw.choice(right * 20 + (1, 7, 65_535))

    kind = draw.choice((Kind.CHUNK, *Kind))
    if kind in (Kind.ABORT, Kind.VIEW) and draw.random() < 0.9:
        kind = Kind.BEAT
    number = operation + near(0, 1, 2)
    if kind is Kind.CHUNK and draw.random() < 0.8:
        return right_chunk(draw.randrange(4), number, epoch)
    losses = b"".join(loss_of(draw.choice((0, 1, 2, 2, 7))) for _ in range(draw.choice((1, 1, 2))))
    payload = {
        Kind.CHUNK: torch.full((draw.choice((1, 1024, 1250)),), THEIRS).numpy().tobytes(),
        Kind.WARM: bytes(draw.randint(1, 300)),
        Kind.ABORT: draw.choice((loss_of(draw.choice((0, 1, 2, 7)))[2:], bytes(3))),
        Kind.VIEW: draw.choice((struct.pack("<H", draw.choice((1, 2))) + losses, bytes(3))),
    }.get(kind, b"")
    phase = Phase(draw.choice((1,) * 20 + (0, 2)))
    header = Header(kind, len(payload), near(epoch), number, near(0), near(0, 1, 2, 3), phase, near(0) & 3)
    return header.pack() + payload


def failure_of(work: Work | Both) -> PeerLostError | None:
    try:
        work.wait(PATIENCE_S)
    except PeerLostError as error:
        return error
    return None


SITUATIONS = {
    "restart": lambda: one_and_a_stranger(),
    "continue": lambda: one_and_a_stranger(replace(PAIR, on_region_loss="continue")),
    "after a loss": after_a_loss,
}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("seed", range(40))
def test_an_engine_survives_any_frames(seed: int, situation: str) -> None:
    """Whatever a rank sends, before an all-reduce and while it runs: the sum is right, or the rank is named."""
    draw, epoch = random.Random(seed), int(situation == "after a loss")
    with SITUATIONS[situation]() as (rank, stranger):
        works: list[tuple[torch.Tensor, Work | Both]] = []

        def begin() -> None:
            mine = torch.full((4096,), MINE)
            works.append((mine, rank.all_reduce(mine)))

        num_right = draw.randint(0, 3)
        frames = b"".join(right_frames(draw, operation, epoch) for operation in range(num_right))
        cut = draw.randint(0, len(frames))
        stranger.sendall(frames[:cut])
        for _ in range(num_right):
            begin()
        stranger.sendall(frames[cut:])
        for mine, work in works:
            work.wait(PATIENCE_S)
            assert bool((mine == SUM).all())
        with suppress(OSError):
            if draw.random() < 0.3:  # before anything else ends the group
                begin()
                stranger.sendall(view(loss_of(draw.choice((0, 1, 2, 7))), epoch=epoch))
            for _ in range(60):
                stranger.sendall(any_frame(draw, num_right, epoch))
                if draw.random() < 0.1:
                    begin()
            stranger.shutdown(socket.SHUT_WR)
        for mine, work in works:
            error = failure_of(work)
            assert isinstance(error, RankLostError | MembershipChangedError) or bool((mine == SUM).all())
            assert "engine broke" not in str(error)
