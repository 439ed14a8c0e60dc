"""Fifty published models by the figures of their config.json: as many parameters as their weights have.

The totals are those that torch counts of transformers' own models built from the same keys (of models of text and
more: of the language part), and that the authors' weights state where they hold nothing else.
"""

from __future__ import annotations

from typing import Any

import pytest
from hulk_placement.model import Model
from hulk_placement.model.hugging_face import FAMILIES, from_config

COLUMNS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
TIED = {"tie_word_embeddings": True}


def experts(num: int, per_token: int, width: int = 0, **more: Any) -> dict[str, Any]:
    """Of all families but DeepSeek's."""
    widths = {"moe_intermediate_size": width} if width else {}
    return {"num_experts_per_tok": per_token, **widths, **(more or {"num_local_experts": num})}


def routed(num: int, width: int, dense: int, shared: int = 1, per_token: int = 8) -> dict[str, Any]:
    """DeepSeek's experts."""
    return {
        "n_routed_experts": num,
        "num_experts_per_tok": per_token,
        "moe_intermediate_size": width,
        "n_shared_experts": shared,
        "first_k_dense_replace": dense,
    }


def latent(query_rank: int | None) -> dict[str, Any]:
    """DeepSeek's attention."""
    dims = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    return {"q_lora_rank": query_rank, **dims}


PHI_MOE = {"attention_bias": True, "lm_head_bias": True}
QK_NORM = {"use_qk_norm": True, "attention_bias": True}
D128 = {"head_dim": 128}
SCOUT = D128 | {"intermediate_size_mlp": 16384}

# name: family, the columns above, further keys, parameters
ROWS: tuple[tuple[str, str, tuple[int, ...], dict[str, Any], int], ...] = (
    ("Llama 3.1 8B", "llama", (32, 4096, 32, 8, 14336, 128256), {}, 8_030_261_248),
    ("Llama 3.1 70B", "llama", (80, 8192, 64, 8, 28672, 128256), {}, 70_553_706_496),
    ("Llama 3.1 405B", "llama", (126, 16384, 128, 8, 53248, 128256), {}, 405_853_388_800),
    ("Llama 3.2 3B", "llama", (28, 3072, 24, 8, 8192, 128256), TIED, 3_212_749_824),
    ("Llama 4 Scout, text", "llama4_text", (48, 5120, 40, 8, 8192, 202048), SCOUT | experts(16, 1), 107_769_861_120),
    (
        "Llama 4 Maverick, text",
        "llama4_text",
        (48, 5120, 40, 8, 8192, 202048),
        SCOUT | experts(128, 1) | {"interleave_moe_layer_step": 2},
        400_711_848_960,
    ),
    ("Mistral 7B v0.3", "mistral", (32, 4096, 32, 8, 14336, 32768), {}, 7_248_023_552),
    ("Mistral Nemo", "mistral", (40, 5120, 32, 8, 14336, 131072), D128, 12_247_782_400),
    ("Mistral Small 24B", "mistral", (40, 5120, 32, 8, 32768, 131072), D128, 23_572_403_200),
    ("Ministral 8B", "mistral", (36, 4096, 32, 8, 12288, 131072), D128, 8_019_808_256),
    ("Mixtral 8x22B", "mixtral", (56, 6144, 48, 8, 16384, 32000), experts(8, 2), 140_620_634_112),
    ("Qwen2.5 0.5B", "qwen2", (24, 896, 14, 2, 4864, 151936), TIED, 494_032_768),
    ("Qwen2.5 7B", "qwen2", (28, 3584, 28, 4, 18944, 152064), {}, 7_615_616_512),
    ("Qwen2.5 72B", "qwen2", (80, 8192, 64, 8, 29568, 152064), {}, 72_706_203_648),
    ("Qwen3 0.6B", "qwen3", (28, 1024, 16, 8, 3072, 151936), D128 | TIED, 596_049_920),
    ("Qwen3 32B", "qwen3", (64, 5120, 64, 8, 25600, 151936), D128, 32_762_123_264),
    (
        "Qwen3 235B A22B",
        "qwen3_moe",
        (94, 4096, 64, 4, 12288, 151936),
        D128 | experts(0, 8, 1536, num_experts=128),
        235_093_634_560,
    ),
    (
        "Qwen3 Coder 480B A35B",
        "qwen3_moe",
        (62, 6144, 96, 8, 8192, 151936),
        D128 | experts(0, 8, 2560, num_experts=160),
        480_154_875_392,
    ),
    ("Qwen3-VL 8B, text", "qwen3_vl_text", (36, 4096, 32, 8, 12288, 151936), D128, 8_190_735_360),
    ("Gemma 2 9B", "gemma2", (42, 3584, 16, 8, 14336, 256000), {"head_dim": 256}, 9_241_705_984),
    ("Gemma 2 27B", "gemma2", (46, 4608, 32, 16, 36864, 256000), D128, 27_227_128_320),
    ("Gemma 3 12B, text", "gemma3_text", (48, 3840, 16, 8, 15360, 262208), {"head_dim": 256}, 11_766_034_176),
    ("Gemma 3 27B, text", "gemma3_text", (62, 5376, 32, 16, 21504, 262208), D128, 27_009_346_304),
    ("Phi 4", "phi3", (40, 5120, 40, 10, 17920, 100352), {}, 14_659_507_200),
    ("Phi 4 mini", "phi3", (32, 3072, 24, 8, 8192, 200064), TIED, 3_836_021_760),
    ("Phi 3.5 MoE", "phimoe", (32, 4096, 32, 8, 6400, 32064), PHI_MOE | experts(16, 2), 41_873_153_344),
    (
        "DeepSeek V2 Lite",
        "deepseek_v2",
        (27, 2048, 16, 16, 10944, 102400),
        latent(None) | routed(64, 1408, 1, 2, 6),
        15_706_484_224,
    ),
    (
        "DeepSeek R1",
        "deepseek_v3",
        (61, 7168, 128, 128, 18432, 129280),
        latent(1536) | routed(256, 2048, 3),
        671_026_404_352,
    ),
    ("Kimi K2", "kimi_k2", (61, 7168, 64, 64, 18432, 163840), latent(1536) | routed(384, 2048, 1), 1_026_408_209_408),
    ("GLM 4 9B", "glm4", (40, 4096, 32, 2, 13696, 151552), D128 | {"attention_bias": True}, 9_400_279_040),
    (
        "GLM 4.5 Air",
        "glm4_moe",
        (46, 4096, 96, 8, 10944, 151552),
        D128 | {"attention_bias": True} | routed(128, 1408, 1),
        106_852_245_504,
    ),
    ("GLM 4.5", "glm4_moe", (92, 5120, 96, 8, 12288, 151552), D128 | QK_NORM | routed(160, 1536, 3), 352_797_814_784),
    ("OLMo 2 7B", "olmo2", (32, 4096, 32, 32, 11008, 100352), {}, 7_298_617_344),
    ("OLMo 2 32B", "olmo2", (64, 5120, 40, 8, 27648, 100352), {}, 32_234_279_936),
    ("OLMoE 1B 7B", "olmoe", (16, 2048, 16, 16, 1024, 50304), experts(0, 8, num_experts=64), 6_919_161_856),
    ("Granite 3.3 8B", "granite", (40, 4096, 32, 8, 12800, 49159), TIED, 8_170_864_640),
    ("SmolLM2 1.7B", "llama", (24, 2048, 32, 32, 8192, 49152), TIED, 1_711_376_384),
    ("SmolLM3 3B", "smollm3", (36, 2048, 16, 4, 11008, 128256), {}, 3_075_098_624),
    ("StarCoder2 7B", "starcoder2", (32, 4608, 36, 4, 18432, 49152), {"use_bias": True}, 7_173_923_840),
    ("Command R 08-2024", "cohere", (40, 8192, 64, 8, 24576, 256000), {}, 32_296_476_672),
    ("Command R7B", "cohere2", (32, 4096, 32, 8, 14336, 256000), {}, 8_028_033_024),
    (
        "gpt-oss 20B",
        "gpt_oss",
        (24, 2880, 64, 8, 2880, 201088),
        {"head_dim": 64, "attention_bias": True} | experts(32, 4),
        20_914_757_184,
    ),
    (
        "gpt-oss 120B",
        "gpt_oss",
        (36, 2880, 64, 8, 2880, 201088),
        {"head_dim": 64, "attention_bias": True} | experts(128, 4),
        116_829_156_672,
    ),
    ("Falcon 3 7B", "llama", (28, 3072, 12, 4, 23040, 131072), {"head_dim": 256}, 7_455_550_464),
    (
        "Seed-OSS 36B",
        "seed_oss",
        (64, 5120, 80, 8, 27648, 155136),
        D128 | {"attention_bias": True, "attention_out_bias": False},
        36_151_104_512,
    ),
    ("EXAONE 4.0 32B", "exaone4", (64, 5120, 40, 8, 27392, 102400), {}, 32_003_216_384),
    ("MiniMax M2", "minimax_m2", (62, 3072, 48, 8, 1536, 200064), D128 | experts(256, 8), 228_689_748_992),
    ("Yi 1.5 34B", "llama", (60, 7168, 56, 8, 20480, 64000), {}, 34_388_917_248),
)
FALCON = {"model_type": "falcon", "vocab_size": 65024}
FALCON_40B = {"num_hidden_layers": 60, "num_kv_heads": 8, "new_decoder_architecture": True, "bias": False}
OTHERS: dict[str, tuple[dict[str, Any], int]] = {
    "Falcon 7B": (FALCON | {"num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71}, 6_921_720_704),
    "Falcon 40B": (FALCON | FALCON_40B | {"hidden_size": 8192, "num_attention_heads": 128}, 41_303_293_952),
    "Falcon 11B": (
        FALCON
        | FALCON_40B
        | {"hidden_size": 4096, "num_attention_heads": 32, "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
        11_102_822_400,
    ),
    "BLOOM 7B": (
        {"model_type": "bloom", "n_layer": 30, "hidden_size": 4096, "n_head": 32, "vocab_size": 250880},
        7_069_016_064,
    ),
    "MPT 7B": (
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "max_seq_len": 2048, "vocab_size": 50432},
        6_649_286_656,
    ),
}


def config(row: tuple[str, str, tuple[int, ...], dict[str, Any], int]) -> dict[str, Any]:
    _, family, figures, more, _ = row
    return {
        "model_type": family,
        "max_position_embeddings": 4096,
        **dict(zip(COLUMNS, figures, strict=True)),
        **more,
    }


MODELS = {row[0]: (config(row), row[4]) for row in ROWS} | OTHERS


@pytest.mark.parametrize(("found", "expected"), MODELS.values(), ids=MODELS)
def test_parameters_are_those_of_the_published_weights(found: dict[str, Any], expected: int) -> None:
    assert Model.of(from_config(found)).num_parameters == expected
    assert found["model_type"] in FAMILIES


QWEN_25_VL = MODELS["Qwen2.5 7B"][0] | {"model_type": "qwen2_5_vl", "vision_config": {"hidden_size": 1280}}
WRAPPED: dict[str, tuple[dict[str, Any], int, str]] = {
    "Gemma 3 4B": (
        {  # as published: what it leaves out is what transformers takes
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
            "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"},
        },
        3_880_263_168,
        "Of gemma3 the language part (text_config, gemma3_text) is counted; vision_config not: leave memory for it.",
    ),
    "Qwen2.5-VL 7B": (
        QWEN_25_VL,
        7_615_616_512,
        "Of qwen2_5_vl the language part is counted; vision_config not: leave memory for it.",
    ),
    "Llama 4 Scout": (
        {
            "model_type": "llama4",
            "text_config": MODELS["Llama 4 Scout, text"][0],
            "vision_config": {"hidden_size": 1408},
        },
        107_769_861_120,
        "Of llama4 the language part (text_config, llama4_text) is counted; vision_config not: leave memory for it.",
    ),
    "LLaVA 1.5 7B": (
        {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "text_config": {"max_position_embeddings": 4096, "model_type": "llama", "vocab_size": 32064},
            "vision_config": {"hidden_size": 1024},
        },
        6_738_939_904,
        "Of llava the language part (text_config, llama) is counted; vision_config not: leave memory for it.",
    ),
}


@pytest.mark.parametrize(("found", "expected", "note"), WRAPPED.values(), ids=WRAPPED)
def test_of_text_and_images_the_language_part_is_counted_and_said(
    found: dict[str, Any], expected: int, note: str
) -> None:
    model = Model.of(from_config(found | {"sequence_length": 2048}))
    assert (model.num_parameters, model.sequence_length, model.notes) == (expected, 2048, (note,))


UNCOUNTED: dict[str, tuple[dict[str, Any], str]] = {
    "LFM2 1.2B": (
        {"model_type": "lfm2", "conv_L_cache": 3, "conv_bias": False, "layer_types": ["conv", "full_attention"]},
        "conv_L_cache 3: convolutions in place of attention",
    ),
    "Qwen3-Next 80B": (
        {"model_type": "qwen3_next", "linear_conv_kernel_dim": 4, "linear_num_key_heads": 16},
        "linear_conv_kernel_dim 4: linear attention",
    ),
    "Qwen3.5": (
        {"model_type": "qwen3_5_text", "layer_types": ["linear_attention", "full_attention"]},
        "layer_types linear_attention",
    ),
    "DeepSeek V3.2": (
        MODELS["DeepSeek R1"][0]
        | {"model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048},
        "index_head_dim 128: attention by a sparse index",
    ),
    "its index in a family that is known": (
        MODELS["DeepSeek R1"][0] | {"index_topk": 2048},
        "index_topk 2048: attention by a sparse index",
    ),
    "Gemma 3n": ({"model_type": "gemma3n_text", "hidden_size_per_layer_input": 256}, "embeddings of each layer"),
    "Llama 3.2 Vision": (
        {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "cross_attention_layers": [3, 8]}},
        "cross_attention_layers .* cross-attention to another part",
    ),
    "Kimi Linear": ({"model_type": "kimi_linear", "linear_attn_config": {"num_heads": 32}}, "linear attention"),
    "Jamba": ({"model_type": "jamba", "mamba_d_conv": 4, "attn_layer_period": 8}, "mamba_d_conv 4: state spaces"),
    "Apertus": (
        MODELS["Llama 3.1 8B"][0] | {"model_type": "apertus", "hidden_act": "xielu"},
        "hidden_act 'xielu': .* hardly a gated one",
    ),
    "a key that nobody knows": (
        MODELS["Llama 3.1 8B"][0] | {"model_type": "novel", "use_post_norm": True},
        "use_post_norm True: a key that is not known, of model_type 'novel', .* take it out where it changes no layer",
    ),
}


@pytest.mark.parametrize(("found", "words"), UNCOUNTED.values(), ids=UNCOUNTED)
def test_what_is_not_counted_is_refused_by_its_name(found: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_config(MODELS["Llama 3.1 8B"][0] | found)


def test_a_family_that_is_not_known_is_never_counted_in_silence() -> None:
    found = MODELS["Llama 3.1 8B"][0] | {"rope_theta": 5e5, "torch_dtype": "bfloat16", "bos_token_id": 1}
    assert from_config(found).notes == ()
    assert from_config(found | {"model_type": "novel"}).notes == (
        "model_type 'novel' is not known: counted as LLaMA by the names of its keys.",
    )
