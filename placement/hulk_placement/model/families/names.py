"""What families call their layers and parts in the state dict: patterns of `model.trainable` are matched with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hulk_placement.model.architecture import Names

Parts = Mapping[str, str]


def _parts(
    attention: str, mlp: str, attention_parts: Parts, mlp_parts: Parts, others: Parts
) -> tuple[tuple[str, str], ...]:
    """The parts of a block's attention and MLP under their modules' names, and others."""
    return (
        (".attention", attention),
        *((f".attention.{ours}", f"{attention}.{theirs}") for ours, theirs in attention_parts.items()),
        *((f".mlp.{ours}", f"{mlp}.{theirs}") for ours, theirs in mlp_parts.items()),
        *others.items(),
    )


_PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
_MERGED = dict.fromkeys("qkv", "query_key_value") | {"o": "dense"}
_GATED = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_WIDENED = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}
_TWO_NORMS = {".norm.0": ".input_layernorm", ".norm.1": ".post_attention_layernorm"}


def _experts(shared: str) -> dict[str, str]:
    """Experts' matrices, under whatever number."""
    routed = {f"experts.{ours}": f"experts.{theirs}" for ours, theirs in _GATED.items()}
    return routed | {f"shared.{ours}": f"{shared}.{theirs}" for ours, theirs in _GATED.items()} | {"router": "gate"}


_LATENT = {
    "kv_a": "kv_a_proj_with_mqa",
    "kv_norm": "kv_a_layernorm",
    "kv_b": "kv_b_proj",
    "q_a": "q_a_proj",
    "q": "q_b_proj",
    "q_norm": "q_a_layernorm",
    "o": "o_proj",
}
_LLAMA = _parts(
    ".self_attn",
    ".mlp",
    _PROJECTIONS,
    _GATED | _experts("shared_expert") | {"shared_gate": "shared_expert_gate"},
    _TWO_NORMS | {"norm": "model.norm"},
)
_GPT2 = dict.fromkeys("qkv", "c_attn") | {"o": "c_proj"}

LLAMA = Names(embedding="model.embed_tokens", decoder="model.layers", head="lm_head", parts=_LLAMA)
DEEPSEEK = replace(
    LLAMA,
    parts=_parts(
        ".self_attn", ".mlp", _LATENT, _GATED | _experts("shared_experts"), _TWO_NORMS | {"norm": "model.norm"}
    ),
)
PHI = replace(
    LLAMA,
    parts=_parts(
        ".self_attn",
        ".mlp",
        _PROJECTIONS | {"o": "dense"},
        {"up": "fc1", "down": "fc2"},
        {".norm.0": ".input_layernorm", "norm": "model.final_layernorm"},
    ),
)
GPT2 = Names(
    embedding="transformer.wte",
    decoder="transformer.h",
    head="lm_head",
    parts=_parts(
        ".attn",
        ".mlp",
        _GPT2,
        {"up": "c_fc", "down": "c_proj"},
        {".norm.0": ".ln_1", ".norm.1": ".ln_2", "positions": "transformer.wpe", "norm": "transformer.ln_f"},
    ),
)
GPTJ = replace(
    GPT2,
    parts=_parts(
        ".attn",
        ".mlp",
        _PROJECTIONS | {"o": "out_proj"},
        {"up": "fc_in", "down": "fc_out"},
        {".norm.0": ".ln_1", "norm": "transformer.ln_f"},
    ),
)
OPT = Names(
    embedding="model.decoder.embed_tokens",
    decoder="model.decoder.layers",
    head="lm_head",
    parts=_parts(
        ".self_attn",
        "",
        _PROJECTIONS | {"o": "out_proj"},
        {"up": "fc1", "down": "fc2"},
        {
            ".norm.0": ".self_attn_layer_norm",
            ".norm.1": ".final_layer_norm",
            "positions": "model.decoder.embed_positions",
            "norm": "model.decoder.final_layer_norm",
        },
    ),
)
NEOX = Names(
    embedding="gpt_neox.embed_in",
    decoder="gpt_neox.layers",
    head="lm_head",
    parts=_parts(".attention", ".mlp", _MERGED, _WIDENED, _TWO_NORMS | {"norm": "gpt_neox.final_layer_norm"}),
)
FALCON = Names(
    embedding="transformer.word_embeddings",
    decoder="transformer.h",
    head="lm_head",
    parts=_parts(".self_attention", ".mlp", _MERGED, _WIDENED, _TWO_NORMS | {"norm": "transformer.ln_f"}),
)
BLOOM = replace(FALCON, parts=(*FALCON.parts, ("embedding_norm", "transformer.word_embeddings_layernorm")))
MPT = Names(
    embedding="transformer.wte",
    decoder="transformer.blocks",
    head="lm_head",
    parts=_parts(
        ".attn",
        ".ffn",
        dict.fromkeys("qkv", "Wqkv") | {"o": "out_proj"},
        {"up": "up_proj", "down": "down_proj"},
        {".norm.0": ".norm_1", ".norm.1": ".norm_2", "norm": "transformer.norm_f"},
    ),
)
