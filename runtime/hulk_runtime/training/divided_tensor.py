"""What each rank of a replica has of a tensor: first tensor-parallel ranks divide it, then shards what these have.

Torch says the same by a DTensor's placements, but gives the whole of one only to all its ranks at once.

    10 rows over 2 tensor ranks and 4 shards: rows 0-4 and 5-9, of each of which the shards have 2, 2, 1 and 0
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

Place = tuple[int, int]
"""A shard, and a tensor rank."""


@dataclass(frozen=True, slots=True)
class Division:
    """Of one tensor. `dimension`: which tensor ranks divide; None: each has all of it. Shards divide the first one.

    >>> Division((10,), num_shards=4, num_tensor=2, dimension=0).part(torch.arange(10), (1, 1)).tolist()
    [7, 8]
    """

    shape: tuple[int, ...]
    num_shards: int
    num_tensor: int
    dimension: int | None

    def part(self, whole: torch.Tensor, place: Place) -> torch.Tensor:
        """What the rank at a place has."""
        shard, tensor = place
        found = whole if self.dimension is None else _piece(whole, self.num_tensor, tensor, self.dimension)
        return _piece(found, self.num_shards, shard, 0)

    def shape_of(self, place: Place) -> tuple[int, ...]:
        """Of what the rank at a place has."""
        return tuple(self.part(torch.empty(self.shape, device="meta"), place).shape)

    def whole(self, parts: Mapping[Place, torch.Tensor]) -> torch.Tensor:
        """Of the parts of all ranks."""
        columns = [
            torch.cat([parts[shard, tensor] for shard in range(self.num_shards)]) for tensor in range(self.num_tensor)
        ]
        return columns[0] if self.dimension is None else torch.cat(columns, self.dimension)


def divisions(parameters: Sequence[nn.Parameter], num_shards: int, num_tensor: int) -> list[Division]:
    """Of parameters that are divided among tensor ranks, but not yet among shards."""
    return [Division(tuple(p.shape), num_shards, num_tensor, _dimension(p)) for p in parameters]


def _dimension(parameter: nn.Parameter) -> int | None:
    (placement,) = getattr(parameter, "placements", (None,))
    return None if placement is None or placement.is_replicate() else placement.dim


def _piece(values: torch.Tensor, num: int, which: int, dimension: int) -> torch.Tensor:
    """As torch cuts: all pieces but the last ones are of one size, and some may be empty."""
    each = -(-values.shape[dimension] // num)
    first, end = (min(n * each, values.shape[dimension]) for n in (which, which + 1))
    return values.narrow(dimension, first, end - first)
