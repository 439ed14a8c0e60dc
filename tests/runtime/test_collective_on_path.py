"""What somebody on the path between two regions gets, who can read, keep back, change and make up every byte."""

import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch
from collective_ranks import PATIENCE_S, SCOPE, SECRET, all_reduce, connect, doors, together, wait_for, within
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.reduction.handle import Both, Work
from hulk_runtime.collective.wire.frames import HEADER_BYTES
from hulk_runtime.collective.wire.handshake import Identity, RefusedError, answer, greet
from hulk_runtime.collective.wire.records import TAG_BYTES
from hulk_runtime.collective.wire.rendezvous import Address
from hulk_runtime.errors import MembershipChangedError, PeerLostError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan

PLAN = CollectivePlan.direct([[0], [1]], chunk_bytes=1 << 12)
BOUND_S = 4.0
SETTINGS = Settings(bound_s=BOUND_S, connect_s=PATIENCE_S)
HANDSHAKE = (100, 32)
"""Bytes of a HELLO and of a proof."""
FIELDS = {
    "magic": 0,
    "version": 8,
    "stream": 9,
    "aes": 10,
    "source": 12,
    "target": 16,
    "scope": 20,
    "plan": 36,
    "nonce": 68,
}
"""A byte of each field of a HELLO."""
PIECE_BYTES = HEADER_BYTES + TAG_BYTES
"""In a pause every record is a header: the man on the path sees one from the next by its length."""
PATTERN = bytes.fromhex("0badf00d")
OUT, BACK = 0, 1
"""From who connected, and to it."""
TAMPERED = r"rank {} was lost: record \d+ of it was changed, left out, repeated or put in on its way"

Meddle = Callable[["Wire", int, bytes], bytes]


class Wire:
    """One direction of one connection: the pieces that came, after the handshake, and what is made of them."""

    def __init__(self, man: "Man", connection: int, direction: int) -> None:
        self.man, self.connection, self.direction = man, connection, direction
        self.handshake = b""
        self.pieces: list[bytes] = []

    def carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            for num_bytes in HANDSHAKE:
                self.handshake += source.recv(num_bytes, socket.MSG_WAITALL)
                sink.sendall(self.handshake[-num_bytes:])
            while piece := source.recv(PIECE_BYTES, socket.MSG_WAITALL):
                self.pieces.append(piece)
                sink.sendall(self.man.meddle(self, len(self.pieces) - 1, piece))
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def piece(self, number: int) -> bytes:
        """Once it is here."""
        wait_for(lambda: len(self.pieces) > number)
        return self.pieces[number]


class Man:
    """Where rank 1 believes rank 0 to be: passes on what both say, and does to it what he likes."""

    def __init__(self, target: Address, meddle: Meddle = lambda wire, number, piece: piece) -> None:
        self.meddle, self._target = meddle, target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname()[:2])
        self.wires: list[tuple[Wire, Wire]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._target.host, self._target.port))
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                out, back = (Wire(self, len(self.wires), direction) for direction in (OUT, BACK))
                self.wires.append((out, back))
                threading.Thread(target=out.carry, args=(near, far), daemon=True).start()
                threading.Thread(target=back.carry, args=(far, near), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def heard(self) -> bytes:
        """Everything that was said, in either direction."""
        return b"".join(b"".join([wire.handshake, *wire.pieces]) for both in self.wires for wire in both)


@contextmanager
def a_man_between(
    meddle: Meddle = lambda wire, number, piece: piece,
    plan: CollectivePlan = PLAN,
    settings: Settings = SETTINGS,
    paths: Sequence[tuple[int, int]] = ((1, 0),),
) -> Iterator[tuple[list[Collective], Man]]:
    """All ranks of a plan, and a man on the paths from one to another; the first path's is given back."""
    at = doors(plan.num_ranks)
    ways, men = [replace(at) for _ in range(plan.num_ranks)], []
    for client, target in paths:
        men.append(Man(at.addresses[target], meddle))
        ways[client].addresses[target] = men[-1].address
    ranks = together([lambda rank=rank: connect(rank, ways[rank], plan, settings) for rank in range(plan.num_ranks)])  # type: ignore[misc]
    try:
        yield ranks, men[0]
    finally:
        together([rank.close for rank in ranks])
        for man in men:
            man.close()


def secrets() -> list[torch.Tensor]:
    """Values that anybody knows again."""
    return [torch.frombuffer(bytearray(PATTERN * 20_000), dtype=torch.float32).clone() for _ in range(2)]


@pytest.mark.parametrize(("encryption", "is_read"), [("wan", False), ("none", True)])
def test_who_listens_reads_gradients_only_where_the_job_asks_for_that(encryption: str, is_read: bool) -> None:
    with a_man_between(plan=replace(PLAN, encryption=encryption)) as (ranks, man):
        all_reduce(ranks, secrets())
        assert len(man.heard) > 80_000, "the man sits on the path"
        assert (PATTERN * 2 in man.heard) is is_read
        assert SECRET not in man.heard


def test_inside_a_region_bytes_are_plain() -> None:
    with a_man_between(plan=CollectivePlan.direct([[0, 1]])) as (ranks, man):
        all_reduce(ranks, secrets())
        assert PATTERN * 2 in man.heard


def test_the_same_values_never_look_alike() -> None:
    """A nonce or key that is used twice would tell an attacker the difference of two vectors."""
    with a_man_between() as (ranks, man):
        for _ in range(3):
            all_reduce(ranks, [torch.zeros(20_000) for _ in ranks])
        windows = [piece for both in man.wires for wire in both for piece in wire.pieces]
        assert len(windows) > 1000
        assert len(set(windows)) == len(windows)


AT = 3
"""The record that it happens to."""


def flipped(piece: bytes, place: int = 17) -> bytes:
    return piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :]


def becomes(made: Callable[[Wire, bytes], bytes]) -> Meddle:
    """Of one record."""
    return lambda wire, number, piece: made(wire, piece) if number == AT else piece


def swapped(wire: Wire, number: int, piece: bytes) -> bytes:
    if number == AT + 1:
        return piece + wire.pieces[AT]
    return b"" if number == AT else piece


ATTACKS: dict[str, Meddle] = {
    "a bit is turned": becomes(lambda _, piece: flipped(piece)),
    "a bit of the tag is turned": becomes(lambda _, piece: flipped(piece, PIECE_BYTES - 1)),
    "a record is dropped": becomes(lambda *_: b""),
    "a record is repeated": becomes(lambda _, piece: 2 * piece),
    "an old record comes again": becomes(lambda wire, piece: piece + wire.pieces[0]),
    "an old record comes instead": becomes(lambda wire, _: wire.pieces[0]),
    "two records change places": swapped,
    "a record is made up": becomes(lambda _, piece: bytes(PIECE_BYTES) + piece),
    "a record is cut short": becomes(lambda _, piece: piece[:-1]),
    "a byte is put in": becomes(lambda _, piece: b"x" + piece),
    "a record goes back where it came from": becomes(
        lambda wire, _: wire.man.wires[wire.connection][1 - wire.direction].piece(AT)
    ),
    "a record comes from another connection": becomes(
        lambda wire, _: wire.man.wires[1 - wire.connection][wire.direction].piece(AT)
    ),
}


def failure_of(work: Work | Both) -> str:
    with pytest.raises(RankLostError) as caught:
        work.wait(PATIENCE_S)
    return str(caught.value)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_done_to_a_record_ends_the_group_and_is_named(attack: str, victim: int) -> None:
    direction = (OUT, BACK)[victim]

    def meddle(wire: Wire, number: int, piece: bytes) -> bytes:
        is_meant = wire.connection == 0 and wire.direction == direction
        return ATTACKS[attack](wire, number, piece) if is_meant else piece

    with a_man_between(meddle, settings=replace(SETTINGS, num_streams=2)) as (ranks, _):
        mine = torch.ones(1000)
        with within(BOUND_S):
            told = failure_of(ranks[victim].all_reduce(mine))
        assert re.match(TAMPERED.format(1 - victim), told), told
        assert failure_of(ranks[1 - victim].all_reduce(torch.ones(1000))) == told, "whose bytes they were is told why"
        assert mine.tolist() == [1.0] * 1000


@pytest.mark.parametrize("number", [5, 60, 100, 211])
@pytest.mark.parametrize("direction", [OUT, BACK])
def test_changed_values_are_added_to_no_sum(direction: int, number: int) -> None:
    """Wherever in a vector a bit is turned: each value is this rank's, the sum, or nothing."""

    def meddle(wire: Wire, at: int, piece: bytes) -> bytes:
        is_it = wire.direction == direction and at == number
        return flipped(piece, len(piece) // 2) if is_it else piece

    with a_man_between(meddle) as (ranks, _):
        mine = [torch.full((20_000,), float(rank + 1)) for rank in range(2)]
        works = [rank.all_reduce(vector) for rank, vector in zip(ranks, mine, strict=True)]
        for work in works:
            assert "of it was changed, left out" in failure_of(work)
        for rank, vector in enumerate(mine):
            assert set(vector.tolist()) <= {rank + 1.0, 3.0, 0.0}


@pytest.mark.parametrize("rest", [0, 1, PIECE_BYTES - 1])
def test_a_connection_that_is_cut_is_a_rank_that_is_lost(rest: int) -> None:
    """Also where a record ends: only a rank itself can say that it leaves."""

    def meddle(wire: Wire, number: int, piece: bytes) -> bytes:
        if wire.direction == OUT and number >= AT:
            if number > AT:
                raise OSError
            return piece[:rest]
        return piece

    with a_man_between(meddle) as (ranks, _), within(BOUND_S):
        assert failure_of(ranks[0].all_reduce(torch.ones(1000))) == "rank 1 was lost: it closed its connection"


def test_the_others_go_on_without_a_region_whose_bytes_are_played_with() -> None:
    plan = replace(CollectivePlan.direct([[0], [1], [2]], chunk_bytes=1 << 12), on_region_loss="continue")
    begun = threading.Event()

    def meddle(wire: Wire, number: int, piece: bytes) -> bytes:
        return flipped(piece) if begun.is_set() else piece

    with a_man_between(meddle, plan, paths=((1, 0), (2, 1))) as (ranks, _):
        left = ranks[::2]
        works = [rank.all_reduce(torch.ones(1000)) for rank in left]
        begun.set()
        for work in works:
            with pytest.raises(MembershipChangedError, match="2 ranks go on in epoch 1"):
                work.wait(PATIENCE_S)
        for rank in left:
            rank.adopt()
        mine = [torch.ones(1000) for _ in left]
        all_reduce(left, mine)
        assert mine[0].tolist() == mine[1].tolist() == [2.0] * 1000


@pytest.mark.parametrize("direction", [OUT, BACK])
@pytest.mark.parametrize("field", FIELDS)
def test_a_hello_that_was_changed_opens_nothing(field: str, direction: int) -> None:
    """No older version, no other cipher, no plan without encryption, no number that somebody chose."""
    who, ends = Identity(SECRET, SCOPE, SETTINGS.digest(PLAN)), [socket.socketpair() for _ in range(2)]
    (client, near), (far, server) = ends

    def carry(source: socket.socket, sink: socket.socket, is_changed: bool) -> None:
        with suppress(OSError):
            hello = source.recv(HANDSHAKE[0], socket.MSG_WAITALL)
            sink.sendall(flipped(hello, FIELDS[field]) if is_changed else hello)
            while more := source.recv(HANDSHAKE[1]):
                sink.sendall(more)
            sink.shutdown(socket.SHUT_WR)

    for way in ((near, far, direction == OUT), (far, near, direction == BACK)):
        threading.Thread(target=carry, args=way, daemon=True).start()

    def tried(shake: Callable[[], object], own: socket.socket) -> bool:
        try:
            shake()
        except RefusedError:
            return False
        finally:
            own.shutdown(socket.SHUT_WR)
        return True

    opened = together(
        [
            lambda: tried(lambda: greet(client, who, 0, 1, 0), client),
            lambda: tried(lambda: answer(server, who, 0), server),
        ]
    )
    for both in ends:
        for end in both:
            end.close()
    assert opened == [False, False]


def test_a_man_with_another_secret_is_nobody() -> None:
    """He answers in rank 0's place, and speaks to rank 0 as rank 1."""
    at, who = doors(2), Identity(b"one that he made up", SCOPE, SETTINGS.digest(PLAN))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection, suppress(OSError):
                answer(connection, who, 0)

        threading.Thread(target=serve, daemon=True).start()
        waits = replace(SETTINGS, connect_s=2.0)
        at.addresses[0] = Address(*listener.getsockname()[:2])
        with pytest.raises(PeerLostError, match="it has another secret"):
            connect(1, at, PLAN, waits)
    at.addresses[0] = Address(*at.listeners[0].getsockname()[:2])
    with pytest.raises(PeerLostError, match=r"ranks \[1\] did not connect .*; refused .*: it has another secret"):
        together(
            [
                lambda: connect(0, at, PLAN, waits),
                lambda: knock(at.addresses[0], who),
            ]
        )


def knock(at: Address, who: Identity) -> None:
    with socket.create_connection((at.host, at.port)) as connection, pytest.raises(RefusedError):
        greet(connection, who, 0, 1, 0)
