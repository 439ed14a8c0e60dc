"""Falcon, BLOOM, MPT and GPT-J: LayerNorm and two-matrix MLPs, each with keys of its own."""

from __future__ import annotations

from hulk_placement.model.architecture import Architecture, Block, Embedding, Head
from hulk_placement.model.families import names
from hulk_placement.model.families.keys import Keys
from hulk_placement.model.parts import LAYER_NORM, SCALED_NORM, Attention, FeedForward

FALCON_POSITIONS = 2048
"""Of published configs, which leave the key out."""


def falcon(keys: Keys) -> Architecture:
    """Falcon (Almazrouei et al. 2023, arXiv 2311.16867): one key and value for all heads, or groups since 40B."""
    hidden, bias = keys.size("hidden_size", "n_embed"), keys.flag("bias", False)
    heads, head_dim = keys.heads("num_attention_heads", "n_head", hidden=hidden)
    is_newer = keys.flag("new_decoder_architecture", False)
    grouped = keys.size("num_kv_heads", "n_head_kv", default=heads)
    alone = 1 if keys.flag("multi_query", True) else heads
    is_parallel = is_newer or keys.flag("parallel_attn", True)
    attention = Attention(
        heads=heads,
        key_value_heads=grouped if is_newer else alone,
        head_dim=head_dim,
        bias=bias,
        output_bias=bias,
        keeps_scores=keys.keeps_scores(),
    )
    block = Block(
        attention=attention,
        mlp=FeedForward(
            width=keys.size("ffn_hidden_size", default=4 * hidden),
            bias=bias,
            function_values=keys.function_values("activation"),
        ),
        norm=LAYER_NORM,
        is_parallel=is_parallel,
        num_norms=keys.size("num_ln_in_parallel_attn", default=2) if is_newer else 0,
    )
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("max_position_embeddings", default=FALCON_POSITIONS)),
        names=names.FALCON,
        decoder=(block,) * keys.layers("num_hidden_layers", "n_layer"),
        head=Head(norm=LAYER_NORM, matrix="tied" if keys.flag("tie_word_embeddings", True) else "own"),
    )


def bloom(keys: Keys) -> Architecture:
    """BLOOM (BigScience 2022, arXiv 2211.05100): a norm behind the embedding, and no positions in it."""
    hidden = keys.size("hidden_size", "n_embed")
    heads, head_dim = keys.heads("n_head", "num_attention_heads", hidden=hidden)
    attention = Attention(
        heads=heads,
        key_value_heads=heads,
        head_dim=head_dim,
        bias=True,
        output_bias=True,
        keeps_scores=keys.keeps_scores(),
    )
    block = Block(attention=attention, mlp=FeedForward(width=4 * hidden, bias=True), norm=LAYER_NORM)
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("seq_length", default=2048)),
        names=names.BLOOM,
        decoder=(block,) * keys.layers("n_layer", "num_hidden_layers"),
        embedding=Embedding(norm=LAYER_NORM),
        head=Head(norm=LAYER_NORM, matrix="tied" if keys.flag("tie_word_embeddings", True) else "own"),
    )


def mpt(keys: Keys) -> Architecture:
    """MPT: no biases and no positions, as transformers has it; groups of queries are not counted."""
    hidden, bias = keys.size("d_model"), not keys.flag("no_bias", True)
    heads, head_dim = keys.heads("n_heads", hidden=hidden)
    attention = Attention(
        heads=heads,
        key_value_heads=heads,
        head_dim=head_dim,
        bias=bias,
        output_bias=bias,
        keeps_scores=keys.keeps_scores(),
    )
    mlp = FeedForward(width=keys.size("expansion_ratio", default=4) * hidden, bias=bias)
    block = Block(attention=attention, mlp=mlp, norm=LAYER_NORM if bias else SCALED_NORM)
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("max_seq_len")),
        names=names.MPT,
        decoder=(block,) * keys.layers("n_layers"),
        head=Head(norm=block.norm, matrix="tied" if keys.flag("tie_word_embeddings", True) else "own"),
    )


def gptj(keys: Keys) -> Architecture:
    """GPT-J and CodeGen: attention without biases beside an MLP with them, behind one norm; a head with a bias."""
    hidden = keys.size("n_embd")
    heads, head_dim = keys.heads("n_head", hidden=hidden)
    block = Block(
        attention=Attention(heads=heads, key_value_heads=heads, head_dim=head_dim, keeps_scores=keys.keeps_scores()),
        mlp=FeedForward(
            width=keys.size("n_inner", default=4 * hidden),
            bias=True,
            function_values=keys.function_values("activation_function", default="gelu_new"),
        ),
        norm=LAYER_NORM,
        is_parallel=True,
    )
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(keys.size("n_positions", "n_ctx")),
        names=names.GPTJ,
        decoder=(block,) * keys.layers("n_layer"),
        head=Head(norm=LAYER_NORM, matrix="own", bias=True),
    )
