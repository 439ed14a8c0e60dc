"""The bundled GPT, counted by formula and by torch on the same small model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hulk_placement.model import Model, Transformer
from hulk_placement.model.hugging_face import from_config
from hulk_placement.model.transformer import architecture, shape_of
from hulk_placement.workload import Workload
from hulk_runtime.examples.gpt_model import Gpt as BundledGpt
from hulk_runtime.plan.wire import Model as WireModel
from torch import nn
from torch_models import count_flops, count_kept

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
    """The bundled model with plain attention: learned positions, head tied to the token embedding."""

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
    assert Model.of(shape).num_parameters == sum(p.numel() for p in Gpt(shape).parameters())


@pytest.mark.parametrize("shape", SHAPES)
def test_layers_are_the_bundled_gpts_modules(shape: Transformer) -> None:
    """A layer's name is the prefix of its parameters; positions go with the tokens, under their name."""
    bundled = BundledGpt(
        WireModel(
            layers=shape.layers,
            hidden=shape.hidden,
            heads=shape.heads,
            sequence_length=shape.sequence_length,
            vocabulary=shape.vocabulary,
            feed_forward=shape.mlp_width,
        )
    )
    sizes = {layer.name: 0 for layer in Model.of(shape).layers}
    for name, parameter in bundled.named_parameters():
        sizes[next(p for p in sizes if name.replace("position.", "token.").startswith(p + "."))] += parameter.numel()
    assert sizes == {layer.name: layer.num_parameters for layer in Model.of(shape).layers}


@pytest.mark.parametrize("shape", SHAPES)
def test_flops_of_forward_and_backward(shape: Transformer) -> None:
    model, tokens = Gpt(shape), batch(shape, 3)
    counted = count_flops(lambda: model(tokens))
    assert 3 * Model.of(shape).flops_per_sequence == pytest.approx(counted, rel=0.001)


@pytest.mark.parametrize("shape", SHAPES)
def test_activations_kept_for_backward(shape: Transformer) -> None:
    model, tokens = Gpt(shape), batch(shape, 4)
    logits = 4 * shape.sequence_length * shape.vocabulary * 4  # held until the loss is computed, not after
    kept = count_kept(model, lambda: model(tokens))
    assert 4 * Model.of(shape).activation_bytes_per_sequence - logits == pytest.approx(kept, rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", [*SHAPES, Transformer(12, 768, 12, 1024, 50257)])
def test_the_layers_sum_up_to_the_formulas_in_the_docs(shape: Transformer, precision: str) -> None:
    v, s, a, h, f = shape.vocabulary, shape.sequence_length, shape.heads, shape.hidden, shape.mlp_width
    value_bytes = 4 if precision == "fp32" else 2
    model = Model.of(shape, precision)
    block = (4 * h * h + 4 * h) + (2 * h * f + f + h) + 4 * h
    assert model.num_parameters == v * h + s * h + shape.layers * block + 2 * h
    assert model.flops_per_sequence == 3 * s * (shape.layers * (8 * h * h + 4 * h * f + 4 * s * h) + 2 * h * v)
    kept, in_fp32 = s * (shape.layers * (8 * h + 2 * f) + 2 * h), s * (shape.layers * a * s + 2 * v)
    assert model.activation_bytes_per_sequence == kept * value_bytes + in_fp32 * 4


def test_what_a_block_sends_and_shares() -> None:
    """Megatron: two all-reduces of S x h values forward; Korthikanti et al.: 4 S h of the values kept by every rank."""
    shape = SHAPES[0]
    token, block, _, norm = Model.of(shape, "bf16").layers
    hidden = 2 * shape.sequence_length * shape.hidden
    assert (token.output_bytes, block.output_bytes, norm.output_bytes) == (hidden, hidden, 0)
    assert (block.tensor_bytes, block.num_tensor_allreduces) == (2 * hidden, 2)
    assert block.replicated_activation_bytes == 4 * hidden
    assert block.backward_flops == 2 * block.forward_flops
    assert (norm.tied_to, norm.tied_parameters) == (0, shape.vocabulary * shape.hidden)


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
    state = Workload("t/job", Model.of(shape), 1, {"a": 1}, optimizer=optimizer).replica_bytes(0)
    assert state == sum(tensor.nbytes for tensor in held) + bucket_copy


def test_gradients_are_four_bytes_a_parameter() -> None:
    model = Gpt(SHAPES[0])
    assert Model.of(SHAPES[0], "bf16").gradient_bytes == sum(p.nbytes for p in model.parameters())


def test_gpt2_has_its_published_size() -> None:
    """GPT-2 small has 124,439,808 parameters, the same model with the same ties."""
    assert Model.of(Transformer(12, 768, 12, 1024, 50257)).num_parameters == 124_439_808


GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Transformer(2, 64, 4, 32, 100)),
        ({"n_inner": 96}, Transformer(2, 64, 4, 32, 100, 96)),
        ({"activation_function": "gelu_new"}, Transformer(2, 64, 4, 32, 100)),
        ({"attn_implementation": "eager"}, Transformer(2, 64, 4, 32, 100)),
        ({"activation_function": "relu"}, None),
        ({"tie_word_embeddings": False}, None),
        ({"sequence_length": 16}, None),  # it has more positions than tokens
    ],
)
def test_what_has_the_bundled_gpts_structure_is_counted_as_it(
    change: dict[str, object], expected: Transformer | None
) -> None:
    model = Model.of(from_config(GPT2 | change))
    assert model.shape == expected
    names = [layer.name for layer in model.layers]
    assert names == ["transformer.wte", "transformer.h.0", "transformer.h.1", "lm_head"]
    if expected is not None:
        nameless = [replace(layer, name="") for layer in model.layers]
        assert nameless == [replace(layer, name="") for layer in Model.of(expected).layers]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_architecture_has_the_shape_it_was_made_from(shape: Transformer) -> None:
    assert shape_of(architecture(shape)) == shape


@pytest.mark.parametrize(
    ("change", "message"), [({"heads": 5}, "no multiple of 5 heads"), ({"layers": 0}, "every dimension must be >= 1")]
)
def test_impossible_dimensions_are_refused(change: dict[str, int], message: str) -> None:
    sizes = {"layers": 1, "hidden": 32, "heads": 4, "sequence_length": 8, "vocabulary": 10, **change}
    with pytest.raises(ValueError, match=message):
        Transformer(**sizes)
