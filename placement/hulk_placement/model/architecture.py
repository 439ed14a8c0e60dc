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
from dataclasses import dataclass, field, replace
from typing import Literal

from hulk_placement.model.layer import BYTES_PER_ACTIVATION, BYTES_PER_FP32, NOTHING_FROZEN, Layer
from hulk_placement.model.parts import (
    Attention,
    Count,
    Experts,
    FeedForward,
    LatentAttention,
    Norm,
    Weight,
    linear,
)
from hulk_placement.model.trainable import Trainable, frozen_of, without_idle_backward

EVERYTHING = Trainable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Attention, attention to an encoder's output (`cross`), and an MLP, each behind a norm and beside a residual.

    It counts the same with its norms behind the residual (post-norm). `has_branch_norms`: another norm ends each of
    them (Gemma 2). `is_parallel`: attention and MLP side by side behind one norm (Phi), or `num_norms` (Falcon); their
    outputs are all-reduced together.
    """

    attention: Attention | LatentAttention
    mlp: FeedForward | Experts
    norm: Norm
    cross: Attention | None = None
    has_branch_norms: bool = False
    is_parallel: bool = False
    num_norms: int = 0

    @property
    def num_tensor_allreduces(self) -> int:
        """Of a forward pass; a backward pass has as many."""
        return 1 if self.is_parallel else 2 + (self.cross is not None)

    def count(self, hidden: int, tokens: int, source_tokens: int) -> Count:
        """What the block costs for `tokens`, and `source_tokens` that its cross-attention looks at."""
        count = self.attention.count(hidden, tokens).under(".attention") + self.mlp.count(hidden, tokens).under(".mlp")
        if self.cross is not None:
            count += self.cross.count(hidden, tokens, source_tokens).under(".cross")
        for number in range(self.num_norms or self.num_tensor_allreduces):
            count += self.norm.count(tokens, hidden, f".norm.{number}")
            if self.has_branch_norms:
                count += self.norm.count(tokens, hidden, f".branch_norm.{number}", is_output_kept=False)
        return count


LOGIT_BYTES = 8
"""The logits and their softmax in four bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a program keeps for the backward pass that the architecture leaves open.

    `has_dropout`: a mask of a byte a value behind attention and behind the MLP, and where the scores are kept another
    one and a second copy of them (Korthikanti et al. 2022, arXiv 2205.05198, section 4.1: the 2 sbh and 3 as^2b of 34
    sbh + 5 as^2b). `score_bytes`: what attention keeps of each of its square of scores, dropout's mask and copy among
    it, None: as the architecture says, 0: they are computed again, in a fused kernel or as that paper's selective
    recomputation does. `logit_bytes`: of each logit, the logits, their softmax and
    what its gradient takes beside them.
    """

    has_dropout: bool = False
    score_bytes: float | None = None
    logit_bytes: float = LOGIT_BYTES

    def of_block(self, block: Block, hidden: int, tokens: int, source_tokens: int) -> Count:
        """What is kept of a block beside its own count; `tokens` look at themselves, and at so many of a source."""
        parts = ((block.attention, tokens), (block.cross, source_tokens))
        square = sum(p.heads * tokens * num for p, num in parts if p is not None and p.keeps_scores)
        masks = tokens * hidden * block.num_tensor_allreduces * self.has_dropout
        if self.score_bytes is not None:
            return Count(split_bytes=round(square * (self.score_bytes - BYTES_PER_FP32)), whole_bytes=masks)
        return Count(split=square * self.has_dropout, split_bytes=square * self.has_dropout, whole_bytes=masks)

    def with_scores(self, block: Block) -> Block:
        """The block with its scores kept, or not, as is stated."""
        if self.score_bytes is None:
            return block
        keeps = self.score_bytes > 0
        cross = None if block.cross is None else replace(block.cross, keeps_scores=keeps)
        return replace(block, attention=replace(block.attention, keeps_scores=keeps), cross=cross)


AS_COUNTED = Kept()


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
        tables = {"": vocabulary * width, "positions": self.positions * hidden, "types": self.token_types * hidden}
        count = Count(tuple(Weight(f"{part}.weight", num) for part, num in tables.items() if num))
        if width != hidden:
            count += linear(tokens, width, hidden, part="projection") + Count(whole=tokens * (width + hidden))
        return count + (self.norm.count(tokens, hidden, "embedding_norm") if self.norm else Count())


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

    def count(self, vocabulary: int, hidden: int, width: int, tokens: int, logit_bytes: float = LOGIT_BYTES) -> Count:
        """Kept with the logits: their softmax, in so many bytes together whatever the precision."""
        count = self.norm.count(tokens, hidden, "norm") if self.norm else Count()
        if self.has_pooler:
            count += linear(1, hidden, hidden, bias=True, part=".dense") + Count(whole=hidden)
        if self.transform:
            count += linear(tokens, hidden, hidden, bias=True, part=".transform") + Count(whole=tokens * hidden)
            count += self.transform.count(tokens, hidden, ".transform_norm")
        if self.matrix == "none":
            return count
        if width != hidden:
            count += linear(tokens, hidden, width, part="head_projection") + Count(whole=tokens * width)
        logits = linear(tokens, width, vocabulary, self.bias)
        if self.matrix == "tied":
            matrix, *bias = logits.weights
            logits = replace(logits, weights=(replace(matrix, part=TIED, num_parameters=0), *bias))
        return count + logits + Count(split_bytes=round(logit_bytes * tokens * vocabulary))


TIED = "tied"
"""The part that is the embedding's own matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Prefixes of the layers in the state dict; `encoder` and `decoder` are those of blocks, without the number.

    `parts`: what the family calls parts, within a layer where the name begins with a dot; see `parts.Weight`.
    """

    embedding: str
    head: str
    encoder: str = ""
    decoder: str = ""
    encoder_norm: str = ""
    decoder_embedding: str = ""
    parts: tuple[tuple[str, str], ...] = ()

    def of(self, layer: str, part: str) -> str:
        """A parameter's name in the state dict.

        >>> names = Names(embedding="wte", head="lm_head", parts=((".attention.q", ".attn.q_proj"), ("norm", "ln_f")))
        >>> names.of("h.3", ".attention.q.weight"), names.of("lm_head", "norm.bias"), names.of("wte", ".weight")
        ('h.3.attn.q_proj.weight', 'ln_f.bias', 'wte.weight')
        """
        if part == TIED:
            return self.of(self.embedding, ".weight")
        module, _, last = part.rpartition(".")
        known = dict(self.parts).get(module, module)
        is_within = known.startswith(".") or not known
        return f"{layer}{known}.{last}" if is_within else f"{known}.{last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A transformer by its dimensions; `encoder` and `decoder` hold one Block a layer, and one of them may be empty.

    `sequence_length`: tokens of a training sequence; of an encoder-decoder those of the encoder, and `target_length`
    those of the decoder. The head's matrix is tied to the embedding or not; the embedding of a decoder behind an
    encoder is the encoder's. `kept`: what a program of it keeps. `notes`: sentences that a user
    should know of how a description was read.
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
    kept: Kept = field(default=AS_COUNTED, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

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

    def at_length(self, tokens: int) -> Architecture:
        """The same for training sequences of so many tokens; a decoder behind an encoder gets no more than these."""
        return replace(self, sequence_length=tokens, target_length=min(self.target_length, tokens))

    def layers(self, precision: str, trainable: Trainable = EVERYTHING) -> tuple[Layer, ...]:
        """The layers, in the order they run. ValueError where a pattern of `trainable` means no parameter.

        Between blocks S x h values are sent; the encoder's output is needed by every decoder block, so it travels on
        with the decoder's own values until the last. T5's tables of position biases are counted in the first block;
        stages without it keep a copy of these few kB, whose exchange is not counted.
        """
        parts = tuple(self._parts())
        if not trainable.is_all:
            trainable.require_meant([name for part in parts for name in part.parameter_names(self.names)])
        found = (part.layer(BYTES_PER_ACTIVATION[precision], trainable, self.names) for part in parts)
        return tuple(found) if trainable.is_all else without_idle_backward(found)

    def _parts(self) -> Iterator[_Part]:
        source = self.sequence_length
        tokens = self.target_length or source
        values, carried = source * self.hidden, 0
        yield _Part(self.names.embedding, self.embedding.count(self.vocabulary, self.hidden, source), values, 1, values)
        for number, block in enumerate(self.encoder):
            yield self._block(f"{self.names.encoder}.{number}", block, source, source, values)
        if self.encoder and self.decoder:
            norm = self.head.norm.count(source, self.hidden) if self.head.norm else Count()
            yield _Part(self.names.encoder_norm, norm, values)
            values, carried = tokens * self.hidden, values
            tied = self.vocabulary * (self.embedding.width or self.hidden)
            yield _Part(self.names.decoder_embedding, Count(), values + carried, 1, values, tied)
        for number, block in enumerate(self.decoder):
            sent = values + carried * (number + 1 < len(self.decoder))
            yield self._block(f"{self.names.decoder}.{number}", block, tokens, source, sent)
        yield self._head(tokens)

    def _block(self, name: str, block: Block, tokens: int, source_tokens: int, sent: int) -> _Part:
        counted = self.kept.with_scores(block)
        count = counted.count(self.hidden, tokens, source_tokens)
        count += self.kept.of_block(counted, self.hidden, tokens, source_tokens)
        return _Part(name, count, sent, block.num_tensor_allreduces, tokens * self.hidden)

    def _head(self, tokens: int) -> _Part:
        width = self.embedding.width or self.hidden
        count = self.head.count(self.vocabulary, self.hidden, width, tokens, self.kept.logit_bytes)
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

    def parameter_names(self, names: Names) -> list[str]:
        return [names.of(self.name, weight.part) for weight in self.count.weights if weight.num_parameters]

    def layer(self, value_bytes: int, trainable: Trainable, names: Names) -> Layer:
        count, frozen, unneeded = self.count, NOTHING_FROZEN, 0.0
        if not trainable.is_all:
            shares = [(weight, trainable.share_of(names.of(self.name, weight.part))) for weight in count.weights]
            unneeded = sum((1 - share) * weight.flops for weight, share in shares)
            num = sum(round(weight.num_parameters * share) for weight, share in shares)
            tied = trainable.share_of(names.of(self.name, TIED))
            frozen = frozen_of(count.parameters, num / max(1, count.parameters), self.tied, tied, value_bytes)
        return Layer(
            name=self.name,
            num_parameters=count.parameters,
            forward_flops=count.flops,
            backward_flops=2 * count.flops + count.recomputed_flops - unneeded,
            output_bytes=self.sent * value_bytes,
            activation_bytes=(count.split + count.whole) * value_bytes
            + count.fp32 * BYTES_PER_FP32
            + count.split_bytes
            + count.whole_bytes,
            replicated_activation_bytes=count.whole * value_bytes + count.whole_bytes,
            tensor_bytes=self.num_allreduces * self.reduced * value_bytes,
            num_tensor_allreduces=self.num_allreduces,
            tied_to=0 if self.tied else None,
            tied_parameters=self.tied,
            frozen=frozen,
        )
