"""Ranks that listen from the start come together however late they accept; one that has gone is named soon."""

import contextlib
import errno
import os
import socket
import threading
from collections import Counter
from typing import Any

import pytest
from collective_ranks import PATIENCE_S, SCOPE, SECRET, Doors, doors, wait_for
from hulk_runtime.collective.wire import handshake, rendezvous
from hulk_runtime.collective.wire.handshake import Identity, greet
from hulk_runtime.collective.wire.rendezvous import Connection, Listener, Rendezvous, listen
from hulk_runtime.errors import PeerLostError

IDENTITY = Identity(SECRET, SCOPE, bytes(32))


def meeting(rank: int, at: Doors, **wanted: int) -> Rendezvous:
    found = {int(name[1:]): count for name, count in wanted.items()}
    return Rendezvous(rank, at.addresses, found, IDENTITY, all_listen=True)


class Refusals:
    """In place of `socket.create_connection`: as to a machine that is gone; each thread's third try is `between`."""

    def __init__(self, failure: OSError, between: OSError) -> None:
        self.failure, self.between, self.counts = failure, between, Counter[int]()

    def __call__(self, *_: Any) -> socket.socket:
        thread = threading.get_ident()
        self.counts[thread] += 1
        raise self.failure if self.counts[thread] % 3 else self.between


FAILURES = [OSError(number, os.strerror(number)) for number in (errno.EHOSTUNREACH, errno.ENETUNREACH)]


@pytest.mark.parametrize("rank", [0, 1], ids=["watches", "connects"])
@pytest.mark.parametrize("failure", [*FAILURES, TimeoutError("timed out")], ids=str)
def test_a_rank_whose_machine_does_not_answer_has_gone(
    rank: int, failure: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the time that ranks may take to come; but not where it answered meanwhile, be it with an error."""
    monkeypatch.setattr(rendezvous, "RETRY_S", 0.01)
    monkeypatch.setattr(rendezvous, "WATCH_S", 0.01)
    monkeypatch.setattr(rendezvous, "GONE_S", 0.2)
    at, other = doors(2), 1 - rank
    monkeypatch.setattr(socket, "create_connection", Refusals(failure, failure))
    with pytest.raises(PeerLostError, match=rf"^rank {other} at 127.0.0.1:\d+: .*{failure.args[-1]}"):
        meeting(rank, at, **{f"r{other}": 1}).gather(PATIENCE_S)
    monkeypatch.setattr(socket, "create_connection", Refusals(failure, ConnectionResetError()))
    with pytest.raises(PeerLostError, match=rf"^ranks \[{other}\] did not connect within 1 s"):
        meeting(rank, at, **{f"r{other}": 1}).gather(1)
    for listener in at.listeners:
        listener.close()


def test_a_rank_that_goes_before_all_its_connections_are_there_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "WATCH_S", 0.05)
    at = doors(2)
    here = meeting(0, at, r1=2)
    listening = Listener(at.listeners[0], 0, IDENTITY, here.admit)
    listening.open()
    with socket.create_connection(at.listeners[0].getsockname()) as first:
        greet(first, IDENTITY, 0, 1, 0)
        at.listeners[1].close()
        with pytest.raises(PeerLostError, match=r"^rank 1 at .*refused"):
            here.gather(PATIENCE_S)
    listening.close()


def test_who_waits_for_a_late_rank_takes_one_place_of_its_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long: a full backlog keeps everybody out, and looks as if the machine were gone."""
    monkeypatch.setattr(handshake, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(rendezvous, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(rendezvous, "RETRY_S", 0.01)
    at = doors(2)
    late = at.listeners[0]
    with pytest.raises(PeerLostError, match=r"^ranks \[0\] did not connect within 1 s"):
        meeting(1, at, r0=1).gather(1)
    late.setblocking(False)
    late.accept()[0].close()
    with pytest.raises(BlockingIOError):
        late.accept()
    for listener in at.listeners:
        listener.close()


def test_a_connection_waits_for_a_late_rank() -> None:
    """It is the first one that is let in, and nobody waits any more."""
    at = doors(2)
    early = meeting(1, at, r0=2)
    found: list[dict[int, list[Connection]]] = []
    waiting = threading.Thread(target=lambda: found.append(early.gather(PATIENCE_S)))
    waiting.start()
    wait_for(lambda: len(early._waiting) == 2)
    mine = meeting(0, at, r1=2)
    listening = Listener(at.listeners[0], 0, IDENTITY, mine.admit)
    listening.open()
    theirs = mine.gather(PATIENCE_S)
    waiting.join(PATIENCE_S)
    assert {each.socket.getsockname() for each in found[0][0]} == {each.socket.getpeername() for each in theirs[1]}
    wait_for(lambda: not early._waiting and not mine._waiting)
    listening.close()
    for each in [*found[0][0], *theirs[1]]:
        each.socket.close()
    at.listeners[1].close()


def test_many_partners_can_wait_for_a_late_rank() -> None:
    """Four connections of each of a hundred."""
    with contextlib.ExitStack() as opened:
        late = opened.enter_context(listen("127.0.0.1", 0))
        for _ in range(400):
            opened.enter_context(socket.create_connection(late.getsockname(), 1.0))
