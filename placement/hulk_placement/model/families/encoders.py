"""BERT and its kin, and T5 with encoder and decoder."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.model.architecture import Architecture, Block, Embedding, Head, Names
from hulk_placement.model.families.keys import FUNCTION_VALUES, Keys
from hulk_placement.model.parts import LAYER_NORM, RMS_NORM, Attention, FeedForward


def bert(keys: Keys) -> Architecture:
    """BERT (Devlin et al. 2019, arXiv 1810.04805)."""
    return _encoder(keys, keys.size("max_position_embeddings"), "bert.", "cls.predictions")


def roberta(keys: Keys) -> Architecture:
    """RoBERTa, whose positions begin behind that of the padding token."""
    unused = keys.size("pad_token_id", default=1, least=0) + 1
    return _encoder(keys, keys.size("max_position_embeddings") - unused, "roberta.", "lm_head")


def _encoder(keys: Keys, num_tokens: int, prefix: str, head_name: str) -> Architecture:
    """With the head for masked words, or with a pooler as in the model without a head, as `architectures` says."""
    model_class = keys.model_class()
    is_headless = model_class in ("", "BertModel", "RobertaModel", "XLMRobertaModel")
    if not is_headless and not model_class.endswith("ForMaskedLM"):
        raise ValueError(f"config.json: architectures {model_class}: only models for masked words, or without a head")
    hidden = keys.size("hidden_size")
    heads, head_dim = keys.heads("num_attention_heads", hidden=hidden)
    attention = Attention(
        heads=heads,
        key_value_heads=heads,
        head_dim=head_dim,
        bias=True,
        output_bias=True,
        keeps_scores=keys.keeps_scores(),
    )
    values = keys.function_values("hidden_act")
    mlp = FeedForward(width=keys.size("intermediate_size"), bias=True, function_values=values)
    positions, types = keys.size("max_position_embeddings"), keys.size("type_vocab_size", default=2)
    masked = Head(matrix="tied", bias=True, transform=LAYER_NORM)
    prefix = "" if is_headless else prefix
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(num_tokens),
        names=Names(
            embedding=f"{prefix}embeddings",
            encoder=f"{prefix}encoder.layer",
            head="pooler" if is_headless else head_name,
        ),
        encoder=(Block(attention=attention, mlp=mlp, norm=LAYER_NORM),) * keys.layers("num_hidden_layers"),
        embedding=Embedding(positions=positions, token_types=types, norm=LAYER_NORM),
        head=Head(matrix="none", has_pooler=True) if is_headless else masked,
    )


def t5(keys: Keys) -> Architecture:
    """T5 (Raffel et al. 2020, arXiv 1910.10683) and its successors with a gated MLP and a head of their own.

    Positions are relative and have no bound: the tokens of a sequence are `sequence_length`, else `n_positions`.
    """
    hidden, heads = keys.size("d_model"), keys.size("num_heads")
    head_dim = keys.size("d_kv", default=max(1, hidden // heads))
    cross = Attention(heads=heads, key_value_heads=heads, head_dim=head_dim, keeps_scores=keys.keeps_scores())
    attention = replace(cross, keeps_scores=True)
    with_table = replace(attention, bias_table=keys.size("relative_attention_num_buckets", default=32))
    block = Block(attention=attention, mlp=_t5_mlp(keys), norm=RMS_NORM)
    crossing = replace(block, cross=cross)
    num_encoders = keys.layers("num_layers")
    num_decoders = keys.layers("num_decoder_layers", default=num_encoders)
    length = keys.size("sequence_length" if keys.has("sequence_length") else "n_positions")
    return Architecture(
        hidden=hidden,
        vocabulary=keys.size("vocab_size"),
        sequence_length=length,
        target_length=keys.size("target_length", default=length),
        names=Names(
            embedding="shared",
            encoder="encoder.block",
            encoder_norm="encoder.final_layer_norm",
            decoder_embedding="decoder.embed_tokens",
            decoder="decoder.block",
            head="lm_head",
        ),
        encoder=(replace(block, attention=with_table),) + (block,) * (num_encoders - 1),
        decoder=(replace(crossing, attention=with_table),) + (crossing,) * (num_decoders - 1),
        head=Head(norm=RMS_NORM, matrix="tied" if keys.flag("tie_word_embeddings", True) else "own"),
    )


def _t5_mlp(keys: Keys) -> FeedForward:
    asked = keys.text("feed_forward_proj", default="relu")
    gate, _, function = asked.rpartition("-")
    if gate not in ("", "gated"):
        raise ValueError(f"config.json: feed_forward_proj {asked}: known are a function's name and gated- before it")
    tanh = "gelu_new" if asked == "gated-gelu" else function  # as transformers reads it
    return FeedForward(width=keys.size("d_ff"), is_gated=gate == "gated", function_values=FUNCTION_VALUES.get(tanh, 1))
