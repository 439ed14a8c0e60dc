"""Configs of many families: as many parameters as their authors' weights have, and what is wrong said by its key."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hulk_placement.model import Architecture, Model
from hulk_placement.model.hugging_face import FAMILIES, from_config
from hypothesis import given
from hypothesis import strategies as st


def decoder(family: str, layers: int, hidden: int, heads: int, groups: int, width: int, **more: Any) -> dict[str, Any]:
    """A config with the keys that LLaMA and its successors share."""
    return {
        "model_type": family,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "intermediate_size": width,
        "max_position_embeddings": 2048,
    } | more


GPT_NEOX = {"vocab_size": 50304, "tie_word_embeddings": False, "layer_norm_eps": 1e-5, "hidden_act": "gelu"}
QWEN_MOE = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "vocab_size": 151936}
QWEN3_MOE = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "vocab_size": 151936}
DEEPSEEK = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
}
BERT_BASE = {
    "model_type": "bert",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "vocab_size": 30522,
}
ROBERTA = BERT_BASE | {
    "model_type": "roberta",
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}
OPT = {
    "model_type": "opt",
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
}
T5_SMALL = {
    "model_type": "t5",
    "d_model": 512,
    "d_kv": 64,
    "num_heads": 8,
    "d_ff": 2048,
    "num_layers": 6,
    "n_positions": 512,
    "vocab_size": 32128,
}
T5_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Llama 2 7B": (decoder("llama", 32, 4096, 32, 32, 11008, vocab_size=32000), 6_738_415_616),
    "Llama 3.2 1B": (
        decoder("llama", 16, 2048, 32, 8, 8192, vocab_size=128256, tie_word_embeddings=True),
        1_235_814_400,
    ),
    "Mistral 7B": (decoder("mistral", 32, 4096, 32, 8, 14336, vocab_size=32000), 7_241_732_096),
    "Mixtral 8x7B": (
        decoder("mixtral", 32, 4096, 32, 8, 14336, vocab_size=32000, num_local_experts=8, num_experts_per_tok=2),
        46_702_792_704,
    ),
    "Qwen2 7B": (decoder("qwen2", 28, 3584, 28, 4, 18944, vocab_size=152064), 7_615_616_512),
    "Qwen3 8B": (decoder("qwen3", 36, 4096, 32, 8, 12288, head_dim=128, vocab_size=151936), 8_190_735_360),
    "Qwen1.5 MoE A2.7B": (
        decoder("qwen2_moe", 24, 2048, 16, 16, 5632, shared_expert_intermediate_size=5632, **QWEN_MOE),
        14_315_784_192,
    ),
    "Qwen3 30B A3B": (decoder("qwen3_moe", 48, 2048, 32, 4, 6144, head_dim=128, **QWEN3_MOE), 30_532_122_624),
    "Gemma 2B": (decoder("gemma", 18, 2048, 8, 1, 16384, head_dim=256, vocab_size=256000), 2_506_172_416),
    "Gemma 2 2B": (decoder("gemma2", 26, 2304, 8, 4, 9216, head_dim=256, vocab_size=256000), 2_614_341_888),
    "Gemma 3 1B": (decoder("gemma3_text", 26, 1152, 4, 1, 6912, head_dim=256, vocab_size=262144), 999_885_952),
    "Phi 2": (decoder("phi", 32, 2560, 32, 32, 10240, vocab_size=51200), 2_779_683_840),
    "Phi 3 mini": (decoder("phi3", 32, 3072, 32, 32, 8192, vocab_size=32064), 3_821_079_552),
    "DeepSeek V3": (decoder("deepseek_v3", 61, 7168, 128, 128, 18432, **DEEPSEEK), 671_026_404_352),
    "Pythia 1B": (decoder("gpt_neox", 16, 2048, 8, 8, 8192, **GPT_NEOX), 1_011_781_632),
    "OPT 125M": (OPT, 125_239_296),
    "BERT base": (BERT_BASE, 109_482_240),
    "BERT base, masked words": (BERT_BASE | {"architectures": ["BertForMaskedLM"]}, 109_514_298),
    "RoBERTa base": (ROBERTA, 124_645_632),
    "RoBERTa base, masked words": (ROBERTA | {"architectures": ["RobertaForMaskedLM"]}, 124_697_433),
    "T5 small": (T5_SMALL, 60_506_624),
    "T5 v1.1 small": (T5_SMALL | T5_GATED | {"d_ff": 1024, "num_heads": 6, "num_layers": 8}, 76_961_152),
}


@pytest.mark.parametrize(("config", "expected"), PUBLISHED.values(), ids=PUBLISHED)
def test_parameters_are_those_of_the_published_weights(config: dict[str, Any], expected: int) -> None:
    assert Model.of(from_config(config)).num_parameters == expected


def test_experts_that_are_not_chosen_take_memory_but_no_time() -> None:
    """Mixtral computes with 12.9 of its 46.7 billion parameters; six operations each a token, and attention's own."""
    config, _ = PUBLISHED["Mixtral 8x7B"]
    model, dense = Model.of(from_config(config)), Model.of(from_config(config | {"num_experts_per_tok": 1}))
    one_expert = 3 * 4096 * 14336
    tokens = 2048
    assert model.flops_per_sequence - dense.flops_per_sequence == 6 * tokens * 32 * one_expert
    active = model.num_parameters - 32 * 6 * one_expert - 32000 * 4096  # the embedding is looked up
    scores = 32 * 7 * 2 * tokens**2 * 4096 * 1  # 2 products forward, 5 backward
    norms = (2 * 32 + 1) * 4096
    assert model.flops_per_sequence == 6 * tokens * (active - norms) + scores


def test_experts_may_begin_after_layers_without_any() -> None:
    """As in GLM 4.5 and Kimi K2, whose families are not known; the second is DeepSeek's by its keys."""
    config = decoder("other", 4, 64, 4, 2, 128, vocab_size=100, first_k_dense_replace=1)
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1}
    attention = 2 * 64 * 64 + 2 * 64 * 32
    dense, sparse = 3 * 64 * 128, 64 * 8 + 9 * 3 * 64 * 32
    expected = 2 * 100 * 64 + 4 * (attention + 2 * 64) + dense + 3 * sparse + 64
    assert Model.of(from_config(config | experts)).num_parameters == expected
    latent = decoder("other", 4, 64, 4, 4, 128, **DEEPSEEK)
    assert Model.of(from_config(latent)) == Model.of(from_config(latent | {"model_type": "deepseek_v3"}))


@pytest.mark.parametrize(
    ("name", "first", "block", "last"),
    [
        ("Llama 2 7B", "model.embed_tokens", "model.layers.3", "lm_head"),
        ("OPT 125M", "model.decoder.embed_tokens", "model.decoder.layers.3", "lm_head"),
        ("Pythia 1B", "gpt_neox.embed_in", "gpt_neox.layers.3", "lm_head"),
        ("BERT base", "embeddings", "encoder.layer.3", "pooler"),
        ("BERT base, masked words", "bert.embeddings", "bert.encoder.layer.3", "cls.predictions"),
        ("RoBERTa base, masked words", "roberta.embeddings", "roberta.encoder.layer.3", "lm_head"),
    ],
)
def test_layers_have_the_names_of_the_state_dict(name: str, first: str, block: str, last: str) -> None:
    layers = from_config(PUBLISHED[name][0]).layers("fp32")
    assert (layers[0].name, layers[4].name, layers[-1].name) == (first, block, last)


def test_an_encoders_output_travels_on_to_the_last_decoder_block() -> None:
    layers = from_config(T5_SMALL | {"num_layers": 2, "target_length": 128}).layers("bf16")
    source, target = 2 * 512 * 512, 2 * 128 * 512
    assert [(layer.name, layer.output_bytes) for layer in layers] == [
        ("shared", source),
        ("encoder.block.0", source),
        ("encoder.block.1", source),
        ("encoder.final_layer_norm", source),
        ("decoder.embed_tokens", target + source),
        ("decoder.block.0", target + source),
        ("decoder.block.1", target),
        ("lm_head", 0),
    ]
    assert [layer.tied_to for layer in layers] == [None] * 4 + [0, None, None, 0]
    assert [layer.num_tensor_allreduces for layer in layers] == [1, 2, 2, 0, 1, 3, 3, 0]


def test_a_fused_kernel_keeps_no_scores_and_computes_them_again() -> None:
    config = decoder("llama", 1, 64, 4, 4, 128, vocab_size=100)
    fused, eager = (from_config(config | {"attn_implementation": how}).layers("bf16")[1] for how in ("sdpa", "eager"))
    square = 2048 * 2048 * 4
    assert eager.activation_bytes - fused.activation_bytes == 4 * (square - 2048 * 4)
    assert fused.backward_flops - eager.backward_flops == 2 * square * 16
    assert fused.forward_flops == eager.forward_flops


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (decoder("falcon_h9", 2, 64, 4, 2, 96, vocab_size=100, rms_norm_eps=1e-6), "llama"),
        (decoder("", 2, 64, 4, 2, 96, vocab_size=100), "llama"),
        (decoder("starlike", 2, 64, 4, 2, 96, vocab_size=100, norm_epsilon=1e-5), "gpt_neox"),
        (decoder("moe9", 2, 64, 4, 2, 96, vocab_size=100, num_experts=4, num_experts_per_tok=2), "mixtral"),
        ({"model_type": "gptish", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_ctx": 32, "vocab_size": 100}, "gpt2"),
    ],
)
def test_an_unknown_decoder_is_read_by_the_names_of_its_keys(config: dict[str, Any], expected: str) -> None:
    likened, known = from_config(config), from_config(config | {"model_type": expected})
    assert (likened.decoder, likened.embedding, likened.head) == (known.decoder, known.embedding, known.head)


@pytest.mark.parametrize("family", ["starcoder2", "cohere", "cohere2", "smollm3"])
def test_families_whose_heads_are_tied_where_no_key_says_otherwise(family: str) -> None:
    """Their published files leave the key out."""
    config = decoder(family, 2, 64, 4, 2, 96, vocab_size=100)
    absent, untied = from_config(config), from_config(config | {"tie_word_embeddings": False})
    num_untied, num_absent = (sum(layer.num_parameters for layer in one.layers("fp32")) for one in (untied, absent))
    assert num_untied - num_absent == 100 * 64


def test_mistral_has_eight_key_value_heads_where_no_key_says_otherwise() -> None:
    config = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
    config |= {"model_type": "mistral", "num_attention_heads": 16, "hidden_size": 256}
    assert from_config(config) == from_config(config | {"num_key_value_heads": 8})


def test_a_training_sequence_may_be_shorter_than_the_model_could_take() -> None:
    short = from_config(PUBLISHED["Llama 2 7B"][0] | {"sequence_length": 512})
    assert short.sequence_length == 512
    assert Model.of(short).num_parameters == PUBLISHED["Llama 2 7B"][1]


SMALL = decoder("llama", 2, 64, 4, 2, 96, vocab_size=100)
MIXTURE = SMALL | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
UNKNOWN_EXPERTS = MIXTURE | {"model_type": "another_moe", "moe_layer_freq": 1, "moe_router_scale": "1"}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 100}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "has none of n_embd, hidden_size"),
        ({1: 2, "model_type": "another"}, "has none of"),
        (SMALL | {"vocab_size": None}, "has none of vocab_size"),
        (SMALL | {"num_hidden_layers": 0}, "num_hidden_layers 0: must be a whole number from 1 to 1024"),
        (SMALL | {"num_hidden_layers": 1025}, "num_hidden_layers 1025"),
        (SMALL | {"hidden_size": 64.0}, "hidden_size 64.0: must be a whole number"),
        (SMALL | {"hidden_size": True}, "hidden_size True: must be a whole number"),
        (SMALL | {"vocab_size": "100"}, "vocab_size '100': must be a whole number"),
        (SMALL | {"num_attention_heads": 5}, "hidden 64 is no multiple of 5 heads"),
        (SMALL | {"num_key_value_heads": 3}, "4 heads are no multiple of num_key_value_heads 3"),
        (SMALL | {"tie_word_embeddings": "yes"}, "tie_word_embeddings 'yes': must be true or false"),
        (SMALL | {"sequence_length": 4096}, "sequence_length 4096 is more than 2048 positions"),
        (SMALL | {"hidden_act": 3}, "hidden_act 3: must be a text"),
        (SMALL | {"model_type": 3}, "model_type 3: must be a text"),
        (SMALL | {"text_config": "qwen3"}, "text_config 'qwen3': must be a map of keys"),
        (SMALL | {"text_config": {"hidden_size": 64}}, "has none of"),
        (MIXTURE | {"num_experts_per_tok": 5}, "num_experts_per_tok 5 of 4 experts"),
        (MIXTURE | {"num_experts_per_tok": None}, "has none of num_experts_per_tok"),
        (MIXTURE | {"num_experts": 8}, "num_local_experts 4 and num_experts 8 differ"),
        (MIXTURE | {"mlp_only_layers": "all"}, "mlp_only_layers 'all': must be a list of whole numbers"),
        (GPT2 | {"n_ctx": 16}, "n_positions 32 and n_ctx 16 differ"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention True: cross-attention without an encoder"),
        (BERT_BASE | {"architectures": ["BertForQuestionAnswering"]}, "architectures BertForQuestionAnswering"),
        (BERT_BASE | {"architectures": "BertModel"}, "architectures 'BertModel': must be a list of texts"),
        (BERT_BASE | {"model_type": "deberta", "architectures": ["DebertaForMaskedLM"]}, "model_type 'deberta'"),
        (SMALL | {"model_type": "bart", "is_encoder_decoder": True}, "only decoders are read by the names"),
        (
            UNKNOWN_EXPERTS | {"moe_num_experts": 4},
            "moe_num_experts 4: of experts only num_local_experts, .* are counted",
        ),
        (UNKNOWN_EXPERTS | {"interleave_moe_layer_step": 2}, "interleave_moe_layer_step 2: of experts"),
        (UNKNOWN_EXPERTS | {"moe_layer_freq": 2}, "moe_layer_freq 2: of experts"),
        (SMALL | {"model_type": "jamba", "mamba_d_state": 16}, "mamba_d_state 16: state spaces: not counted"),
        (SMALL | {"model_type": "nemotron", "hidden_act": "relu2"}, "hidden_act 'relu2': .* hardly a gated one"),
        (
            GPT2 | {"model_type": "another", "n_head_kv": 1},
            "n_head_kv 1: a key that is not known, of model_type 'another'",
        ),
        (ROBERTA | {"max_position_embeddings": 2}, "sequence length 0"),
        (T5_SMALL | {"feed_forward_proj": "wide-relu"}, "feed_forward_proj wide-relu"),
        (T5_SMALL | {"n_positions": None}, "has none of n_positions"),
    ],
)
def test_what_is_missing_or_cannot_be_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_config(config)


NAMES = st.sampled_from(sorted({key for config, _ in PUBLISHED.values() for key in config}))
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 40)
    | st.floats()
    | st.text("ab-1", max_size=4)
    | st.lists(st.integers(0, 3), max_size=2)
)


@given(st.sampled_from([*FAMILIES, "other"]), st.lists(st.tuples(NAMES, VALUES), max_size=20).map(dict))
def test_whatever_is_read_is_an_architecture_or_a_value_error(family: str, config: dict[str, Any]) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(from_config(config | {"model_type": family}), Architecture)


@given(st.sampled_from(sorted(PUBLISHED)), st.lists(st.tuples(NAMES, VALUES), max_size=2))
def test_a_damaged_config_is_still_a_model_or_a_value_error(name: str, damage: list[tuple[str, Any]]) -> None:
    with contextlib.suppress(ValueError):
        assert Model.of(from_config(PUBLISHED[name][0] | dict(damage)), "bf16").num_parameters > 0
