"""What goes wrong inside one rank: all ranks are told, nobody waits for ever, and what can go on does."""

import errno
import socket
import threading
from collections.abc import Callable

import pytest
import torch
from collective_ranks import PATIENCE_S, SCOPE, SECRET, all_reduce, connect, doors, group, together, vectors
from hulk_runtime import background
from hulk_runtime.collective.group import Settings
from hulk_runtime.collective.planned import roles
from hulk_runtime.collective.reduction.operation import Operation
from hulk_runtime.collective.wire.handshake import Identity, greet
from hulk_runtime.collective.wire.rendezvous import Listener
from hulk_runtime.errors import PeerLostError, RankLostError
from hulk_runtime.plan.flows import CollectivePlan

QUICK = Settings(bound_s=2.0, connect_s=PATIENCE_S)
THREE = CollectivePlan.direct([[0], [1], [2]])
BREAKS = "error::pytest.PytestUnhandledThreadExceptionWarning"


def broken(*_: object) -> None:
    raise RuntimeError("a bug")


@pytest.mark.filterwarnings(BREAKS)
def test_all_ranks_say_the_same_of_an_engine_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = Operation.arrived

    def arrive(operation: Operation, *what: object) -> None:
        (broken if operation._rank == 1 else arrived)(operation, *what)  # type: ignore[operator]

    monkeypatch.setattr(Operation, "arrived", arrive)
    with group(THREE, QUICK) as ranks:
        works = [rank.all_reduce(vector) for rank, vector in zip(ranks, vectors(3, 300_000), strict=True)]
        for work in works:
            with pytest.raises(RankLostError) as caught:
                work.wait(PATIENCE_S)
            assert str(caught.value) == "rank 1 was lost: its engine broke: RuntimeError('a bug')"


def ended(wait: Callable[[], None]) -> Callable[[], PeerLostError | None]:
    def result() -> PeerLostError | None:
        try:
            wait()
        except PeerLostError as error:
            return error
        return None

    return result


@pytest.mark.filterwarnings(BREAKS)
def test_an_all_reduce_that_cannot_begin_ends_everywhere() -> None:
    with group(THREE, QUICK) as ranks:
        ranks[2]._roles = broken  # type: ignore[assignment]
        found: list[PeerLostError | None] = []
        waiting = [
            threading.Thread(target=lambda rank=rank: found.append(ended(rank.warm)()), daemon=True) for rank in ranks
        ]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(PATIENCE_S / 4)
        assert {str(error) for error in found} == {"rank 2 was lost: its engine broke: RuntimeError('a bug')"}
        assert len(found) == 3


def test_a_plan_of_too_many_parts_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "MAX_PARTS", 2)
    at = doors(3)
    with pytest.raises(ValueError, match="3 flows over 3 regions are 3 parts, more than 2"):
        connect(0, at, THREE, QUICK)
    for listener in at.listeners:
        listener.close()


@pytest.mark.filterwarnings(BREAKS)
def test_what_follows_an_all_reduce_may_fail() -> None:
    before = background.failures().get("hulk-collective", 0)
    with group(THREE, QUICK) as ranks:
        works = [rank.all_reduce(torch.ones(30_000)) for rank in ranks[:2]]
        followed = threading.Event()
        works[0].on_end(broken)
        works[0].on_end(lambda _: followed.set())
        works.append(ranks[2].all_reduce(torch.ones(30_000)))
        for work in works:
            work.wait(PATIENCE_S)
        assert followed.wait(PATIENCE_S), "others are called back all the same"
        all_reduce(ranks, vectors(3, 100))
    assert background.failures()["hulk-collective"] == before + 1


class ShortOfDescriptors:
    """A listening socket that cannot accept at first."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._num_failed = listener, 0

    def accept(self) -> tuple[socket.socket, object]:
        if self._num_failed < 2:
            self._num_failed += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listener, name)


def test_a_listener_that_could_not_open_once_opens_again() -> None:
    identity = Identity(SECRET, SCOPE, bytes(32))
    admitted: list[int] = []
    at = doors(1)
    accepting = Listener(ShortOfDescriptors(at.listeners[0]), 0, identity, lambda rank, *_: admitted.append(rank))  # type: ignore[arg-type]
    accepting.open()
    with socket.create_connection((at.addresses[0].host, at.addresses[0].port), 5.0) as connection:
        greet(connection, identity, 0, 1, 0)
        assert list(accepting.refused) == ["somebody: [Errno 24] Too many open files"]
        together([accepting.close])
    assert admitted == [1]


def test_an_identity_shows_no_secret() -> None:
    secret = b"a secret of the job"
    assert "secret of the job" not in repr(Identity(secret, SCOPE, bytes(32)))
