"""A forked child, as torch's DataLoader makes them, has no part in the group: connections stay its parent's."""

import os
import sys

import torch
from collective_ranks import PLAN, all_reduce, group, vectors
from hulk_runtime.collective.group import Collective


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
