"""A forked child, as torch's DataLoader makes them, has no part in the group: connections stay its parent's."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from collective_ranks import PATIENCE_S, PLAN, all_reduce, group, vectors
from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.connecting import Connecting
from hulk_runtime.collective.group import Collective
from hulk_runtime.collective.members import Introduction
from hulk_runtime.collective.staging import AllReduce
from hulk_runtime.errors import PeerLostError


def descriptors(ranks: list[Collective]) -> list[int]:
    """Of every socket; -1 where it is closed."""
    channels = [channel for rank in ranks for peer in rank._peers.values() for channel in peer.channels]
    return [
        *(channel.socket.fileno() for channel in channels),
        *(rank._peer_listener._listener.fileno() for rank in ranks),
    ]


def test_a_forked_child_holds_nothing_open_and_closes_nothing_of_its_parents() -> None:
    with group(PLAN) as ranks:
        child = os.fork()
        if not child:
            is_free = set(descriptors(ranks)) == {-1}
            for rank in ranks:
                rank.close()
            sys.stdout.flush()
            os._exit(0 if is_free else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert min(descriptors(ranks)) > 0
        assert not any(rank._peer_listener.refused for rank in ranks)
        mine = vectors(3, 10_000)
        all_reduce(ranks, mine)
        assert torch.equal(mine[0], mine[2])


def in_forked(check: Callable[[], None]) -> int:
    """How a child ends that does it: 0 where it is right, 1 where not, by SIGALRM where it waits for ever."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(10)
            check()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("is_locked", [False, True])
def test_in_a_forked_child_sums_of_a_group_that_was_not_connected_yet_fail(is_locked: bool) -> None:
    with group(PLAN) as ranks:
        connected = threading.Event()

        def connect() -> AllReduce:
            assert connected.wait(PATIENCE_S)
            return AllReduce(ranks[0], torch.device("cpu"))

        connecting = Connecting(connect, lambda _: None)
        values = vectors(3, 1000)
        early = connecting.all_reduce(values[0])

        def check() -> None:
            for wait in (early.wait, lambda: connecting.all_reduce(torch.ones(1)), lambda: connecting.collective):
                with pytest.raises(PeerLostError, match="of the process that this one was forked from"):
                    wait()

        with connecting._lock if is_locked else contextlib.nullcontext():
            assert in_forked(check) == 0
        connected.set()
        all_reduce(ranks[1:], values[1:])
        early.wait()
        assert torch.equal(values[0], values[2])


def test_a_forked_child_holds_no_listener_of_groups_that_nobody_has_summed_in() -> None:
    """Who refuses has gone: also while a rank's children live."""
    own = Introduction(dist.HashStore())
    made: Any = SimpleNamespace(introduction=own)

    def check() -> None:
        assert own.listener.fileno() == -1
        with pytest.raises(PeerLostError, match="of the process that this one was forked from"):
            planned_sums._introduced(made)

    assert in_forked(check) == 0
    socket.create_connection(("localhost", own.member.port)).close()
    own.listener.close()
