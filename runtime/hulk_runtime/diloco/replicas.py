"""Which ranks hold the same parameters as this one, and what they agree on before they train apart.

A model that is sharded over some ranks has each shard once in every replica: the replicas of a shard are the ranks at
the same place of their own meshes. Other models are whole on every rank.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from hulk_runtime.collective.process_group import lost_peers
from hulk_runtime.collective.reduction import memory


def of_model(model: torch.nn.Module, given: "dist.ProcessGroup | DeviceMesh | None") -> dist.ProcessGroup | None:
    """The group of the replicas; None where there is no other. Raises ValueError where they are none."""
    if not dist.is_initialized():
        if given is not None:
            raise ValueError("a group is given, but torch.distributed is not initialized")
        return None
    meshes = {_ranks(one.device_mesh) for one in model.parameters() if isinstance(one, DTensor)}
    if len(meshes) > 1:
        raise ValueError(f"parameters lie on {len(meshes)} meshes, of ranks {sorted(meshes)}: one is needed")
    mesh = next(iter(meshes), ())
    group = _given(given) if given is not None else _found(mesh)
    _refuse_shards(mesh, dist.get_process_group_ranks(group))
    return group


def _given(group: "dist.ProcessGroup | DeviceMesh") -> dist.ProcessGroup:
    found = group.get_group() if isinstance(group, DeviceMesh) else group
    if not isinstance(found, dist.ProcessGroup) or dist.get_rank(found) < 0:
        raise ValueError(f"rank {dist.get_rank()} is not in the group that is given")
    return found


def _found(mesh: tuple[int, ...]) -> dist.ProcessGroup:
    if not mesh:
        assert dist.group.WORLD is not None
        return dist.group.WORLD
    meshes: list[tuple[int, ...]] = [()] * dist.get_world_size()
    dist.all_gather_object(meshes, mesh)
    if {len(one) for one in meshes} != {len(mesh)}:
        raise ValueError(f"replicas are sharded over {sorted({len(one) for one in meshes})} ranks: name their group")
    place = mesh.index(dist.get_rank())
    ranks = sorted({one[place] for one in meshes})
    if len(ranks) == 1 and dist.get_world_size() > 1:
        raise ValueError(f"the model is sharded over all {len(mesh)} ranks: shard each replica over its own region")
    return new_group(ranks)


def new_group(ranks: list[int], backend: str | None = None) -> dist.ProcessGroup:
    """Of these ranks, of which this is one; no other takes part."""
    group = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    return group


def _refuse_shards(mesh: tuple[int, ...], replicas: list[int]) -> None:
    if shared := (set(replicas) - {dist.get_rank()}) & set(mesh):
        raise ValueError(f"ranks {sorted(shared)} of ranks {replicas} are in the mesh of a model: they are no replicas")


def _ranks(mesh: DeviceMesh) -> tuple[int, ...]:
    return tuple(mesh.mesh.flatten().tolist())


@dataclass(frozen=True, slots=True)
class Introduction:
    """What each replica says of itself: what must be equal, how far it is, and what it weighs."""

    must_be_equal: tuple[object, ...]
    weight: float
    step: int
    held: str
    """A digest of what all have in common, which must be the same in bits."""


def meet(group: dist.ProcessGroup | None, mine: Introduction) -> list[Introduction]:
    """Of all replicas in the order of their ranks. Raises ValueError where they cannot train together."""
    if group is None:
        return [mine]
    found: list[Introduction] = [mine] * dist.get_world_size(group)
    with lost_peers():
        dist.all_gather_object(found, mine, group=group)
    for rank, other in enumerate(found):
        for here, there in zip(mine.must_be_equal, other.must_be_equal, strict=True):
            if here != there:
                raise ValueError(f"replica {rank} has {there}, replica {dist.get_rank(group)} has {here}")
    return found


def leader(found: Sequence[Introduction]) -> int:
    """The replica whose state the others take: of those that are farthest the first."""
    return max(range(len(found)), key=lambda number: (found[number].step, -number))


def share(group: dist.ProcessGroup | None, source: int, make: Callable[[], Any]) -> Any:
    """What the source makes, on all replicas."""
    assert group is not None
    carried = [make() if dist.get_rank(group) == source else None]
    with lost_peers():
        dist.broadcast_object_list(carried, src=dist.get_global_rank(group, source), group=group)
    return carried[0]


def wait_for_all(group: dist.ProcessGroup | None) -> None:
    """Until every replica has come so far: gloo closes connections as soon as their other ends leave."""
    if group is not None:
        with lost_peers():
            dist.barrier(group)


def digest(values: object) -> str:
    """Of lists and dicts of tensors, by their bits, and of anything else, by its text."""
    found = hashlib.blake2b(digest_size=16)
    for value in _leaves(values):
        if isinstance(value, torch.Tensor):
            found.update(memory.view(value.detach().cpu().contiguous()))
        else:
            found.update(repr(value).encode())
    return found.hexdigest()


def _leaves(values: object) -> Iterator[object]:
    if isinstance(values, dict):
        values = [part for item in values.items() for part in item]
    if not isinstance(values, list | tuple):
        yield values
        return
    for value in values:
        yield from _leaves(value)
