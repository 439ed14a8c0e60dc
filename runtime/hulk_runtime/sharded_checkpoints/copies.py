"""Which ranks write a copy of the state together: those that share a store, where they hold all of it.

Replicas across regions hold the same: each region writes a copy of its own, to its own store, and no byte of it crosses
regions, neither in saving nor in resuming. Inside a region, replicas divide the writing. Where a store's ranks hold
only a part, as the stages of a pipeline over regions, they write one copy with all others of which that is so.
"""

import hashlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner


def held(state: Mapping[str, Any]) -> frozenset[int]:
    """The tensors' parts that this rank holds, by digests."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(dict(state), is_coordinator=False)
    parts = ((item.index.fqn, tuple(item.index.offset or ())) for item in planner.create_local_plan().items)
    return frozenset(
        int.from_bytes(hashlib.blake2b(repr(part).encode(), digest_size=8).digest(), "big") for part in parts
    )


def together(places: Sequence[object]) -> list[list[int]]:
    """The ranks of each place, by the place of each rank: of a store, or of a replica that trains apart.

    >>> together([0, 1, 0])
    [[0, 2], [1]]
    """
    found: dict[object, list[int]] = {}
    for rank, place in enumerate(places):
        found.setdefault(place, []).append(rank)
    return list(found.values())


def copies(stores: Sequence[str], held_by_rank: Sequence[Set[int]]) -> list[list[int]]:
    """The ranks of each copy, by each rank's store and what it holds. Some ranks may be in none.

    Two regions with a replica of two shards each; a pipeline of two stages over both:

    >>> copies(["eu", "eu", "us", "us"], [{1}, {2}, {1}, {2}])
    [[0, 1], [2, 3]]
    >>> copies(["eu", "us", "eu", "us"], [{1}, {2}, {1}, {2}])
    [[0, 1, 2, 3]]
    """
    everything = frozenset().union(*held_by_rank)

    def is_whole(ranks: Sequence[int]) -> bool:
        return frozenset().union(*(held_by_rank[rank] for rank in ranks)) == everything

    found = [ranks for ranks in together(stores) if is_whole(ranks)]
    others = sorted(set(range(len(stores))).difference(*found))
    return [*found, others] if others and (not found or is_whole(others)) else found
