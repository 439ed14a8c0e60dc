"""A window that the kernel has closed in a pause is opened again, and ever more rarely where that does not help."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hulk_runtime.collective.connections.channel import OPEN_SHARE, Channel
from hulk_runtime.collective.connections.connection_set import ConnectionSet
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.connections.tcp_warmup import FRAME_BYTES, MAX_REOPEN_S, REOPEN_S, WARM_S, TcpWarmup
from hulk_runtime.collective.reduction.handle import Work
from hulk_runtime.collective.reduction.operation import Outgoing
from hulk_runtime.collective.wire.frames import HEADER_BYTES, Header, Kind, parse
from hulk_runtime.collective.wire.records import Plain


@contextmanager
def connected() -> Iterator[tuple[Channel[Peer], socket.socket]]:
    """A connection on the loopback interface that has carried nothing: its window is a few segments."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs = server.accept()[0]
        with theirs:
            yield Channel(ours, Peer(1, is_far=True), Plain()), theirs


def queued_bytes(peer: Peer) -> int:
    """Of frames without meaning that wait for a peer, which are taken from it."""
    total = 0
    while frame := peer.pop():
        head, payload, _ = frame
        assert parse(head).kind is Kind.WARM
        assert payload is not None
        total += len(payload)
    return total


def test_what_the_path_holds_is_missing_where_the_window_is_small() -> None:
    with connected() as (channel, _):
        assert channel.closed_bytes() == 0  # no pace is known
        path = channel._path()
        fits = path.window_bytes / path.min_rtt_s
        channel.pace(fits)
        assert channel.closed_bytes() == 0
        channel.pace(2.5 * fits / OPEN_SHARE)
        assert channel.closed_bytes() == pytest.approx(2.5 * path.window_bytes / OPEN_SHARE, rel=0.01)


def test_it_is_opened_again_at_once_and_then_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (channel, _):
        channel.peer.channels = [channel]
        lines = ConnectionSet({1: channel.peer}, first_s=0.0, stalled_s=5.0)
        warming = TcpWarmup(lines)
        missing = 100_000
        monkeypatch.setattr(Channel, "closed_bytes", lambda _: missing)
        asked = []
        for tenth in range(2000):
            warming.reopen(channel, tenth / 10)
            if sent := queued_bytes(channel.peer):
                assert sent == 2 * missing
                asked.append(tenth / 10)
        pauses = [after - before for before, after in itertools.pairwise(asked)]
        assert asked[0] == 0.0
        assert pauses[:6] == pytest.approx([REOPEN_S * 2**number for number in range(6)])
        assert max(pauses) <= MAX_REOPEN_S

        missing = 0  # it has opened
        warming.reopen(channel, 200.0)
        missing = 100_000  # and closes anew
        warming.reopen(channel, 200.1)
        assert queued_bytes(channel.peer) == 2 * missing
        lines.close()


def test_frames_without_meaning_arrive_whole() -> None:
    with connected() as (channel, theirs):
        channel.peer.channels = [channel]
        lines = ConnectionSet({1: channel.peer}, first_s=0.0, stalled_s=5.0)
        channel.closed_bytes = lambda: 20_000  # type: ignore[method-assign]
        TcpWarmup(lines).reopen(channel, 0.0)
        lines.send(channel)
        heard = b""
        while len(heard) < 40_000 + 3 * HEADER_BYTES:
            heard += theirs.recv(1 << 16)
        assert [parse(heard[:HEADER_BYTES]).kind, len(heard)] == [Kind.WARM, 40_000 + 3 * HEADER_BYTES]
        lines.close()


def test_a_path_that_does_not_open_is_given_up() -> None:
    """Packets are lost on it, say: what means something is not kept waiting for bytes that do not."""
    with connected() as (channel, _):
        peer, work = channel.peer, Work(lambda _: None, 10.0)
        peer.channels = [channel]
        lines = ConnectionSet({1: peer}, first_s=0.0, stalled_s=5.0)
        warming = TcpWarmup(lines)
        warming.begin({1: 10 * FRAME_BYTES}, work)
        chunk = Outgoing(1, Header(Kind.CHUNK, 8).pack(), memoryview(bytes(8)), (0, 0.0, 0.0))
        peer.push(chunk)
        lines.now_s += WARM_S - 0.1
        warming.look()
        assert not work.is_done
        lines.now_s += 0.2
        warming.look()
        warming.look()
        assert peer.pop() == (chunk.header, chunk.payload, chunk)
        assert peer.pop() is None
        warming.look()
        assert work.is_done
        lines.close()
