"""Each kind of architecture, counted by formula and by torch on a small real model of that kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hulk_placement.model import Model
from hulk_placement.model.hugging_face import from_config
from torch import Tensor, nn
from torch_models import T5, Attention, Bert, Decoder, Gated, Mixture, PreNorm, count_flops, count_kept

B, S, T, V, H = 3, 48, 24, 120, 64  # sequences, tokens, target tokens, vocabulary, hidden

DECODER = {"hidden_size": H, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": V}
LLAMA = DECODER | {"model_type": "llama", "max_position_embeddings": S, "intermediate_size": 112, "head_dim": 12}
MIXTURE = DECODER | {
    "model_type": "qwen2_moe",
    "max_position_embeddings": S,
    "intermediate_size": 1,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 56,
    "shared_expert_intermediate_size": 80,
}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": H,
    "num_attention_heads": 4,
    "intermediate_size": 200,
    "max_position_embeddings": S,
    "vocab_size": V,
}
T5_CONFIG = {
    "model_type": "t5",
    "d_model": H,
    "num_heads": 4,
    "d_kv": 24,
    "d_ff": 160,
    "vocab_size": V,
    "sequence_length": S,
    "target_length": T,
}


@dataclass(frozen=True)
class Kind:
    """A config and the module that it describes, both of any depth."""

    config: dict[str, Any]
    depth_key: str
    module: Callable[[int], nn.Module]
    num_targets: int = S

    def model(self, depth: int) -> Model:
        return Model.of(from_config(self.config | {self.depth_key: depth}))

    def loss(self, module: nn.Module) -> Callable[[], Tensor]:
        torch.manual_seed(0)
        batch = [torch.randint(V, (B, S))] + ([torch.randint(V, (B, T))] if self.num_targets == T else [])
        return lambda: module(*batch)


def llama(depth: int) -> nn.Module:
    return Decoder(V, H, [PreNorm(H, Attention(H, 8, 2, 12), Gated(H, 112)) for _ in range(depth)])


def mixture(depth: int) -> nn.Module:
    blocks = [PreNorm(H, Attention(H, 8, 2, 8, bias=True), Mixture(H, 5, 2, 56, 80)) for _ in range(depth)]
    return Decoder(V, H, blocks)


KINDS = {
    "grouped queries and SwiGLU": Kind(LLAMA, "num_hidden_layers", llama),
    "mixture of experts": Kind(MIXTURE, "num_hidden_layers", mixture),
    "BERT": Kind(BERT, "num_hidden_layers", lambda depth: Bert(V, H, 4, 200, S, depth)),
    "T5": Kind(T5_CONFIG, "num_layers", lambda depth: T5(V, H, 4, 24, 160, depth), T),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@each_kind
def test_parameters(kind: Kind) -> None:
    assert kind.model(3).num_parameters == sum(p.numel() for p in kind.module(3).parameters())


@each_kind
def test_flops_of_forward_and_backward(kind: Kind) -> None:
    module = kind.module(2)
    assert B * kind.model(2).flops_per_sequence == pytest.approx(count_flops(kind.loss(module)), rel=1e-4)


@each_kind
def test_activations_kept_for_backward(kind: Kind) -> None:
    module, model = kind.module(3), kind.model(3)
    logits = B * kind.num_targets * V * 4  # held until the loss is computed, not after
    kept = count_kept(module, kind.loss(module))
    assert B * model.activation_bytes_per_sequence - logits == pytest.approx(kept, rel=0.02)


@each_kind
def test_one_block_more_costs_what_its_layer_says(kind: Kind) -> None:
    """Embedding and head may not make up for the blocks between them."""
    shallow, deep = kind.module(2), kind.module(3)
    flops = count_flops(kind.loss(deep)) - count_flops(kind.loss(shallow))
    kept = count_kept(deep, kind.loss(deep)) - count_kept(shallow, kind.loss(shallow))
    known = {layer.name for layer in kind.model(2).layers}
    more = [layer for layer in kind.model(3).layers if layer.name not in known]
    assert B * sum(layer.forward_flops + layer.backward_flops for layer in more) == pytest.approx(flops, rel=1e-4)
    assert B * sum(layer.activation_bytes for layer in more) == pytest.approx(kept, rel=0.02)
