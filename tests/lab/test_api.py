"""The lab's own client of its API server."""

from __future__ import annotations

import socket
import ssl

from hulk_lab.api import _Connection


def test_a_connection_that_nobody_holds_is_closed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        connection = _Connection("localhost", context=ssl.create_default_context())
        connection.sock = ours
        del connection
        assert ours.fileno() == -1
