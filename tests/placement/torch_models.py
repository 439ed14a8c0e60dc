"""Small real models of each kind that the planner counts, and torch's own counts of what they do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode


class RmsNorm(nn.Module):
    """As transformers writes it, without a fused kernel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Attention(nn.Module):
    """Grouped queries, over the tokens or a `source`; with a table of position biases no fused kernel does it."""

    def __init__(
        self, hidden: int, heads: int, groups: int, dim: int, bias: bool = False, out_bias: bool = False, table: int = 0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.q, self.o = nn.Linear(hidden, heads * dim, bias), nn.Linear(heads * dim, hidden, out_bias)
        self.k, self.v = nn.Linear(hidden, groups * dim, bias), nn.Linear(hidden, groups * dim, bias)
        self.table = nn.Embedding(table, heads) if table else None

    def forward(self, x: Tensor, source: Tensor | None = None, position_bias: Tensor | None = None) -> Tensor:
        source = x if source is None else source
        q = self.q(x).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        k, v = (m(source).unflatten(-1, (-1, self.dim)).transpose(1, 2) for m in (self.k, self.v))
        if position_bias is None:
            mixed = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            mixed = (q @ k.transpose(-1, -2) + position_bias).softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).flatten(2))

    def bias_of(self, num_tokens: int) -> Tensor | None:
        """The table's biases, (heads, tokens, tokens)."""
        if self.table is None:
            return None
        far = torch.arange(num_tokens)
        return self.table((far[:, None] - far).abs().clamp(max=self.table.num_embeddings - 1)).permute(2, 0, 1)


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, width, False), nn.Linear(hidden, width, False)
        self.down = nn.Linear(width, hidden, False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Module):
    """Each token through the experts that its router's softmax is largest for, and through a shared one."""

    def __init__(self, hidden: int, num_experts: int, per_token: int, width: int, shared: int) -> None:
        super().__init__()
        self.per_token = per_token
        self.router = nn.Linear(hidden, num_experts, False)
        self.experts = nn.ModuleList(Gated(hidden, width) for _ in range(num_experts))
        self.shared, self.shared_gate = Gated(hidden, shared), nn.Linear(hidden, 1, False)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weights, chosen = self.router(flat).softmax(-1).topk(self.per_token)
        order = chosen.flatten().argsort()
        inputs = flat[order // self.per_token].split(chosen.flatten().bincount(minlength=len(self.experts)).tolist())
        outputs = torch.cat([expert(part) for expert, part in zip(self.experts, inputs, strict=True)])
        each = outputs[order.argsort()].unflatten(0, chosen.shape)
        mixed = (each * weights[..., None]).sum(1)
        return (mixed + torch.sigmoid(self.shared_gate(flat)) * self.shared(flat)).view_as(x)


class PreNorm(nn.Module):
    """A block with RMSNorm before each of attention, attention to a source, and MLP."""

    def __init__(self, hidden: int, attention: Attention, mlp: nn.Module, cross: Attention | None = None) -> None:
        super().__init__()
        self.attention, self.cross, self.mlp = attention, cross, mlp
        self.norms = nn.ModuleList(RmsNorm(hidden) for _ in range(3 if cross else 2))

    def forward(self, x: Tensor, bias: Tensor | None = None, source: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norms[0](x), position_bias=bias)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), source)
        return x + self.mlp(self.norms[-1](x))


class PostNorm(nn.Module):
    """A block of BERT: LayerNorm behind each residual."""

    def __init__(self, hidden: int, heads: int, width: int) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads, heads, hidden // heads, True, True)
        self.mlp = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.Linear(width, hidden))
        self.norm_attention, self.norm_mlp = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_attention(x + self.attention(x))
        return self.norm_mlp(x + self.mlp(x))


class Decoder(nn.Module):
    """A decoder of any blocks, with a last RMSNorm and a head of its own."""

    def __init__(self, vocabulary: int, hidden: int, blocks: list[PreNorm]) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(vocabulary, hidden), RmsNorm(hidden)
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(hidden, vocabulary, False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens.flatten())


class Bert(nn.Module):
    """An encoder with the head for masked words, tied to the embedding."""

    def __init__(self, vocabulary: int, hidden: int, heads: int, width: int, num_tokens: int, depth: int) -> None:
        super().__init__()
        self.tokens, self.types = nn.Embedding(vocabulary, hidden), nn.Embedding(2, hidden)
        self.positions = nn.Parameter(torch.zeros(num_tokens, hidden))
        self.norm, self.head_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.blocks = nn.ModuleList(PostNorm(hidden, heads, width) for _ in range(depth))
        self.transform, self.bias = nn.Linear(hidden, hidden), nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.tokens(tokens) + self.positions + self.types.weight[0])
        for block in self.blocks:
            x = block(x)
        x = self.head_norm(functional.gelu(self.transform(x)))
        logits = functional.linear(x, self.tokens.weight, self.bias)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class T5(nn.Module):
    """Encoder and decoder, one embedding for both and the head, position biases that the first blocks own."""

    def __init__(self, vocabulary: int, hidden: int, heads: int, dim: int, width: int, depth: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(vocabulary, hidden)

        def attention(table: int = 0) -> Attention:
            return Attention(hidden, heads, heads, dim, table=table)

        def mlp() -> nn.Module:
            return nn.Sequential(nn.Linear(hidden, width, False), nn.ReLU(), nn.Linear(width, hidden, False))

        tables = [32 if number == 0 else 0 for number in range(depth)]
        self.encoder = nn.ModuleList(PreNorm(hidden, attention(t), mlp()) for t in tables)
        self.decoder = nn.ModuleList(PreNorm(hidden, attention(t), mlp(), attention()) for t in tables)
        self.encoder_norm, self.norm = RmsNorm(hidden), RmsNorm(hidden)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        source, x = self.shared(tokens), self.shared(targets)
        bias = self.encoder[0].attention.bias_of(tokens.shape[1])
        for block in self.encoder:
            source = block(source, bias)
        source, bias = self.encoder_norm(source), self.decoder[0].attention.bias_of(targets.shape[1])
        for block in self.decoder:
            x = block(x, bias, source)
        logits = self.norm(x) @ self.shared.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def count_flops(loss: Callable[[], Tensor]) -> int:
    """Of the matrix products of a forward and a backward pass."""
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    return int(counter.get_total_flops())


def count_kept(module: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Bytes of all figures that autograd keeps for the backward pass, beside the parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = loss()
    assert result.requires_grad
    return sum(kept.values())
