"""LLaMA and the decoders that keep its blocks: rotary positions, a gated MLP, or experts in the MLP's place."""

from __future__ import annotations

from dataclasses import dataclass

from hulk_placement.model.architecture import Architecture, Block, Head, Names
from hulk_placement.model.families import names
from hulk_placement.model.families.keys import Keys
from hulk_placement.model.parts import RMS_NORM, Attention, Experts, FeedForward, LatentAttention, Norm

NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What a family has where no key says otherwise.

    `qkv_bias` and `output_bias` (None: as `attention_bias` says): of the attention's products. `head_norms`: of queries
    and keys, each head alone ("head") or all together ("whole"); the key `head_norms_key`, where a family has one, says
    whether there are any. `dense_width`: the key of the width of MLPs beside experts.
    """

    norm: Norm = RMS_NORM
    qkv_bias: bool = False
    output_bias: bool | None = None
    head_norms: str = ""
    head_norms_key: str = ""
    has_branch_norms: bool = False
    has_sinks: bool = False
    is_parallel: bool = False
    is_tied: bool = False
    is_gated: bool = True
    key_value_heads: int | None = None
    dense_width: str = "intermediate_size"
    num_shared_experts: int = 0
    has_experts_bias: bool = False


def llama(keys: Keys, style: Style = Style()) -> Architecture:
    """With grouped queries."""
    hidden, bias = keys.size("hidden_size"), keys.flag("attention_bias", False)
    heads, head_dim = keys.heads("num_attention_heads", hidden=hidden)
    has_norms = bool(style.head_norms) and (not style.head_norms_key or keys.flag(style.head_norms_key, False))
    attention = Attention(
        heads=heads,
        key_value_heads=keys.key_value_heads(heads, style.key_value_heads or heads),
        head_dim=head_dim,
        bias=bias or keys.flag("qkv_bias", style.qkv_bias),
        output_bias=keys.flag("attention_out_bias", bias if style.output_bias is None else style.output_bias),
        norm=style.norm if has_norms else None,
        is_norm_whole=has_norms and style.head_norms == "whole",
        has_sinks=style.has_sinks,
        keeps_scores=keys.keeps_scores(),
    )
    return _around(keys, attention, style, names.LLAMA)


def deepseek(keys: Keys) -> Architecture:
    """DeepSeek-V2 and V3: attention over latent vectors. The layers that V3 adds to predict further are not counted."""
    attention = LatentAttention(
        heads=keys.size("num_attention_heads"),
        query_rank=keys.size("q_lora_rank", default=0),
        key_value_rank=keys.size("kv_lora_rank"),
        plain_dim=keys.size("qk_nope_head_dim"),
        rotary_dim=keys.size("qk_rope_head_dim"),
        value_dim=keys.size("v_head_dim"),
        norm=RMS_NORM,
        bias=keys.flag("attention_bias", False),
        keeps_scores=keys.keeps_scores(),
    )
    return _around(keys, attention, Style(), names.DEEPSEEK)


def _around(keys: Keys, attention: Attention | LatentAttention, style: Style, called: Names) -> Architecture:
    mlps = [_mlp(keys, number, style) for number in range(keys.layers("num_hidden_layers"))]
    return Architecture(
        hidden=keys.size("hidden_size"),
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("max_position_embeddings")),
        names=called,
        decoder=tuple(
            Block(
                attention=attention,
                mlp=mlp,
                norm=style.norm,
                has_branch_norms=style.has_branch_norms,
                is_parallel=style.is_parallel,
            )
            for mlp in mlps
        ),
        head=Head(
            norm=style.norm,
            matrix="tied" if keys.flag("tie_word_embeddings", style.is_tied) else "own",
            bias=keys.flag("lm_head_bias", False),
        ),
    )


def _mlp(keys: Keys, number: int, style: Style) -> FeedForward | Experts:
    """The MLP of one layer: experts, where there are some and the keys do not keep this layer dense."""
    kinds, sparse = keys.texts("mlp_layer_types"), keys.numbers("moe_layers")
    is_dense = (
        not keys.has(*NUM_EXPERTS)
        or kinds[number : number + 1] == ("dense",)
        or (bool(sparse) and number not in sparse)
        or number in keys.numbers("mlp_only_layers")
        or number < keys.size("first_k_dense_replace", default=0, least=0)
        or (number + 1) % keys.size("decoder_sparse_step", "interleave_moe_layer_step", default=1) != 0
    )
    if not is_dense:
        return _experts(keys, style)
    return FeedForward(
        width=keys.size(style.dense_width),
        is_gated=style.is_gated,
        bias=keys.flag("mlp_bias", False),
        function_values=keys.function_values("hidden_activation", "hidden_act"),
    )


def _experts(keys: Keys, style: Style) -> Experts:
    num_experts, per_token = keys.size(*NUM_EXPERTS), keys.size("num_experts_per_tok")
    if per_token > num_experts:
        raise ValueError(f"config.json: num_experts_per_tok {per_token} of {num_experts} experts")
    width = keys.size("moe_intermediate_size" if keys.has("moe_intermediate_size") else "intermediate_size")
    shared = keys.size("n_shared_experts", default=style.num_shared_experts, least=0) * width
    return Experts(
        num_experts=num_experts,
        per_token=per_token,
        width=width,
        shared_width=keys.size("shared_expert_intermediate_size", default=shared, least=0),
        has_shared_gate=keys.has("shared_expert_intermediate_size"),
        bias=style.has_experts_bias,
    )
