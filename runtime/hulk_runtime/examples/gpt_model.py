"""The GPT of the examples: embeddings, blocks, a head that shares the embedding's table.

The parameters are laid out as the planner counts them (V vocabulary, h hidden, S sequence length, f feed-forward):
token embedding V h (also the output head), positions S h, per layer attention 4 h^2 + 4 h, MLP 2 h f + f + h and two
LayerNorms of 2 h, and a last LayerNorm of 2 h.

Shape suffixes: B sequences, S positions, V vocabulary, H hidden.
"""

from typing import Final

import torch
from torch import nn
from torch.nn import functional

from hulk_runtime.plan.wire import Model

SEED: Final = 20260
INIT_STD: Final = 0.02


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and beside a residual (pre-LN)."""

    def __init__(self, hidden: int, num_heads: int, feed_forward: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm_attention = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attended = nn.Linear(hidden, hidden)
        self.norm_mlp = nn.LayerNorm(hidden)
        self.expand = nn.Linear(hidden, feed_forward)
        self.contract = nn.Linear(feed_forward, hidden)

    def forward(self, x_BSH: torch.Tensor) -> torch.Tensor:
        """(B, S, H) to (B, S, H)."""
        x_BSH = x_BSH + self.attended(self._attend(self.norm_attention(x_BSH)))
        inner: torch.Tensor = self.contract(functional.gelu(self.expand(self.norm_mlp(x_BSH))))
        return x_BSH + inner

    def _attend(self, x_BSH: torch.Tensor) -> torch.Tensor:
        b, s, h = x_BSH.shape
        q, k, v = (part.view(b, s, self.num_heads, -1).transpose(1, 2) for part in self.qkv(x_BSH).chunk(3, dim=-1))
        mixed: torch.Tensor = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(b, s, h)


class Gpt(nn.Module):
    """A pre-LN GPT with tied embedding."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        hidden = model.hidden
        self.token = nn.Embedding(model.vocabulary, hidden)
        self.position = nn.Embedding(model.sequence_length, hidden)
        feed_forward = model.feed_forward or 4 * hidden
        self.blocks = nn.ModuleList(Block(hidden, model.heads, feed_forward) for _ in range(model.layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """Token numbers (B, S) to logits (B, S, V)."""
        x_BSH = self.token(tokens_BS) + self.position.weight[: tokens_BS.shape[1]]
        for block in self.blocks:
            x_BSH = block(x_BSH)
        logits_BSV: torch.Tensor = functional.linear(self.norm(x_BSH), self.token.weight)
        return logits_BSV


def initialized(model: Model) -> Gpt:
    """A new model, the same on every rank: normal weights as in GPT-2, residual outputs scaled down by depth."""
    generator = torch.Generator().manual_seed(SEED)
    gpt = Gpt(model)  # not on the meta device: its random functions import torch's compiler, 2.5 CPU seconds
    for name, parameter in gpt.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" in name:
            nn.init.ones_(parameter)
        else:
            residual = "attended" in name or "contract" in name
            std = INIT_STD / (2 * model.layers) ** 0.5 if residual else INIT_STD
            nn.init.normal_(parameter, std=std, generator=generator)
    return gpt
