"""GPT-2 and the decoders that keep its LayerNorm, biases and two-matrix MLP."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.model.architecture import Architecture, Block, Embedding, Head, Names
from hulk_placement.model.families import names
from hulk_placement.model.families.keys import Keys
from hulk_placement.model.parts import LAYER_NORM, PLAIN_NORM, Attention, FeedForward


def gpt2(keys: Keys, key_value_heads: int | None = None) -> Architecture:
    """GPT-2, and what is spelled like it: learned positions, unless there is a `rotary_dim`."""
    keys.refuse("add_cross_attention", "cross-attention without an encoder is not counted")
    if key_value_heads is None:
        keys.refuse("multi_query", "one key and value for all heads is not counted in a decoder spelled like GPT-2")
    hidden = keys.size("n_embd", "hidden_size")
    positions = keys.size("n_positions", "n_ctx", "max_position_embeddings")
    width = keys.size("n_inner", "intermediate_size", default=4 * hidden)
    mlp = FeedForward(width=width, bias=True, function_values=keys.function_values("activation_function"))
    heads = attention(keys, hidden, "n_head", "num_attention_heads")
    heads = heads if key_value_heads is None else replace(heads, key_value_heads=key_value_heads)
    block = Block(attention=heads, mlp=mlp, norm=LAYER_NORM)
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(positions),
        names=names.GPT2,
        decoder=(block,) * keys.layers("n_layer", "num_hidden_layers"),
        embedding=Embedding(positions=0 if keys.has("rotary_dim") else positions),
        head=Head(norm=LAYER_NORM, matrix="tied" if keys.flag("tie_word_embeddings", True) else "own"),
    )


def gpt_bigcode(keys: Keys) -> Architecture:
    """StarCoder and SantaCoder: GPT-2 with one key and value for all heads, if `multi_query` says nothing else."""
    return gpt2(keys, 1 if keys.flag("multi_query", True) else None)


def opt(keys: Keys) -> Architecture:
    """OPT (Zhang et al. 2022, arXiv 2205.01068): ReLU, two positions more than tokens; OPT-350M has post-norm."""
    hidden, positions = keys.size("hidden_size"), keys.size("max_position_embeddings")
    bias = keys.flag("enable_bias", True)
    norm = LAYER_NORM if keys.flag("layer_norm_elementwise_affine", True) else PLAIN_NORM
    values = keys.function_values("activation_function", default="relu")
    mlp = FeedForward(width=keys.size("ffn_dim"), bias=bias, function_values=values)
    block = Block(attention=attention(keys, hidden, "num_attention_heads", bias=bias), mlp=mlp, norm=norm)
    has_last_norm = keys.flag("do_layer_norm_before", True) and not keys.flag("_remove_final_layer_norm", False)
    is_tied = keys.flag("tie_word_embeddings", True)
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(positions),
        names=names.OPT,
        decoder=(block,) * keys.layers("num_hidden_layers"),
        embedding=Embedding(width=keys.size("word_embed_proj_dim", default=hidden), positions=positions + 2),
        head=Head(norm=norm if has_last_norm else None, matrix="tied" if is_tied else "own"),
    )


def rotary(
    keys: Keys,
    *,
    is_parallel: bool = False,
    is_gated: bool = False,
    is_tied: bool = False,
    has_head_bias: bool = False,
    called: Names = names.LLAMA,
) -> Architecture:
    """Decoders with rotary positions: Phi, GPT-NeoX, and others with LayerNorm."""
    hidden, bias = keys.size("hidden_size"), keys.flag("use_bias", not is_gated)
    asked = keys.flag("attention_bias", bias)
    mlp = FeedForward(
        width=keys.size("intermediate_size"),
        is_gated=is_gated,
        bias=bias,
        function_values=keys.function_values("hidden_act", "hidden_activation"),
    )
    block = Block(
        attention=attention(keys, hidden, "num_attention_heads", bias=asked),
        mlp=mlp,
        norm=LAYER_NORM,
        is_parallel=is_parallel,
    )
    is_tied = keys.flag("tie_word_embeddings", is_tied)
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("max_position_embeddings")),
        names=called,
        decoder=(block,) * keys.layers("num_hidden_layers"),
        head=Head(norm=LAYER_NORM, matrix="tied" if is_tied else "own", bias=has_head_bias),
    )


def attention(keys: Keys, hidden: int, *names: str, bias: bool = True) -> Attention:
    """Multi-head attention with as many heads as one of the names says."""
    heads, head_dim = keys.heads(*names, hidden=hidden)
    return Attention(
        heads=heads,
        key_value_heads=keys.key_value_heads(heads, heads),
        head_dim=head_dim,
        bias=bias,
        output_bias=bias,
        norm=LAYER_NORM if keys.flag("qk_layernorm", False) else None,
        keeps_scores=keys.keeps_scores(),
    )
