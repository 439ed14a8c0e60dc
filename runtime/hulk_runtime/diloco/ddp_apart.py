"""DistributedDataParallel over all replicas -> over the ranks of each region, as long as replicas train apart.

Trainers wrap a model so that its gradients are summed over all ranks in every step. A communication hook has them
summed inside the region alone, or not at all without a plan, which says where regions are; outside a DiLoCo context it
sums over all ranks, by torch.
"""

import weakref
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from hulk_runtime.collective import planned_sums
from hulk_runtime.collective.gradient_sums import all_reduce_hook
from hulk_runtime.diloco.replicas import new_group


class Apart:
    """One model's hook, from the first time on that its replicas part."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._group: dist.ProcessGroup = ddp.process_group
        self._ddp = weakref.ref(ddp)
        self._broadcasts_buffers = bool(ddp.broadcast_buffers)
        self._is_registered = self._is_on = False
        self._inside: dist.ProcessGroup | None = None
        """The ranks of this region; None where this is the only one."""

    def switch(self, on: bool) -> None:
        """Buffers, too, are those of each replica meanwhile."""
        ddp = self._ddp()
        if ddp is None or on == self._is_on:
            return
        if not self._is_registered:
            here = _of_this_region(dist.get_process_group_ranks(self._group))
            self._inside = new_group(here) if len(here) > 1 else None
            ddp.register_comm_hook(self, mean)
            self._is_registered = True
        self._is_on = on
        ddp.broadcast_buffers = not on and self._broadcasts_buffers

    def mean(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Over the region, or over all."""
        group = self._inside if self._is_on else self._group
        if group is not None:
            return allreduce_hook(group, bucket)
        own: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        own.set_result(bucket.buffer())
        return own


def mean(
    state: Apart,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # not in torch's __all__, but torch looks for this annotation
) -> torch.futures.Future[torch.Tensor]:
    """As torch calls a hook."""
    return state.mean(bucket)


_hooks: Final["weakref.WeakKeyDictionary[DistributedDataParallel, Apart]"] = weakref.WeakKeyDictionary()


def of_model(model: torch.nn.Module, replicas: dist.ProcessGroup | None) -> list[Apart]:
    """What keeps the replicas apart, of each part of a model that is summed over them. Raises ValueError."""
    if replicas is None or dist.get_world_size(replicas) == 1:
        return []
    others = set(dist.get_process_group_ranks(replicas)) - {dist.get_rank()}
    wrapped: list[Any] = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
    summed = [ddp for ddp in wrapped if others <= set(dist.get_process_group_ranks(ddp.process_group))]
    for ddp in summed:
        _refuse_hooks(ddp)
    return [_hooks[ddp] if ddp in _hooks else _hooks.setdefault(ddp, Apart(ddp)) for ddp in summed]


def _refuse_hooks(ddp: Any) -> None:
    """Torch takes one of a script's, and none after it."""
    if any(hook not in (mean, all_reduce_hook) for hook, _ in ddp._comm_hooks):
        ranks = dist.get_process_group_ranks(ddp.process_group)
        raise ValueError(
            f"DistributedDataParallel sums gradients of ranks {ranks} in every step by a hook of the script's own: "
            f"give it process_group, of ranks in one region or of rank {dist.get_rank()} alone"
        )


def _of_this_region(ranks: list[int]) -> list[int]:
    plan, own = planned_sums.plan(), dist.get_rank()
    if plan is None:
        return [own]
    regions = plan.regions_by_rank()
    return [rank for rank in ranks if regions[rank] == regions[own]]
