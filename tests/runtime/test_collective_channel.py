"""Chunks and the frames of a pause alternate on a connection: the other end reads whole frames, in their order."""

import random
import select
import socket
import threading

import pytest
from hulk_runtime.collective.connections.channel import Channel, PeerGoneError
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.reduction.operation import Outgoing
from hulk_runtime.collective.wire.failure import Failure
from hulk_runtime.collective.wire.frames import HEADER_BYTES, Header, Kind, Phase, parse
from hulk_runtime.collective.wire.records import Keys, Plain, Records, Sealed

BEAT = Header(Kind.BEAT).pack()
PACE_BYTES_PER_S = 20_000_000  # much stays unsent
SEGMENT_BYTES = 536


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        client.connect(server.getsockname())
        accepted = server.accept()[0]
        return client.dup(), accepted


def sealed() -> tuple[Records, Records]:
    """Of both ends of a connection."""
    ends = [Keys.derive(bytes(32), b"hello", is_client=is_client, is_aes=True) for is_client in (True, False)]
    return Sealed(ends[0]), Sealed(ends[1])


WAYS = {"plain": lambda: (Plain(), Plain()), "sealed": sealed}


def read_frames(connection: socket.socket, records: Records, lengths: list[int]) -> None:
    """The lengths of the payloads, until the end."""
    with connection.makefile("rb") as stream:
        while record := stream.read(HEADER_BYTES + records.tag_bytes):
            header = parse(records.open_head(memoryview(bytearray(record))))
            lengths.append(header.num_bytes)
            if header.num_bytes:
                place = memoryview(bytearray(header.num_bytes))
                body = records.room(place)
                assert stream.readinto(body) == len(body)  # type: ignore[attr-defined]
                records.open_payload(body, place)


class Kept:
    """Takes any frame."""

    def __init__(self) -> None:
        self.found: list[tuple[Kind, bytes]] = []

    def place(self, peer: Peer, header: Header) -> memoryview:
        return memoryview(bytearray(header.num_bytes))

    def arrived(self, peer: Peer, header: Header, payload: memoryview) -> None:
        self.found.append((header.kind, bytes(payload)))


@pytest.mark.parametrize("kind", [Kind.ABORT, Kind.VIEW, Kind.CHUNK])
@pytest.mark.parametrize("half", [10, 0, 7, 36])
@pytest.mark.parametrize("way", WAYS)
def test_a_frame_that_is_diverted_on_its_way_arrives_whole(way: str, kind: Kind, half: int) -> None:
    """All connections are, when a loss is seen."""
    payload = Failure(3, "it closed its connection").pack() + bytes(range(64))
    mine, others = WAYS[way]()
    frame = b"".join(others.seal(Header(kind, len(payload)).pack(), memoryview(payload)))
    half += 0 if half == 10 else HEADER_BYTES + mine.tag_bytes
    sink, (ours, theirs) = Kept(), pair()
    channel = Channel(ours, Peer(1, is_far=False), mine)
    for piece in (frame[:half], frame[half:]):
        theirs.sendall(piece)
        select.select([ours], [], [], 5.0)
        channel.receive(sink, 0.0)
        channel.divert()
    assert sink.found == [(kind, payload)]
    ours.close()
    theirs.close()


def test_a_connection_that_its_own_frame_closes_is_gone() -> None:
    sink, (ours, theirs) = Kept(), pair()
    channel = Channel(ours, Peer(1, is_far=False), Plain())
    sink.arrived = lambda *_: ours.close()  # type: ignore[method-assign]
    theirs.sendall(Header(Kind.VIEW, 10).pack() + bytes(10) + BEAT[:9])
    select.select([ours], [], [], 5.0)
    with pytest.raises(PeerGoneError):
        channel.receive(sink, 0.0)
    theirs.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_frames_stay_whole_when_a_pause_begins_while_the_socket_is_full(way: str, seed: int) -> None:
    draw, (ours, theirs) = random.Random(seed), pair()
    mine, others = WAYS[way]()
    heard: list[int] = []
    reader = threading.Thread(target=read_frames, args=(theirs, others, heard), daemon=True)
    reader.start()
    peer = Peer(1, is_far=True)
    channel = Channel(ours, peer, mine)
    channel.pace(PACE_BYTES_PER_S)
    # the kernel collects whole segments: where one has room for a part of a frame, it takes that part
    head_bytes = HEADER_BYTES + 2 * mine.tag_bytes  # the payload has a tag as well
    sent = [SEGMENT_BYTES * draw.randint(1, 122) - head_bytes - draw.randint(1, HEADER_BYTES - 1) for _ in range(400)]
    for number, num_bytes in enumerate(sent):
        head = Header(Kind.CHUNK, num_bytes, operation=number, phase=Phase.SUM).pack()
        peer.push(Outgoing(1, head, memoryview(bytes(num_bytes)), (number, 0.0, 0.0)))
        channel.release()
        channel.send()
        for _ in range(draw.randint(1, 3)):
            channel.hold(BEAT)
    while peer.has_frames or channel.wants_write:
        channel.release()
        channel.send()
    channel.finish()
    reader.join(30)
    assert [length for length in heard if length] == sent
    ours.close()
    theirs.close()
