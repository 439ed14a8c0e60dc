"""A Hugging Face `config.json` becomes an Architecture.

Known are the families below, by `model_type`. Another decoder is read by the names of its keys, as GPT-2, as DeepSeek
where attention is over latent vectors, or as LLaMA, with LayerNorm and biases where it has no RMSNorm; what no key says
is then taken to be as in that family.

Keys that are absent mean what they mean to transformers in the families that are known. Attention is counted as its
fused kernels keep it, unless `attn_implementation` is "eager" or scores have a soft cap, and except in T5: no fused
kernel takes its trained position biases. Sliding windows are counted as the whole square. Not counted: dropout, soft
caps themselves, and what a view of a merged matrix keeps alive. Two keys are Hulk's own: `sequence_length`, tokens of a
training sequence, where they are fewer than the positions, and for T5 `target_length`, those of the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hulk_placement.model.architecture import Architecture
from hulk_placement.model.families import encoders, layer_normed, rms_normed
from hulk_placement.model.families.keys import Keys

FAMILIES: Mapping[str, Callable[[Keys], Architecture]] = {
    "bert": encoders.bert,
    "roberta": encoders.roberta,
    "xlm-roberta": encoders.roberta,
    "t5": encoders.t5,
    "mt5": encoders.t5,
    "gpt2": layer_normed.gpt2,
    "opt": layer_normed.opt,
    "phi": partial(layer_normed.rotary, is_parallel=True, has_head_bias=True),
    "gpt_neox": partial(layer_normed.rotary, names=layer_normed.NEOX_NAMES),
    "llama": rms_normed.llama,
    "mistral": partial(rms_normed.llama, key_value_heads=8),
    "mixtral": partial(rms_normed.llama, key_value_heads=8),
    "phi3": rms_normed.llama,
    "qwen2": partial(rms_normed.llama, qkv_bias=True),
    "qwen2_moe": partial(rms_normed.llama, qkv_bias=True),
    "qwen3": partial(rms_normed.llama, has_head_norms=True),
    "qwen3_moe": partial(rms_normed.llama, has_head_norms=True),
    "gemma": partial(rms_normed.llama, is_tied=True),
    "gemma2": partial(rms_normed.llama, is_tied=True, has_branch_norms=True),
    "gemma3_text": partial(rms_normed.llama, is_tied=True, has_branch_norms=True, has_head_norms=True),
    "deepseek_v2": rms_normed.deepseek,
    "deepseek_v3": rms_normed.deepseek,
}

TIED = ("starcoder2", "cohere", "cohere2", "smollm3")
"""Families read by the names of their keys whose head is tied to the embedding where no key says otherwise."""

EXPERTS, STATE_SPACES = r"(^|_)(experts?|moe)(_|$)", r"^(mamba|ssm|attn_layer_period)"
"""Parts of keys' names."""

EXPERT_KEYS = (
    *rms_normed.NUM_EXPERTS,
    "num_experts_per_tok",
    "experts_per_token",
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
)
EVERY_LAYER = "moe_layer_freq"
"""1 where all layers have experts."""

UNGATED = ("relu", "relu2")


def from_config(config: Mapping[str, Any]) -> Architecture:
    """The architecture in a config's keys. ValueError names the key, and its value, that is missing or cannot be."""
    keys = Keys(config)
    keys.refuse("text_config", "a model of more than text is not counted; give the text model's own config")
    family = keys.text("model_type")
    if family in FAMILIES:
        return FAMILIES[family](keys)
    return _by_key_names(keys, family)


def _by_key_names(keys: Keys, family: str) -> Architecture:
    """A decoder of a family that is not known."""
    model_class = keys.model_class()
    is_decoder = not model_class or model_class.endswith(("ForCausalLM", "LMHeadModel"))
    if keys.flag("is_encoder_decoder", False) or not is_decoder:
        raise ValueError(
            f"config.json: model_type {family!r} with architectures {model_class!r} is none of {', '.join(FAMILIES)}, "
            "and only decoders are read by the names of their keys"
        )
    _refuse_other_layers(keys)
    if keys.has("n_embd", "n_layer") or not keys.has("hidden_size", "num_hidden_layers"):
        keys.refuse("multi_query", "one key and value for all heads is not counted in a decoder spelled like GPT-2")
        return layer_normed.gpt2(keys)
    if keys.has("kv_lora_rank"):
        return rms_normed.deepseek(keys)
    if keys.has("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon") and not keys.has("rms_norm_eps"):
        is_gated = keys.text("hidden_act") in ("silu", "swish")
        return layer_normed.rotary(keys, is_gated=is_gated, is_tied=family in TIED)
    if keys.text("hidden_act") in UNGATED:
        keys.refuse("hidden_act", "an MLP with it is hardly a gated one, as LLaMA's is, and no key says")
    return rms_normed.llama(keys, is_tied=family in TIED)


def _refuse_other_layers(keys: Keys) -> None:
    """Keys by which layers are not what is counted: experts by other names, state spaces between attention."""
    for name in keys.numbered(EXPERTS):
        if name not in EXPERT_KEYS and not (name == EVERY_LAYER and keys.size(name) == 1):
            keys.refuse(name, f"of experts only {', '.join(EXPERT_KEYS)} are counted in a family that is not known")
    for name in keys.numbered(STATE_SPACES):
        keys.refuse(name, "layers of another kind than attention are not counted")
