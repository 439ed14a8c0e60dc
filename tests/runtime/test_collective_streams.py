"""Several connections to a peer: used where warming one has not opened it, closed elsewhere; all of them one peer."""

import socket
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from collective_ranks import PATIENCE_S, PLAN, RATE, all_reduce, group, together, vectors, within
from hulk_runtime.collective.connections.channel import OPEN_SHARE, Channel
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.group import Collective, Settings
from hulk_runtime.collective.loss_timeouts import LossTimeouts
from hulk_runtime.errors import RankLostError
from hulk_runtime.plan.flows import CollectivePlan

BOUND_S = 4.0
SPREAD = Settings(bound_s=BOUND_S, connect_s=PATIENCE_S, max_streams=4)
NUM_VALUES = 1 << 18
TCP_USER_TIMEOUT = 18


def numbers(ranks: Sequence[Collective]) -> list[dict[int, int]]:
    """Connections of each rank to each other one."""
    return [{peer.rank: len(peer.channels) for peer in rank._peers.values()} for rank in ranks]


@pytest.fixture
def rank_1_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if packets were lost on the way to it."""

    def closed_bytes(channel: Channel[Peer], share: float = OPEN_SHARE) -> int:
        return 1 if channel.peer.rank == 1 and share < OPEN_SHARE else 0

    monkeypatch.setattr(Channel, "closed_bytes", closed_bytes)


def require_sum(ranks: Sequence[Collective], seed: int) -> None:
    mine = vectors(len(ranks), NUM_VALUES, seed=seed)
    wanted = sum(vector.double() for vector in mine)
    all_reduce(ranks, mine)
    assert all(torch.equal(vector, mine[0]) for vector in mine)
    assert (mine[0].double() - wanted).abs().max() < 1e-4


def test_paths_that_open_keep_one_connection() -> None:
    with group(PLAN, SPREAD) as ranks:
        spare = [channel.socket for rank in ranks for way in rank._spare.values() for channel in way]
        together([rank.warm for rank in ranks])
        assert numbers(ranks) == [{1: 1, 2: 1}, {0: 1, 2: 1}, {0: 1, 1: 1}]
        assert [connection.fileno() for connection in spare] == 3 * 2 * 3 * [-1]
        require_sum(ranks, 1)


@pytest.mark.usefixtures("rank_1_stays_closed")
def test_paths_that_do_not_open_get_all_connections() -> None:
    with group(PLAN, SPREAD) as ranks:
        together([rank.warm for rank in ranks])
        assert numbers(ranks) == [{1: 4, 2: 1}, {0: 4, 2: 4}, {0: 1, 1: 4}]
        for seed in range(8):  # with a round of measuring
            require_sum(ranks, seed)
        assert ranks[0].beliefs()[0, 1].bytes_per_s == pytest.approx(RATE, rel=0.5)
        bounds = LossTimeouts(BOUND_S)
        for way in ranks[0]._peers[1].channels:
            found = way.socket.getsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT)
            assert found == pytest.approx(1000 * (bounds.silent_s - bounds.settle_s), abs=1)


def test_without_warming_there_is_one_connection() -> None:
    with group(PLAN, SPREAD) as ranks:
        require_sum(ranks, 1)
        assert numbers(ranks)[0] == {1: 1, 2: 1}


@pytest.mark.parametrize("leaver", range(3))
def test_leaving_in_good_order_is_no_loss_whatever_connection_ends_first(leaver: int) -> None:
    """The goodbye waits behind chunks on one connection while the others end."""
    with group(PLAN, Settings(bound_s=BOUND_S, connect_s=PATIENCE_S, num_streams=4)) as ranks:

        def train_and_leave(rank: Collective) -> None:
            rank.all_reduce(torch.zeros(NUM_VALUES)).wait(PATIENCE_S)
            if rank.rank == leaver:
                rank.close()

        together([lambda rank=rank: train_and_leave(rank) for rank in ranks])  # type: ignore[misc]


def test_one_of_several_that_breaks_ends_the_group_within_the_bound() -> None:
    with group(PLAN, Settings(bound_s=BOUND_S, connect_s=PATIENCE_S, num_streams=4)) as ranks:
        require_sum(ranks, 1)
        ranks[0]._peers[1].channels[2].socket.shutdown(socket.SHUT_RDWR)
        with within(BOUND_S):
            for rank in ranks:
                with pytest.raises(RankLostError, match=r"closed its connection|connection broke"):
                    for_ever(rank)


def for_ever(rank: Collective) -> None:
    while True:
        rank.all_reduce(torch.zeros(64)).wait(PATIENCE_S)


def test_one_of_several_connections_that_stalls_is_found_within_the_bound() -> None:
    """Also where a group has several from the start: beats on the others say that the peer lives."""
    with group(CollectivePlan.direct([[0], [1]]), replace(SPREAD, num_streams=2)) as ranks:
        stalled = ranks[1]._peers[0].channels[1]
        stalled.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel takes no whole chunk for it
        ranks[1]._engine.do(lambda: setattr(stalled, "receive", lambda *_: time.sleep(0.001)))
        works = [rank.all_reduce(torch.ones(1 << 22)) for rank in ranks]
        with within(BOUND_S), pytest.raises(RankLostError, match="rank 1 was lost: its connection broke"):
            works[0].wait(PATIENCE_S)
