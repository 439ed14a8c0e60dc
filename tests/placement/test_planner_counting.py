"""Parameters, FLOPs and memory of a transformer, counted by formula and by torch on the same small model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hulk_placement import transformer
from hulk_placement.transformer import Transformer
from hulk_placement.workload import Model
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

SHAPES = [
    Transformer(layers=2, hidden=32, heads=4, sequence_length=24, vocabulary=50, feed_forward=80),
    Transformer(layers=3, hidden=64, heads=2, sequence_length=64, vocabulary=256),
]


class Block(nn.Module):
    """A pre-LayerNorm block with plain attention, so that torch counts and keeps every matrix."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        h, f = shape.hidden, shape.mlp_width
        self.heads = shape.heads
        self.before_attention, self.before_mlp = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, f), nn.Linear(f, h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, h = x.shape
        q, k, v = self.qkv(self.before_attention(x)).chunk(3, dim=-1)
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2) / (h // self.heads) ** 0.5).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, h))
        return x + self.down(nn.functional.gelu(self.up(self.before_mlp(x))))


class Gpt(nn.Module):
    """The model of `transformer`'s formulas: learned positions, head tied to the token embedding."""

    def __init__(self, shape: Transformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Parameter(torch.zeros(shape.sequence_length, shape.hidden))
        self.blocks = nn.Sequential(*[Block(shape) for _ in range(shape.layers)])
        self.norm = nn.LayerNorm(shape.hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.blocks(self.tokens(tokens) + self.positions))
        logits = x @ self.tokens.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def batch(shape: Transformer, num_sequences: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(shape.vocabulary, (num_sequences, shape.sequence_length))


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters(shape: Transformer) -> None:
    assert transformer.num_parameters(shape) == sum(p.numel() for p in Gpt(shape).parameters())


@pytest.mark.parametrize("shape", SHAPES)
def test_flops_of_forward_and_backward(shape: Transformer) -> None:
    model, tokens = Gpt(shape), batch(shape, 3)
    with FlopCounterMode(display=False) as counter:
        model(tokens).backward()
    counted = counter.get_total_flops()
    assert 3 * transformer.flops_per_sequence(shape) == pytest.approx(counted, rel=0.001)


@pytest.mark.parametrize("shape", SHAPES)
def test_activations_kept_for_backward(shape: Transformer) -> None:
    model = Gpt(shape)
    parameters = {p.data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(batch(shape, 4))
    formula = 4 * transformer.activation_bytes_per_sequence(shape, "fp32")
    logits = 4 * shape.sequence_length * shape.vocabulary * 4  # held until the loss is computed, not after
    assert loss.requires_grad
    assert formula - logits == pytest.approx(sum(kept.values()), rel=0.02)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_state_per_parameter(optimizer: str) -> None:
    shape = SHAPES[0]
    model = Gpt(shape)
    make = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer]
    optimize = make(model.parameters(), lr=0.1)
    model(batch(shape, 1)).backward()
    optimize.step()
    held = list(model.parameters()) + [p.grad for p in model.parameters() if p.grad is not None]
    held += [value for state in optimize.state.values() for value in state.values() if value.numel() > 1]
    bucket_copy = sum(p.nbytes for p in model.parameters())
    state = Model.of(shape).memory_bytes(0, optimizer)
    assert state == sum(tensor.nbytes for tensor in held) + bucket_copy


def test_gradients_are_four_bytes_a_parameter() -> None:
    model = Gpt(SHAPES[0])
    assert Model.of(SHAPES[0], "bf16").gradient_bytes == sum(p.nbytes for p in model.parameters())


def test_half_precision_halves_all_but_softmax_and_logits() -> None:
    shape = SHAPES[1]
    full, half = (transformer.activation_bytes_per_sequence(shape, p) for p in ("fp32", "bf16"))
    in_fp32 = 4 * shape.sequence_length * (shape.layers * shape.heads * shape.sequence_length + 2 * shape.vocabulary)
    assert full - in_fp32 == 2 * (half - in_fp32)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257, "n_inner": None},
            Transformer(12, 768, 12, 1024, 50257),
        ),
        (
            {
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "max_position_embeddings": 128,
                "vocab_size": 1000,
                "intermediate_size": 172,
            },
            Transformer(2, 64, 4, 128, 1000, 172),
        ),
    ],
)
def test_hugging_face_config(config: dict[str, Any], expected: Transformer) -> None:
    assert transformer.from_hugging_face(config) == expected


def test_gpt2_has_its_published_size() -> None:
    """GPT-2 small has 124,439,808 parameters, the same model with the same ties."""
    assert transformer.num_parameters(Transformer(12, 768, 12, 1024, 50257)) == 124_439_808


def test_config_without_a_dimension_names_it() -> None:
    with pytest.raises(KeyError, match="n_layer, num_hidden_layers"):
        transformer.from_hugging_face({"vocab_size": 1})


@pytest.mark.parametrize(
    ("change", "message"), [({"heads": 5}, "no multiple of 5 heads"), ({"layers": 0}, "every dimension must be >= 1")]
)
def test_impossible_dimensions_are_refused(change: dict[str, int], message: str) -> None:
    sizes = {"layers": 1, "hidden": 32, "heads": 4, "sequence_length": 8, "vocabulary": 10, **change}
    with pytest.raises(ValueError, match=message):
        Transformer(**sizes)
