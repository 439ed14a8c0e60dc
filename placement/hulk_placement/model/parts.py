"""The parts of a transformer's layers: each holds its dimensions and counts what it holds, computes and keeps.

Counted are the trained values, the matrix products (a multiply-add is two operations: Kaplan et al. 2020, arXiv
2001.08361, section 2.1) and the values that PyTorch keeps for the backward pass, each operation keeping what its
gradient needs (Korthikanti et al. 2022, arXiv 2205.05198, section 4). Without dropout, which `Kept` adds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Weight:
    """Trained values by the part that they have, and the FLOPs of the products with them in a forward pass.

    A `part` that begins with a dot is of the block that it is in (".q.weight"); families have names of their own for
    it. `num_parameters` is 0 of a matrix that another layer holds.
    """

    part: str
    num_parameters: int
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """What parts hold, compute and keep for one sequence.

    `flops`: of the forward pass; the backward pass is twice that and `recomputed_flops`. Kept for it: `split` values,
    of which tensor-parallel ranks keep a part each, `whole` values, which each of them keeps, both in the precision of
    training, `fp32` values, split too, in four bytes whatever the precision, and of what no precision changes, such as
    dropout's masks, `split_bytes` and `whole_bytes`.
    """

    weights: tuple[Weight, ...] = ()
    flops: int = 0
    recomputed_flops: int = 0
    split: int = 0
    whole: int = 0
    fp32: int = 0
    split_bytes: int = 0
    whole_bytes: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Count)))

    @property
    def parameters(self) -> int:
        """Trained values of all parts."""
        return sum(weight.num_parameters for weight in self.weights)

    def under(self, part: str) -> Count:
        """The same of parts within another one."""
        return replace(self, weights=tuple(replace(weight, part=part + weight.part) for weight in self.weights))

    def repeated(self, num_held: int, num_used: int) -> Count:
        """So many parts alike, of which so many compute."""
        weights = (
            replace(w, num_parameters=num_held * w.num_parameters, flops=num_used * w.flops) for w in self.weights
        )
        amounts = (num_used * getattr(self, field.name) for field in fields(Count) if field.name != "weights")
        return Count(tuple(weights), *amounts)


def linear(tokens: int, rows: int, columns: int, bias: bool = False, part: str = "") -> Count:
    """A matrix product: `rows` values of each token become `columns`."""
    flops = 2 * tokens * rows * columns
    weight = Weight(f"{part}.weight", rows * columns, flops)
    return Count((weight, Weight(f"{part}.bias", columns)) if bias else (weight,), flops)


def scores(tokens: int, source_tokens: int, heads: int, key_dim: int, value_dim: int, is_kept: bool) -> Count:
    """Attention's two products, of queries with keys and of their softmax with values, over the whole square.

    Kernels that skip what a causal mask hides compute half of it. Kept whole, the softmax takes four bytes a score
    (autocast computes it so). A fused kernel (Dao et al. 2022, arXiv 2205.14135) keeps one number a query and
    computes the scores again in the backward pass: five products against the forward pass's two.
    """
    square = tokens * source_tokens * heads
    flops = 2 * square * (key_dim + value_dim)
    if is_kept:
        return Count(flops=flops, fp32=square)
    return Count(flops=flops, recomputed_flops=2 * square * key_dim, fp32=tokens * heads)


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation with `scales` trained values a channel that keeps `kept` values: the last is its output."""

    scales: int
    kept: int

    def count(self, tokens: int, width: int, part: str = "", *, is_output_kept: bool = True) -> Count:
        """The norm over rows of `width` values; its output is kept by the product that follows it, if one does."""
        return Count(self._weights(width, part), whole=(self.kept - (not is_output_kept)) * tokens * width)

    def count_heads(self, tokens: int, heads: int, head_dim: int, part: str, *, is_whole: bool = False) -> Count:
        """The norm of each head of queries or keys, or of all together; its output is counted with the attention."""
        width = heads * head_dim
        return Count(self._weights(width if is_whole else head_dim, part), split=(self.kept - 1) * tokens * width)

    def _weights(self, width: int, part: str) -> tuple[Weight, ...]:
        return tuple(Weight(f"{part}.{name}", width) for name in ("weight", "bias")[: self.scales])


LAYER_NORM = Norm(scales=2, kept=2)
SCALED_NORM = Norm(scales=1, kept=2)
"""A LayerNorm without biases."""
PLAIN_NORM = Norm(scales=0, kept=2)
RMS_NORM = Norm(scales=1, kept=3)
"""Input, normalised input and output: as many as torch keeps where it has no fused kernel for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head attention; fewer key-value heads than heads are grouped queries (Ainslie et al. 2023).

    `bias`: of queries, keys and values. `norm`: of each head's queries and keys, or with `is_norm_whole` of all heads'
    together. `bias_table`: rows of a table of trained relative-position biases, a column a head (T5). `has_sinks`: a
    trained score a head that every query has beside those of the keys (gpt-oss).
    """

    heads: int
    key_value_heads: int
    head_dim: int
    bias: bool = False
    output_bias: bool = False
    norm: Norm | None = None
    is_norm_whole: bool = False
    bias_table: int = 0
    has_sinks: bool = False
    keeps_scores: bool = False

    def __post_init__(self) -> None:
        if min(self.heads, self.key_value_heads, self.head_dim) < 1 or self.heads % self.key_value_heads:
            raise ValueError(
                f"attention: {self.heads} heads of {self.head_dim} values must be >= 1 and a multiple of "
                f"{self.key_value_heads} key-value heads"
            )

    def count(self, hidden: int, tokens: int, source_tokens: int | None = None) -> Count:
        """Over `source_tokens` of another sequence (cross-attention), else over the tokens themselves.

        Values kept beside the scores, with q = heads x head_dim and k = key-value heads x head_dim: queries and output
        q a token, keys and values k a source token.
        """
        source = tokens if source_tokens is None else source_tokens
        q, k = self.heads * self.head_dim, self.key_value_heads * self.head_dim
        count = linear(tokens, hidden, q, self.bias, ".q") + linear(tokens, q, hidden, self.output_bias, ".o")
        count += linear(source, hidden, k, self.bias, ".k") + linear(source, hidden, k, self.bias, ".v")
        count += scores(tokens, source, self.heads, self.head_dim, self.head_dim, self.keeps_scores)
        if self.norm is not None:
            whole = self.is_norm_whole
            count += self.norm.count_heads(tokens, self.heads, self.head_dim, ".q_norm", is_whole=whole)
            count += self.norm.count_heads(source, self.key_value_heads, self.head_dim, ".k_norm", is_whole=whole)
        tables = (
            Weight(".bias_table.weight", self.bias_table * self.heads),
            Weight(".sinks", self.has_sinks * self.heads),
        )
        return count + Count(tables, split=2 * tokens * q + 2 * source * k)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Attention whose keys and values, and queries if `query_rank` > 0, come from short latent vectors.

    DeepSeek-AI 2024, arXiv 2405.04434, section 2.1. `rotary_dim` of a head's values carry its position; of keys they
    are shared by all heads.
    """

    heads: int
    query_rank: int
    key_value_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    norm: Norm
    bias: bool = False
    keeps_scores: bool = False

    def count(self, hidden: int, tokens: int, source_tokens: int | None = None) -> Count:
        """Over the tokens themselves. Kept beside the scores: latents, queries, keys, values and output.

        The values are a view of the product that holds the plain part of the keys too, which stays with them.
        """
        source = tokens if source_tokens is None else source_tokens
        key_dim, rank = self.plain_dim + self.rotary_dim, self.key_value_rank
        q, v = self.heads * key_dim, self.heads * self.value_dim
        count = linear(source, hidden, rank + self.rotary_dim, self.bias, ".kv_a")
        count += self.norm.count(source, rank, ".kv_norm")
        count += linear(source, rank, self.heads * (self.plain_dim + self.value_dim), part=".kv_b")
        if self.query_rank:
            count += linear(tokens, hidden, self.query_rank, self.bias, ".q_a")
            count += self.norm.count(tokens, self.query_rank, ".q_norm")
        count += linear(tokens, self.query_rank or hidden, q, part=".q") + linear(tokens, v, hidden, self.bias, ".o")
        count += scores(tokens, source, self.heads, key_dim, self.value_dim, self.keeps_scores)
        return count + Count(split=tokens * (q + v) + source * (q + v + self.heads * self.plain_dim))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """The MLP: two products with an activation function between, or three where it is gated (Shazeer 2020, 2002.05202).

    `function_values`: how many values of each that it gets the activation function keeps beside its output.
    """

    width: int
    is_gated: bool = False
    bias: bool = False
    function_values: int = 1

    def count(self, hidden: int, tokens: int) -> Count:
        """Kept, in widths a token: the function's values and output; if gated, the other factor and the product too."""
        products = linear(tokens, hidden, self.width, self.bias, ".up")
        products += linear(tokens, self.width, hidden, self.bias, ".down")
        if self.is_gated:
            products += linear(tokens, hidden, self.width, self.bias, ".gate")
        kept = 1 + self.function_values + 2 * self.is_gated
        return products + Count(split=kept * tokens * self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of gated MLPs of which a router chooses `per_token` for each token; no token is dropped.

    All are held in memory, only those chosen compute (Jiang et al. 2024, arXiv 2401.04088). `shared_width`: an MLP
    that takes every token beside them, weighted by a gate of its own where `has_shared_gate`. `bias`: of router and
    experts.
    """

    num_experts: int
    per_token: int
    width: int
    shared_width: int = 0
    has_shared_gate: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.per_token <= self.num_experts:
            raise ValueError(f"experts: {self.per_token} for each token of {self.num_experts} in all")

    def count(self, hidden: int, tokens: int) -> Count:
        """Kept beside the MLPs' own values: the router's softmax, and of each expert its input and its output.

        The input is a copy of the expert's tokens; the output is kept by the product with the router's weight.
        """
        expert = FeedForward(width=self.width, is_gated=True, bias=self.bias).count(hidden, tokens)
        routed = expert.under(".experts").repeated(self.num_experts, self.per_token)
        routed += Count(whole=2 * self.per_token * tokens * hidden, fp32=tokens * self.num_experts)
        return (
            linear(tokens, hidden, self.num_experts, self.bias, ".router") + routed + self._count_shared(hidden, tokens)
        )

    def _count_shared(self, hidden: int, tokens: int) -> Count:
        if not self.shared_width:
            return Count()
        count = FeedForward(width=self.shared_width, is_gated=True).count(hidden, tokens).under(".shared")
        if not self.has_shared_gate:
            return count
        return count + linear(tokens, hidden, 1, part=".shared_gate") + Count(whole=tokens * (hidden + 1))
