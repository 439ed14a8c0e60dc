"""BERT and its kin, and T5 with encoder and decoder."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.model.architecture import Architecture, Block, Embedding, Head, Names
from hulk_placement.model.families.keys import FUNCTION_VALUES, Keys
from hulk_placement.model.families.layer_normed import attention
from hulk_placement.model.parts import LAYER_NORM, RMS_NORM, Attention, FeedForward

T5_NAMES = Names(
    embedding="shared",
    encoder="encoder.block",
    encoder_norm="encoder.final_layer_norm",
    decoder_embedding="decoder.embed_tokens",
    decoder="decoder.block",
    head="lm_head",
)


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
    headless, masked = Head(matrix="none", has_pooler=True), Head(matrix="tied", bias=True, transform=LAYER_NORM)
    prefix, head_name = ("", "pooler") if is_headless else (prefix, head_name)
    return Architecture(
        hidden=keys.size("hidden_size"),
        vocabulary=keys.size("vocab_size"),
        sequence_length=keys.sequence_length(num_tokens),
        names=Names(embedding=f"{prefix}embeddings", encoder=f"{prefix}encoder.layer", head=head_name),
        encoder=(_bert_block(keys),) * keys.layers("num_hidden_layers"),
        embedding=Embedding(
            positions=keys.size("max_position_embeddings"),
            token_types=keys.size("type_vocab_size", default=2),
            norm=LAYER_NORM,
        ),
        head=headless if is_headless else masked,
    )


def _bert_block(keys: Keys) -> Block:
    values = keys.function_values("hidden_act")
    return Block(
        attention=attention(keys, keys.size("hidden_size"), "num_attention_heads"),
        mlp=FeedForward(width=keys.size("intermediate_size"), bias=True, function_values=values),
        norm=LAYER_NORM,
    )


def t5(keys: Keys) -> Architecture:
    """T5 (Raffel et al. 2020, arXiv 1910.10683) and its successors with a gated MLP and a head of their own.

    Positions are relative and have no bound: the tokens of a sequence are `sequence_length`, else `n_positions`.
    """
    table = keys.size("relative_attention_num_buckets", default=32)
    num_encoders = keys.layers("num_layers")
    length = keys.size("sequence_length" if keys.has("sequence_length") else "n_positions")
    return Architecture(
        hidden=keys.size("d_model"),
        vocabulary=keys.size("vocab_size"),
        sequence_length=length,
        target_length=keys.size("target_length", default=length),
        names=T5_NAMES,
        encoder=_t5_stack(_t5_block(keys, has_cross=False), num_encoders, table),
        decoder=_t5_stack(
            _t5_block(keys, has_cross=True), keys.layers("num_decoder_layers", default=num_encoders), table
        ),
        head=Head(norm=RMS_NORM, matrix="tied" if keys.flag("tie_word_embeddings", True) else "own"),
    )


def _t5_stack(block: Block, num_layers: int, table: int) -> tuple[Block, ...]:
    """The first block owns the table of position biases that all use."""
    assert isinstance(block.attention, Attention)
    first = replace(block, attention=replace(block.attention, bias_table=table))
    return (first,) + (block,) * (num_layers - 1)


def _t5_block(keys: Keys, has_cross: bool) -> Block:
    hidden, heads = keys.size("d_model"), keys.size("num_heads")
    head_dim = keys.size("d_kv", default=max(1, hidden // heads))
    cross = Attention(heads=heads, key_value_heads=heads, head_dim=head_dim, keeps_scores=keys.keeps_scores())
    biased = replace(cross, keeps_scores=True)
    return Block(attention=biased, mlp=_t5_mlp(keys), norm=RMS_NORM, cross=cross if has_cross else None)


def _t5_mlp(keys: Keys) -> FeedForward:
    asked = keys.text("feed_forward_proj", default="relu")
    gate, _, function = asked.rpartition("-")
    if gate not in ("", "gated"):
        raise ValueError(f"config.json: feed_forward_proj {asked}: known are a function's name and gated- before it")
    tanh = "gelu_new" if asked == "gated-gelu" else function  # as transformers reads it
    return FeedForward(width=keys.size("d_ff"), is_gated=gate == "gated", function_values=FUNCTION_VALUES.get(tanh, 1))
