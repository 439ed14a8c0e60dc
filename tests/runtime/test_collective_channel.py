"""Chunks and the frames of a pause alternate on a connection: the other end reads whole frames, in their order."""

import random
import socket
import threading

import pytest
from hulk_runtime.collective.channel import Channel
from hulk_runtime.collective.frames import HEADER_BYTES, Header, Kind, Phase, parse
from hulk_runtime.collective.operation import Outgoing
from hulk_runtime.collective.peer import Peer

BEAT = Header(Kind.BEAT).pack()
PACE_BYTES_PER_S = 20_000_000  # much stays unsent
SEGMENT_BYTES = 536


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        client.connect(server.getsockname())
        accepted = server.accept()[0]
        return client.dup(), accepted


def read_frames(connection: socket.socket, lengths: list[int]) -> None:
    """The lengths of the payloads, until the end."""
    with connection.makefile("rb") as stream:
        while head := stream.read(HEADER_BYTES):
            header = parse(head)
            lengths.append(header.num_bytes)
            assert len(stream.read(header.num_bytes)) == header.num_bytes


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seed", range(4))
def test_frames_stay_whole_when_a_pause_begins_while_the_socket_is_full(seed: int) -> None:
    draw, (ours, theirs) = random.Random(seed), pair()
    heard: list[int] = []
    reader = threading.Thread(target=read_frames, args=(theirs, heard), daemon=True)
    reader.start()
    peer = Peer(1, is_far=True)
    channel = Channel(ours, peer)
    channel.pace(PACE_BYTES_PER_S)
    # the kernel collects whole segments: where one has room for a part of a frame, it takes that part
    sent = [SEGMENT_BYTES * draw.randint(1, 122) - HEADER_BYTES - draw.randint(1, HEADER_BYTES - 1) for _ in range(400)]
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
