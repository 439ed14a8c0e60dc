"""LLaMA and the decoders that keep its RMSNorm, rotary positions and gated MLP, or experts in the MLP's place."""

from __future__ import annotations

from hulk_placement.model.architecture import Architecture, Block, Head, Names
from hulk_placement.model.families.keys import Keys
from hulk_placement.model.parts import RMS_NORM, Attention, Experts, FeedForward, LatentAttention

NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def llama(
    keys: Keys,
    *,
    qkv_bias: bool = False,
    has_head_norms: bool = False,
    has_branch_norms: bool = False,
    is_tied: bool = False,
    key_value_heads: int | None = None,
) -> Architecture:
    """With grouped queries. The options are what a family has where no key says otherwise."""
    hidden, bias = keys.size("hidden_size"), keys.flag("attention_bias", False)
    heads, head_dim = keys.heads("num_attention_heads", hidden=hidden)
    attention = Attention(
        heads=heads,
        key_value_heads=keys.key_value_heads(heads, key_value_heads or heads),
        head_dim=head_dim,
        bias=bias or keys.flag("qkv_bias", qkv_bias),
        output_bias=bias,
        norm=RMS_NORM if has_head_norms else None,
        keeps_scores=keys.keeps_scores(),
    )
    return _around(keys, attention, has_branch_norms, is_tied)


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
    return _around(keys, attention)


def _around(
    keys: Keys, attention: Attention | LatentAttention, has_branch_norms: bool = False, is_tied: bool = False
) -> Architecture:
    mlps = [_mlp(keys, number) for number in range(keys.layers("num_hidden_layers"))]
    return Architecture(
        hidden=keys.size("hidden_size"),
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("max_position_embeddings")),
        names=Names(embedding="model.embed_tokens", decoder="model.layers", head="lm_head"),
        decoder=tuple(
            Block(attention=attention, mlp=mlp, norm=RMS_NORM, has_branch_norms=has_branch_norms) for mlp in mlps
        ),
        head=Head(norm=RMS_NORM, matrix="tied" if keys.flag("tie_word_embeddings", is_tied) else "own"),
    )


def _mlp(keys: Keys, number: int) -> FeedForward | Experts:
    """The MLP of one layer: experts, where there are some and the keys do not keep this layer dense."""
    is_dense = (
        not keys.has(*NUM_EXPERTS)
        or number in keys.numbers("mlp_only_layers")
        or number < keys.size("first_k_dense_replace", default=0, least=0)
        or (number + 1) % keys.size("decoder_sparse_step", default=1) != 0
    )
    if not is_dense:
        return _experts(keys)
    return FeedForward(
        width=keys.size("intermediate_size"),
        is_gated=True,
        bias=keys.flag("mlp_bias", False),
        function_values=keys.function_values("hidden_activation", "hidden_act"),
    )


def _experts(keys: Keys) -> Experts:
    num_experts, per_token = keys.size(*NUM_EXPERTS), keys.size("num_experts_per_tok")
    if per_token > num_experts:
        raise ValueError(f"config.json: num_experts_per_tok {per_token} of {num_experts} experts")
    width = keys.size("moe_intermediate_size" if keys.has("moe_intermediate_size") else "intermediate_size")
    shared = keys.size("n_shared_experts", default=0, least=0) * width
    return Experts(
        num_experts=num_experts,
        per_token=per_token,
        width=width,
        shared_width=keys.size("shared_expert_intermediate_size", default=shared, least=0),
        has_shared_gate=keys.has("shared_expert_intermediate_size"),
    )
