"""Ranks -> which replica, device of its pipeline, shard and part of a tensor each is, and the groups they form."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

import torch.distributed as dist

from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.errors import PlanError


@dataclass(frozen=True, slots=True)
class Place:
    """One rank's."""

    replica: int
    device: int
    shard: int = 0
    tensor: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Ranks run (replica, device, shard, tensor): with 2 replicas of 4 devices, rank 5 is device 1 of replica 1.

    A *cell* is one device of one replica: the ranks that divide its parameters, and its layers. `rings`: of each device
    the order of its replicas in sums of gradients; as they are numbered where it is absent.
    """

    num_replicas: int
    num_devices: int
    num_tensor: int = 1
    num_shards: int = 1
    rings: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        for ring in self.rings or ():
            if sorted(ring) != list(range(self.num_replicas)):
                raise PlanError(f"ring {ring} of {self.num_replicas} replicas: each must be there once")
        if self.rings is not None and len(self.rings) != self.num_devices:
            raise PlanError(f"{len(self.rings)} rings for {self.num_devices} devices")

    @property
    def num_ranks(self) -> int:
        """All of them."""
        return self.num_replicas * self.num_devices * self.width

    @property
    def width(self) -> int:
        """Ranks of a cell."""
        return self.num_shards * self.num_tensor

    def rank(self, place: Place) -> int:
        """Whose place it is."""
        return self._first(place.replica, place.device) + place.shard * self.num_tensor + place.tensor

    def place(self, rank: int) -> Place:
        """Of a rank."""
        cell, inside = divmod(rank, self.width)
        return Place(*divmod(cell, self.num_devices), *divmod(inside, self.num_tensor))

    def cells(self) -> list[tuple[int, ...]]:
        """The ranks of each."""
        return [tuple(range(first, first + self.width)) for first in range(0, self.num_ranks, self.width)]

    def rings_of(self, devices: Sequence[int]) -> list[tuple[int, ...]]:
        """The ranks that sum gradients of what these devices share, over all replicas, in the order of the ring.

        Of each cell the first ranks are one ring, the second ones another.
        """
        replicas = self.rings[devices[0]] if self.rings else range(self.num_replicas)
        first = [self._first(replica, device) for replica in replicas for device in devices]
        return [tuple(rank + inside for rank in first) for inside in range(self.width)]

    def teams(self, devices: Sequence[int]) -> list[tuple[int, ...]]:
        """The ranks that compute one block on several devices together, of each replica and rank of a cell."""
        return [
            tuple(self._first(replica, device) + inside for device in devices)
            for replica, inside in product(range(self.num_replicas), range(self.width))
        ]

    def _first(self, replica: int, device: int) -> int:
        """The first rank of a cell."""
        return (replica * self.num_devices + device) * self.width


def make_groups(wanted: Iterable[tuple[int, ...]], silence_s: float) -> dict[int, dist.ProcessGroup]:
    """The groups of which this rank is a member, by their place in `wanted`; all ranks must want the same.

    Each is one of its own, also where the members are those of another: what is done in one waits for nothing else.
    Groups of one rank are not made. A peer that is silent for `silence_s` is lost. Raises PeerLostError.
    """
    found = {}
    with lost_peers():
        for number, ranks in enumerate(wanted):
            if len(ranks) > 1:
                # Only where it is needed, because old versions of torch lack the option.
                order = dict[str, Any]() if list(ranks) == sorted(ranks) else {"sort_ranks": False}
                group = dist.new_group(list(ranks), timedelta(seconds=silence_s), **order)
                if isinstance(group, dist.ProcessGroup):  # a number where this rank is no member
                    found[number] = group
    return found
