"""What each rank of a group has of tensors: first tensor-parallel ranks divide one, then shards what these have.

Torch says the same by a DTensor's placements, but gives the whole of one only to all its ranks at once.

    10 rows over 2 tensor ranks and 4 shards: rows 0-4 and 5-9, of each of which the shards have 2, 2, 1 and 0
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from hulk_runtime.collective.process_group import Group, lost_peers

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

    @property
    def num_values(self) -> int:
        """Of the whole tensor."""
        return torch.Size(self.shape).numel()

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
    """Of parameters that are divided among the ranks of a mesh's `tp`; among shards already, or not yet."""
    return [Division(tuple(p.shape), num_shards, num_tensor, _dimension(p)) for p in parameters]


@dataclass(frozen=True, slots=True)
class DividedState:
    """Tensors by name, of which this rank of a group has those at `place`.

    `whole`: names of the undivided model, each with the tensors whose rows, one after the other, it is.
    """

    group: Group
    place: Place
    whole: Mapping[str, tuple[str, ...]]
    divisions: Mapping[str, Division]

    def gathered(self, own: Mapping[str, torch.Tensor], names: Iterable[str]) -> Iterator[torch.Tensor]:
        """The values of each name in the host's memory, on the group's first rank; all ranks together, as `own` has it.

        Raises PeerLostError.
        """
        for name in names:
            found = [self._gathered(self.divisions[part], own[part]) for part in self.whole[name]]
            if self.group.is_first:
                yield torch.cat([values.reshape(-1) for values in found if values is not None])

    def take(self, own: Mapping[str, torch.Tensor], name: str, values: torch.Tensor) -> None:
        """Overwrite what this rank has of a name, of which the values are all."""
        divisions = [self.divisions[part] for part in self.whole[name]]
        pieces = torch.split(values, [division.num_values for division in divisions])
        for part, division, piece in zip(self.whole[name], divisions, pieces, strict=True):
            own[part].copy_(division.part(piece.view(division.shape), self.place))

    def num_values(self, name: str) -> int:
        """Of one of the undivided model."""
        return sum(self.divisions[part].num_values for part in self.whole[name])

    def _gathered(self, division: Division, own: torch.Tensor) -> torch.Tensor | None:
        if self.group.world_size == 1:
            return own.cpu()
        places = [divmod(rank, division.num_tensor) for rank in range(self.group.world_size)]
        shapes = [torch.Size(division.shape_of(place)) for place in places]
        longest = max(shape.numel() for shape in shapes)
        padded = nn.functional.pad(own.reshape(-1), (0, longest - own.numel()))
        rows = [torch.empty_like(padded) for _ in places] if self.group.is_first else None
        with lost_peers():
            dist.gather(padded, rows, group=self.group.process_group, group_dst=0)
        if rows is None:
            return None
        parts = (row[: shape.numel()].view(shape).cpu() for row, shape in zip(rows, shapes, strict=True))
        return division.whole(dict(zip(places, parts, strict=True)))


def _dimension(parameter: nn.Parameter) -> int | None:
    if not hasattr(parameter, "device_mesh") or not hasattr(parameter, "placements"):
        return None
    placement = dict(zip(parameter.device_mesh.mesh_dim_names, parameter.placements, strict=True)).get("tp")
    return None if placement is None or placement.is_replicate() else placement.dim


def _piece(values: torch.Tensor, num: int, which: int, dimension: int) -> torch.Tensor:
    """As torch cuts: all pieces but the last ones are of one size, and some may be empty."""
    each = -(-values.shape[dimension] // num)
    first, end = (min(n * each, values.shape[dimension]) for n in (which, which + 1))
    return values.narrow(dimension, first, end - first)
