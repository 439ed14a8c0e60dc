"""Bytes sent to a peer that ended first stay counted."""

import socket

from hulk_runtime.collective import tcp_info

OWN = "127.0.77.1"
"""A loopback address of this file's: other tests of this process may still have connections to theirs."""


def test_a_connection_whose_peer_has_ended_still_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        ours.sendall(b"x" * 1000)
        assert len(theirs.recv(1000, socket.MSG_WAITALL)) == 1000
        theirs.close()
        assert ours.recv(1) == b""  # the end has arrived
        mine = [c for c in tcp_info.connections() if c.local_port == ours.getsockname()[1]]
    assert [c.sent_bytes for c in mine] == [1000]


def test_what_was_sent_is_never_taken_back() -> None:
    """gloo closes its own end as soon as it sees that a peer has left."""
    with socket.create_server((OWN, 0)) as server:
        traffic = tcp_info.Traffic({1: tcp_info.canonical(OWN)}, exclude_port=server.getsockname()[1])
        for expected in (1000, 2000):
            with socket.create_connection(server.getsockname()) as ours:
                theirs, _ = server.accept()
                with theirs:
                    ours.sendall(b"x" * 1000)
                    assert len(theirs.recv(1000, socket.MSG_WAITALL)) == 1000
                    traffic.look(to_rank=1)
                    assert traffic.sent_bytes == expected
            assert traffic.look(to_rank=1) == tcp_info.LinkSample(0.0, 0.0)
            assert traffic.sent_bytes == expected
