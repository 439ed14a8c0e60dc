"""How much a GPT-shaped transformer holds, computes and sends: closed formulas, one source each.

The model is the one that `hulk_runtime` trains: a pre-LayerNorm decoder with learned positions whose output head is
the token embedding (tied, no bias of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BYTES_PER_FP32 = 4
BYTES_PER_ACTIVATION = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True)
class Transformer:
    """A transformer's dimensions. `feed_forward` is the width of the MLP (4 x hidden where 0 is given)."""

    layers: int
    hidden: int
    heads: int
    sequence_length: int
    vocabulary: int
    feed_forward: int = 0

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads, self.sequence_length, self.vocabulary)
        if min(sizes) < 1 or self.feed_forward < 0:
            raise ValueError(f"transformer: every dimension must be >= 1: {self}")
        if self.hidden % self.heads:
            raise ValueError(f"transformer: hidden {self.hidden} is no multiple of {self.heads} heads")

    @property
    def mlp_width(self) -> int:
        """The width of the MLP's inner layer."""
        return self.feed_forward or 4 * self.hidden


def from_hugging_face(config: Mapping[str, Any]) -> Transformer:
    """The dimensions in a Hugging Face `config.json` of the GPT-2 family (or the names LLaMA-like models use).

    KeyError names the missing field. Parameters are counted as this project's GPT, whatever the architecture.
    """
    return Transformer(
        layers=_first(config, "n_layer", "num_hidden_layers"),
        hidden=_first(config, "n_embd", "hidden_size"),
        heads=_first(config, "n_head", "num_attention_heads"),
        sequence_length=_first(config, "n_positions", "n_ctx", "max_position_embeddings"),
        vocabulary=_first(config, "vocab_size"),
        feed_forward=int(config.get("n_inner") or config.get("intermediate_size") or 0),
    )


def _first(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if config.get(name):
            return int(config[name])
    raise KeyError(f"config.json has none of {', '.join(names)}")


def num_parameters(shape: Transformer) -> int:
    """Trained values: V h + S h + L (4 h² + 4 h + 2 h f + f + h + 4 h) + 2 h.

    In order: token embedding (tied with the output head, counted once), position embedding, per layer the attention's
    four h x h matrices with biases, the two MLP matrices (width f) with biases, two LayerNorms; the final LayerNorm.
    The 12 L h² of Kaplan et al. 2020 (arXiv 2001.08361, table 1) is its leading term for f = 4 h.

    >>> num_parameters(Transformer(layers=1, hidden=2, heads=1, sequence_length=3, vocabulary=5, feed_forward=4))
    74
    """
    h, f = shape.hidden, shape.mlp_width
    layer = (4 * h * h + 4 * h) + (2 * h * f + f + h) + 4 * h
    return shape.vocabulary * h + shape.sequence_length * h + shape.layers * layer + 2 * h


def flops_per_sequence(shape: Transformer) -> int:
    """Floating-point operations of one forward and backward pass over one sequence.

    Matrix products only, two operations per multiply-add, backward = 2 x forward (Kaplan et al. 2020, section 2.1):
    3 x S x (L (2 x (4 h² + 2 h f) + 4 S h) + 2 h V). The 4 S h is the scores and the weighted sum of attention over
    the whole square, as dense kernels compute it (Korthikanti et al. 2022, arXiv 2205.05198, appendix A).

    >>> flops_per_sequence(Transformer(layers=1, hidden=2, heads=1, sequence_length=3, vocabulary=5, feed_forward=4))
    972
    """
    h, s = shape.hidden, shape.sequence_length
    layer = 2 * (4 * h * h + 2 * h * shape.mlp_width) + 4 * s * h
    return 3 * s * (shape.layers * layer + 2 * h * shape.vocabulary)


def activation_bytes_per_sequence(shape: Transformer, precision: str) -> int:
    """Bytes one sequence keeps for its backward pass, with attention's whole square of scores held.

    Korthikanti et al. 2022 (arXiv 2205.05198, equation 1) count, for 2-byte values and f = 4 h, S h L (34 + 5 a S / h)
    bytes, dropout masks among them. Here without dropout and with f free, values per token and layer: both LayerNorms'
    inputs and outputs, q, k, v and the attention's output 8 h; the MLP before and after its activation 2 f; the softmax
    of the scores a S, in four bytes (autocast computes it so). After the layers: the last LayerNorm 2 h, the logits and
    their softmax 2 V, in four bytes.
    """
    h, s = shape.hidden, shape.sequence_length
    values = s * (shape.layers * (8 * h + 2 * shape.mlp_width) + 2 * h)
    in_fp32 = s * (shape.layers * shape.heads * s + 2 * shape.vocabulary)
    return values * BYTES_PER_ACTIVATION[precision] + in_fp32 * BYTES_PER_FP32
