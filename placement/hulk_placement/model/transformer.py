"""The GPT that `hulk_runtime` trains, by its dimensions: a pre-LayerNorm decoder, learned positions and a tied head.

Its layers and what each costs for one sequence: V vocabulary, S sequence length, h hidden, f width of the MLP, a heads.

| layer | parameters | forward FLOPs | values kept for the backward pass |
|---|---|---|---|
| `token` (tokens, positions) | V h + S h | 0 | 0 |
| `blocks.i` | 4 h² + 4 h + 2 h f + f + h + 4 h | S (8 h² + 4 h f + 4 S h) | S (8 h + 2 f), and a S² in four bytes |
| `norm` (and the head) | 2 h, V h tied to `token` | 2 S h V | 2 S h, and 2 S V in four bytes |

Parameters: the attention's four h x h matrices with biases, the MLP's two with biases, two LayerNorms; 12 h² a block,
for f = 4 h, is the leading term of Kaplan et al. 2020 (arXiv 2001.08361, table 1). FLOPs: matrix products, backward
twice the forward pass (section 2.1 there); 4 S² h is attention over the whole square (Korthikanti et al. 2022, arXiv
2205.05198, appendix A). Kept (equation 1 there, without dropout, f free): both LayerNorms' inputs and outputs, queries,
keys, values and the attention's output 8 h; the MLP before and after its activation function 2 f; the softmax of the
scores a S; at last the LayerNorm 2 h, the logits and their softmax 2 V. Of a block's values each tensor-parallel rank
keeps the 4 S h of its LayerNorms and a part of the others (equation 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hulk_placement.model.architecture import Architecture, Block, Embedding, Head, Names
from hulk_placement.model.parts import LAYER_NORM, Attention, Experts, FeedForward


@dataclass(frozen=True, slots=True)
class Transformer:
    """The dimensions. `feed_forward` is the width of the MLP (4 x hidden where 0 is given)."""

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


def architecture(shape: Transformer) -> Architecture:
    """The bundled GPT of these dimensions, with the names of its modules.

    >>> shape = Transformer(layers=1, hidden=2, heads=1, sequence_length=3, vocabulary=5, feed_forward=4)
    >>> [(layer.name, layer.num_parameters, layer.forward_flops) for layer in architecture(shape).layers("fp32")]
    [('token', 16, 0), ('blocks.0', 54, 264), ('norm', 4, 60)]
    """
    attention = Attention(
        heads=shape.heads,
        key_value_heads=shape.heads,
        head_dim=shape.hidden // shape.heads,
        bias=True,
        output_bias=True,
        keeps_scores=True,
    )
    block = Block(attention=attention, mlp=FeedForward(width=shape.mlp_width, bias=True), norm=LAYER_NORM)
    return Architecture(
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        sequence_length=shape.sequence_length,
        names=Names(embedding="token", decoder="blocks", head="norm"),
        decoder=(block,) * shape.layers,
        embedding=Embedding(positions=shape.sequence_length),
        head=Head(norm=LAYER_NORM, matrix="tied"),
    )


def shape_of(found: Architecture) -> Transformer | None:
    """The dimensions of the bundled GPT that has the structure found, whatever its names; None where none has."""
    if not found.decoder or any(isinstance(block.mlp, Experts) for block in found.decoder):
        return None
    attention, mlp = found.decoder[0].attention, found.decoder[0].mlp
    if not isinstance(attention, Attention) or not isinstance(mlp, FeedForward) or found.hidden % attention.heads:
        return None
    shape = Transformer(
        layers=len(found.decoder),
        hidden=found.hidden,
        heads=attention.heads,
        sequence_length=found.sequence_length,
        vocabulary=found.vocabulary,
        feed_forward=0 if mlp.width == 4 * found.hidden else mlp.width,
    )
    bundled = replace(architecture(shape), names=found.names)
    return shape if bundled == replace(found, decoder=tuple(map(_as_bundled, found.decoder))) else None


def _as_bundled(block: Block) -> Block:
    """How attention and GELU are computed, and what that keeps, is no part of a GPT's structure."""
    assert isinstance(block.mlp, FeedForward)
    mlp = replace(block.mlp, function_values=min(1, block.mlp.function_values))
    return replace(block, attention=replace(block.attention, keeps_scores=True), mlp=mlp)
