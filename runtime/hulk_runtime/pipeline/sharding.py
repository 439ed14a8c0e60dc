"""What a block on several devices is made of: values that all its shards have, and a table of which each has rows.

All shards get the same inputs and give the same outputs; backwards they get the same gradients of outputs and give the
same gradients of inputs (Megatron-LM's f and g; Shoeybi et al., arXiv 1909.08053, section 3).

Shape suffixes: B samples, S positions, V rows of the table, H hidden.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from hulk_runtime.collective.process_group import lost_peers


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _total(gradient, ctx.group), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _total(values, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _total(values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    total = values.contiguous().clone()
    with lost_peers():
        dist.all_reduce(total, group=group)
    return total


def copied(values: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The values, which all shards have; backwards their gradients are summed over the shards."""
    if group is None:
        return values
    made: torch.Tensor = _Copied.apply(values, group)
    return made


def summed(values: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The sum over the shards, which all have then; backwards every shard's values get the gradient of the sum."""
    if group is None:
        return values
    made: torch.Tensor = _Summed.apply(values, group)
    return made


class ShardedEmbedding(nn.Module):
    """Rows `shard` of `num_shards` of a table; a row that another shard has counts 0, and the shards are summed.

    A table of 10 rows in 4 shards: rows 0-1, 2-4, 5-6 and 7-9.
    """

    def __init__(self, table_VH: torch.Tensor, shard: int, num_shards: int, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        first, end = (len(table_VH) * n // num_shards for n in (shard, shard + 1))
        self.weight = nn.Parameter(table_VH[first:end].clone())
        self._first = first
        self._group = group

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """Rows (B, S) to (B, S, H)."""
        rows_BS = tokens_BS - self._first
        is_own_BS = (rows_BS >= 0) & (rows_BS < len(self.weight))
        found_BSH = functional.embedding(rows_BS.where(is_own_BS, 0), self.weight) * is_own_BS[..., None]
        return summed(found_BSH, self._group)
