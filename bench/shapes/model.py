"""The bundled GPT's layers for any placement: whole on one device, or divided over several.

Unlike in `hulk_runtime.examples.gpt_stages` the vocabulary is divided as well, the head's table is not the embedding's,
and matrices take the time of an emulated accelerator: a shard of one of four takes a quarter.

Shape suffixes: B samples, S positions, H hidden, V vocabulary, D values of a head.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from hulk_runtime.examples.gpt_model import Block, Gpt
from hulk_runtime.pipeline.sharding import ShardedEmbedding, copied, summed
from hulk_runtime.pipeline.stages import Part
from hulk_runtime.plan.wire import Model
from torch import nn
from torch.nn import functional

from bench.shapes.accelerator import Accelerator, Timed


def attention_flops(model: Model) -> float:
    """Forward, of a sample: four matrices, and every position with every position twice."""
    s, h = model.sequence_length, model.hidden
    return 2 * s * 4 * h * h + 4 * s * s * h


def mlp_flops(model: Model) -> float:
    """Forward, of a sample: two matrices."""
    return 2 * model.sequence_length * 8 * model.hidden**2


def head_flops(model: Model) -> float:
    """Forward, of a sample: one matrix as high as the vocabulary."""
    return 2 * model.sequence_length * model.hidden * model.vocabulary


class Front(nn.Module):
    """The embeddings of tokens, whose rows are divided, and of positions; lookups take the accelerator no time."""

    def __init__(self, gpt: Gpt, part: Part) -> None:
        super().__init__()
        self.token = ShardedEmbedding(gpt.token.weight.detach(), part.shard, part.num_shards, part.group)
        self.position = nn.Parameter(gpt.position.weight.detach().clone())

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """(B, S) to (B, S, H)."""
        found_BSH: torch.Tensor = self.token(tokens_BS) + self.position[: tokens_BS.shape[1]]
        return found_BSH


class Attention(nn.Module):
    """The heads that a shard has; the sum over the shards lacks the bias."""

    def __init__(self, block: Block, part: Part) -> None:
        super().__init__()
        num_heads, hidden = block.num_heads, block.qkv.in_features
        own = slice(*(num_heads * n // part.num_shards for n in (part.shard, part.shard + 1)))
        in_heads = block.qkv.weight.detach().view(3, num_heads, -1, hidden)[:, own]
        self.num_heads = in_heads.shape[1]
        self.qkv = nn.Parameter(in_heads.reshape(-1, hidden).clone())
        self.bias = nn.Parameter(block.qkv.bias.detach().view(3, num_heads, -1)[:, own].reshape(-1).clone())
        out_of_heads = block.attended.weight.detach().view(hidden, num_heads, -1)[:, own]
        self.attended = nn.Parameter(out_of_heads.reshape(hidden, -1).clone())

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to a part of (B, S, H)."""
        b, s, _ = x_BSH.shape
        parts = functional.linear(x_BSH, self.qkv, self.bias).chunk(3, dim=-1)
        q, k, v = (part.view(b, s, self.num_heads, -1).transpose(1, 2) for part in parts)
        mixed_BSD = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, -1)
        return functional.linear(mixed_BSD, self.attended)


class Mlp(nn.Module):
    """The inner values that a shard has; the sum over the shards lacks the bias."""

    def __init__(self, block: Block, part: Part) -> None:
        super().__init__()
        wide = block.expand.out_features
        own = slice(*(wide * n // part.num_shards for n in (part.shard, part.shard + 1)))
        self.expand = nn.Parameter(block.expand.weight.detach()[own].clone())
        self.bias = nn.Parameter(block.expand.bias.detach()[own].clone())
        self.contract = nn.Parameter(block.contract.weight.detach()[:, own].clone())

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to a part of (B, S, H)."""
        return functional.linear(functional.gelu(functional.linear(x_BSH, self.expand, self.bias)), self.contract)


class DividedBlock(nn.Module):
    """A block of which every shard computes some heads and some inner values, with two sums each way."""

    def __init__(self, block: Block, model: Model, part: Part, accelerator: Accelerator) -> None:
        super().__init__()
        num, self._group = part.num_shards, part.group
        self.norm_attention, self.norm_mlp = block.norm_attention, block.norm_mlp
        self.attention = Timed(Attention(block, part), attention_flops(model) / num, accelerator)
        self.mlp = Timed(Mlp(block, part), mlp_flops(model) / num, accelerator)
        self.attended_bias = nn.Parameter(block.attended.bias.detach().clone())
        self.contract_bias = nn.Parameter(block.contract.bias.detach().clone())

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to (B, S, H), the same on all shards."""
        attended_BSH = self.attention(copied(self.norm_attention(x_BSH), self._group))
        x_BSH = x_BSH + summed(attended_BSH, self._group) + self.attended_bias
        inner_BSH = self.mlp(copied(self.norm_mlp(x_BSH), self._group))
        return x_BSH + summed(inner_BSH, self._group) + self.contract_bias


class Logits(nn.Module):
    """The rows of the head's table that a shard has."""

    def __init__(self, table_VH: torch.Tensor, part: Part) -> None:
        super().__init__()
        self._first, end = (len(table_VH) * n // part.num_shards for n in (part.shard, part.shard + 1))
        self.weight = nn.Parameter(table_VH[self._first : end].clone())

    def forward(self, x_BSH: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        """(B, S, 2): log of the sum of the exponentials of own logits, and the target's logit or 0 where it is not."""
        logits_BSV = functional.linear(x_BSH, self.weight)
        rows_BS = targets_BS - self._first
        is_own_BS = (rows_BS >= 0) & (rows_BS < len(self.weight))
        target_BS = logits_BSV.gather(-1, rows_BS.where(is_own_BS, 0)[..., None])[..., 0] * is_own_BS
        return torch.stack([logits_BSV.logsumexp(-1), target_BS], -1)


class Head(nn.Module):
    """The last norm; with `loss`, cross entropy over a divided vocabulary."""

    def __init__(self, gpt: Gpt, model: Model, part: Part, accelerator: Accelerator) -> None:
        super().__init__()
        self.norm, self._group = gpt.norm, part.group
        logits = Logits(gpt.token.weight.detach(), part)
        self.logits = Timed(logits, head_flops(model) / part.num_shards, accelerator)

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to (B, S, H)."""
        return copied(self.norm(x_BSH), self._group)

    def loss(self, x_BSH: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:
        """The mean over samples and positions, in nats; the same on all shards."""
        log_sum_BS, target_BS = self.logits(x_BSH, targets_BS).unbind(-1)
        most_BS = log_sum_BS.detach().clone()
        if self._group is not None:
            dist.all_reduce(most_BS, dist.ReduceOp.MAX, group=self._group)
        both = summed(torch.stack([(log_sum_BS - most_BS).exp(), target_BS]), self._group)
        loss: torch.Tensor = (most_BS + both[0].log() - both[1]).mean()
        return loss


def divided_blocks(gpt: Gpt, model: Model, part: Part, accelerator: Accelerator) -> list[nn.Module]:
    """All of a GPT's."""
    return [DividedBlock(block, model, part, accelerator) for block in gpt.blocks if isinstance(block, Block)]


class At(nn.Module):
    """A layer for one of the values that are handed on; the others stay."""

    def __init__(self, place: int, layer: nn.Module) -> None:
        super().__init__()
        self.place, self.layer = place, layer

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As many as there were."""
        return (*values[: self.place], self.layer(values[self.place]), *values[self.place + 1 :])


class Join(nn.Module):
    """The sum of two branches."""

    def forward(self, a_BSH: torch.Tensor, b_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) each."""
        return a_BSH + b_BSH
