"""An architecture by its dimensions becomes the layers that a plan cuts into stages, in the order they run.

    decoder            embedding, blocks, norm and head
    encoder            embedding, blocks, pooler or head
    encoder-decoder    embedding, encoder's blocks, its norm, decoder's embedding, its blocks, norm and head

Tensor parallelism is counted as Megatron does it (Shoeybi et al. 2019, arXiv 1909.08053, section 3): of a block,
attention and MLP each end in one all-reduce of the forward pass and begin with one of the backward pass, of S x h
values. With the vocabulary split, the embedding has one forward and the head one backward: both are counted with the
embedding, and the few numbers a token of the split softmax are not. What surrounds the products, the norms and the
inputs, is kept by every rank (Korthikanti et al. 2022, arXiv 2205.05198, equation 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hulk_placement.model.layer import BYTES_PER_ACTIVATION, BYTES_PER_FP32, Layer
from hulk_placement.model.parts import (
    Attention,
    Count,
    Experts,
    FeedForward,
    LatentAttention,
    Norm,
    linear,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Attention, attention to an encoder's output (`cross`), and an MLP, each behind a norm and beside a residual.

    It counts the same with its norms behind the residual (post-norm). `has_branch_norms`: another norm ends each of
    them (Gemma 2). `is_parallel`: attention and MLP side by side behind one norm (Phi); their outputs are all-reduced
    together.
    """

    attention: Attention | LatentAttention
    mlp: FeedForward | Experts
    norm: Norm
    cross: Attention | None = None
    has_branch_norms: bool = False
    is_parallel: bool = False

    @property
    def num_tensor_allreduces(self) -> int:
        """Of a forward pass; a backward pass has as many."""
        return 1 if self.is_parallel else 2 + (self.cross is not None)

    def count(self, hidden: int, tokens: int, source_tokens: int) -> Count:
        """What the block costs for `tokens`, and `source_tokens` that its cross-attention looks at."""
        count = self.attention.count(hidden, tokens) + self.mlp.count(hidden, tokens)
        if self.cross is not None:
            count += self.cross.count(hidden, tokens, source_tokens)
        for _ in range(self.num_tensor_allreduces):
            count += self.norm.count(tokens, hidden)
            if self.has_branch_norms:
                count += self.norm.count(tokens, hidden, is_output_kept=False)
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A vocabulary's vectors, of `width` values that a matrix widens (0: of the model's own width).

    `positions`, `token_types`: rows of other tables that are added. `norm`: of the sum.
    """

    width: int = 0
    positions: int = 0
    token_types: int = 0
    norm: Norm | None = None

    def count(self, vocabulary: int, hidden: int, tokens: int) -> Count:
        """A lookup computes nothing and keeps nothing; the matrix keeps its input and, for the first block, output."""
        width = self.width or hidden
        count = Count(parameters=vocabulary * width + (self.positions + self.token_types) * hidden)
        if width != hidden:
            count += linear(tokens, width, hidden) + Count(whole=tokens * (width + hidden))
        return count + (self.norm.count(tokens, hidden) if self.norm else Count())


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What follows the last block: a norm, a matrix onto the vocabulary, or a pooler of the first token.

    `matrix`: "tied" is the embedding's own, "own" another, "none": no logits. `transform`: a product, an activation
    function and a norm before it (BERT).
    """

    norm: Norm | None = None
    matrix: Literal["tied", "own", "none"] = "tied"
    bias: bool = False
    transform: Norm | None = None
    has_pooler: bool = False

    def count(self, vocabulary: int, hidden: int, width: int, tokens: int) -> Count:
        """Kept with the logits: their softmax, both in four bytes whatever the precision."""
        count = self.norm.count(tokens, hidden) if self.norm else Count()
        if self.has_pooler:
            count += linear(1, hidden, hidden, bias=True) + Count(whole=hidden)
        if self.transform:
            count += linear(tokens, hidden, hidden, bias=True) + Count(whole=tokens * hidden)
            count += self.transform.count(tokens, hidden)
        if self.matrix == "none":
            return count
        if width != hidden:
            count += linear(tokens, hidden, width) + Count(whole=tokens * width)
        logits = linear(tokens, width, vocabulary)
        owned = (self.matrix == "own") * logits.parameters + self.bias * vocabulary
        return count + Count(parameters=owned, flops=logits.flops, fp32=2 * tokens * vocabulary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Prefixes of the layers in the state dict; `encoder` and `decoder` are those of blocks, without the number."""

    embedding: str
    head: str
    encoder: str = ""
    decoder: str = ""
    encoder_norm: str = ""
    decoder_embedding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A transformer by its dimensions; `encoder` and `decoder` hold one Block a layer, and one of them may be empty.

    `sequence_length`: tokens of a training sequence; of an encoder-decoder those of the encoder, and `target_length`
    those of the decoder. The head's matrix is tied to the embedding or not; the embedding of a decoder behind an
    encoder is the encoder's.
    """

    hidden: int
    vocabulary: int
    sequence_length: int
    names: Names
    encoder: tuple[Block, ...] = ()
    decoder: tuple[Block, ...] = ()
    embedding: Embedding = Embedding()
    head: Head = Head()
    target_length: int = 0

    def __post_init__(self) -> None:
        if min(self.hidden, self.vocabulary, self.sequence_length, len(self.encoder + self.decoder)) < 1:
            raise ValueError(
                f"architecture: hidden {self.hidden}, vocabulary {self.vocabulary}, sequence length "
                f"{self.sequence_length} and {len(self.encoder + self.decoder)} layers must be >= 1"
            )
        if bool(self.target_length) != bool(self.encoder and self.decoder):
            raise ValueError(
                f"architecture: target length {self.target_length} with {len(self.encoder)} encoder and "
                f"{len(self.decoder)} decoder layers"
            )

    @property
    def num_heads(self) -> int:
        """Attention heads of a block; where blocks have different numbers, the largest that divides them all."""
        blocks = self.encoder + self.decoder
        parts = [block.attention for block in blocks] + [block.cross for block in blocks if block.cross is not None]
        return math.gcd(*(part.heads for part in parts))

    def layers(self, precision: str) -> tuple[Layer, ...]:
        """The layers, in the order they run.

        Between blocks S x h values are sent; the encoder's output is needed by every decoder block, so it travels on
        with the decoder's own values until the last. T5's tables of position biases are counted in the first block;
        stages without it keep a copy of these few kB, whose exchange is not counted.
        """
        return tuple(part.layer(BYTES_PER_ACTIVATION[precision]) for part in self._parts())

    def _parts(self) -> Iterator[_Part]:
        source = self.sequence_length
        tokens = self.target_length or source
        values, carried = source * self.hidden, 0
        yield _Part(self.names.embedding, self.embedding.count(self.vocabulary, self.hidden, source), values, 1, values)
        for number, block in enumerate(self.encoder):
            yield _block(f"{self.names.encoder}.{number}", block, self.hidden, source, source, values)
        if self.encoder and self.decoder:
            norm = self.head.norm.count(source, self.hidden) if self.head.norm else Count()
            yield _Part(self.names.encoder_norm, norm, values)
            values, carried = tokens * self.hidden, values
            tied = self.vocabulary * (self.embedding.width or self.hidden)
            yield _Part(self.names.decoder_embedding, Count(), values + carried, 1, values, tied)
        for number, block in enumerate(self.decoder):
            sent = values + carried * (number + 1 < len(self.decoder))
            yield _block(f"{self.names.decoder}.{number}", block, self.hidden, tokens, source, sent)
        yield self._head(tokens)

    def _head(self, tokens: int) -> _Part:
        width = self.embedding.width or self.hidden
        count = self.head.count(self.vocabulary, self.hidden, width, tokens)
        tied = self.vocabulary * width if self.head.matrix == "tied" else 0
        return _Part(self.names.head, count, tied=tied)


@dataclass(frozen=True, slots=True)
class _Part:
    """A layer in values: `sent` to the next layer, `reduced` by each of the all-reduces of a tensor-parallel group."""

    name: str
    count: Count
    sent: int = 0
    num_allreduces: int = 0
    reduced: int = 0
    tied: int = 0

    def layer(self, value_bytes: int) -> Layer:
        count = self.count
        return Layer(
            name=self.name,
            num_parameters=count.parameters,
            forward_flops=count.flops,
            backward_flops=2 * count.flops + count.recomputed_flops,
            output_bytes=self.sent * value_bytes,
            activation_bytes=(count.split + count.whole) * value_bytes + count.fp32 * BYTES_PER_FP32,
            replicated_activation_bytes=count.whole * value_bytes,
            tensor_bytes=self.num_allreduces * self.reduced * value_bytes,
            num_tensor_allreduces=self.num_allreduces,
            tied_to=0 if self.tied else None,
            tied_parameters=self.tied,
        )


def _block(name: str, block: Block, hidden: int, tokens: int, source_tokens: int, sent: int) -> _Part:
    count = block.count(hidden, tokens, source_tokens)
    return _Part(name, count, sent, block.num_tensor_allreduces, tokens * hidden)
