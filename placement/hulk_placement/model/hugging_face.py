"""A Hugging Face `config.json` becomes an Architecture.

Known are the families below, by `model_type`. A decoder of another family is read by the names of its keys, as GPT-2,
as DeepSeek where attention is over latent vectors, or as LLaMA, with LayerNorm and biases where it has no RMSNorm; what
no key says is then taken to be as in that family, which a note says, and a key that nobody knows is refused. Refused
are, in all families, features that are not counted: see `known_keys`. Of a model of text and more, the text's part is
counted, and a note says so.

Keys that are absent mean what they mean to transformers in the families that are known. Attention is counted as its
fused kernels keep it, unless `attn_implementation` is "eager" or scores have a soft cap, and except in T5: no fused
kernel takes its trained position biases. Sliding windows are counted as the whole square. Not counted: dropout, soft
caps themselves, layers that predict further tokens, and what a view of a merged matrix keeps alive. Two keys are Hulk's
own: `sequence_length`, tokens of a training sequence, where they are fewer than the positions, and for T5
`target_length`, those of the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from hulk_placement.model.architecture import Architecture
from hulk_placement.model.families import encoders, layer_normed, merged, names, rms_normed
from hulk_placement.model.families.keys import Keys
from hulk_placement.model.families.known_keys import ATTENTION_KINDS, COUNTED, EXPERT_KEYS, FEATURES, HARMLESS
from hulk_placement.model.families.rms_normed import Style
from hulk_placement.model.parts import LAYER_NORM, PLAIN_NORM, SCALED_NORM

Family = Callable[[Keys], Architecture]


def _llama(**style: Any) -> Family:
    return partial(rms_normed.llama, style=Style(**style))


FAMILIES: dict[str, Family] = {
    "bert": encoders.bert,
    "roberta": encoders.roberta,
    "xlm-roberta": encoders.roberta,
    "t5": encoders.t5,
    "mt5": encoders.t5,
    "gpt2": layer_normed.gpt2,
    "gpt_bigcode": layer_normed.gpt_bigcode,
    "opt": layer_normed.opt,
    "phi": partial(layer_normed.rotary, is_parallel=True, has_head_bias=True, called=names.PHI),
    "gpt_neox": partial(layer_normed.rotary, called=names.NEOX),
    "starcoder2": partial(layer_normed.rotary, is_tied=True),
    "falcon": merged.falcon,
    "bloom": merged.bloom,
    "mpt": merged.mpt,
    "gptj": merged.gptj,
    "codegen": merged.gptj,
    "llama": rms_normed.llama,
    "llama4_text": _llama(dense_width="intermediate_size_mlp", num_shared_experts=1),
    "mistral": _llama(key_value_heads=8),
    "ministral3": _llama(key_value_heads=8),
    "mixtral": _llama(key_value_heads=8),
    "phi3": rms_normed.llama,
    "phimoe": _llama(norm=LAYER_NORM, key_value_heads=8),
    "qwen2": _llama(qkv_bias=True),
    "qwen2_moe": _llama(qkv_bias=True),
    "qwen3": _llama(head_norms="head"),
    "qwen3_moe": _llama(head_norms="head"),
    "gemma": _llama(is_tied=True),
    "gemma2": _llama(is_tied=True, has_branch_norms=True),
    "gemma3_text": _llama(is_tied=True, has_branch_norms=True, head_norms="head"),
    "deepseek_v2": rms_normed.deepseek,
    "deepseek_v3": rms_normed.deepseek,
    "kimi_k2": rms_normed.deepseek,
    "olmo": _llama(norm=PLAIN_NORM),
    "olmo2": _llama(head_norms="whole"),
    "olmo3": _llama(head_norms="whole"),
    "olmoe": _llama(head_norms="whole"),
    "cohere": _llama(
        norm=SCALED_NORM, is_parallel=True, is_tied=True, head_norms="whole", head_norms_key="use_qk_norm"
    ),
    "cohere2": _llama(norm=SCALED_NORM, is_parallel=True, is_tied=True),
    "exaone4": _llama(head_norms="head"),
    "glm": _llama(output_bias=False),
    "glm4": _llama(output_bias=False, has_branch_norms=True),
    "glm4_moe": _llama(output_bias=False, head_norms="head", head_norms_key="use_qk_norm"),
    "gpt_oss": _llama(has_sinks=True, has_experts_bias=True),
    "granite": rms_normed.llama,
    "granitemoe": rms_normed.llama,
    "minimax_m2": _llama(head_norms="whole"),
    "seed_oss": rms_normed.llama,
    "smollm3": _llama(is_tied=True),
}
FAMILIES = FAMILIES | {  # the language part of models of text and images
    "qwen2_vl": FAMILIES["qwen2"],
    "qwen2_vl_text": FAMILIES["qwen2"],
    "qwen2_5_vl": FAMILIES["qwen2"],
    "qwen2_5_vl_text": FAMILIES["qwen2"],
    "qwen3_vl_text": FAMILIES["qwen3"],
    "qwen3_vl_moe_text": FAMILIES["qwen3_moe"],
}

TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
OTHER_CONFIGS = ("vision_config", "audio_config", "visual", "speech_config")
"""Keys under which models of more than text have the configs of their parts."""

_LLAMA_DEFAULTS = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
TEXT_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
    },
    "llama": {**_LLAMA_DEFAULTS, "num_attention_heads": 32, "max_position_embeddings": 2048},
    "mistral": {
        **_LLAMA_DEFAULTS,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "max_position_embeddings": 131072,
    },
}
"""What transformers takes for keys that published configs of such models leave out of their text's part."""

GATED = ("", "silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu")
"""Activation functions of gated MLPs, as far as LLaMA's kin has them."""


def from_config(config: Mapping[str, Any]) -> Architecture:
    """The architecture in a config's keys. ValueError names the key, and its value, that is missing or cannot be."""
    keys = Keys(config)
    part = next(filter(keys.has, TEXT_CONFIGS), None)
    if part is not None:
        return _text_part(keys, part)
    refuse_features(keys)
    family = keys.text("model_type")
    found = FAMILIES[family](keys) if family in FAMILIES else _by_key_names(keys, family)
    others = [name for name in OTHER_CONFIGS if keys.has(name)]
    return replace(found, notes=(*found.notes, _part_note(family, "", others))) if others else found


def _text_part(keys: Keys, part: str) -> Architecture:
    """The language model of a model of more; its head is tied where either config says so, by transformers' default."""
    inner, outer = keys.inner(part), keys.text("model_type")
    family = inner.text("model_type")
    given = {key: keys.value(key) for key in ("sequence_length", "tie_word_embeddings") if keys.has(key)}
    found = from_config({**TEXT_DEFAULTS.get(family, {}), **given, **inner.values()})
    others = [name for name in OTHER_CONFIGS if keys.has(name)]
    return replace(found, notes=(*found.notes, _part_note(outer, f" ({part}, {family})", others)))


def _part_note(family: str, part: str, others: list[str]) -> str:
    left = f"; {' and '.join(others)} not: leave memory for it" if others else ""
    return f"Of {family or 'the model'} the language part{part} is counted{left}."


def refuse_features(keys: Keys) -> None:
    """ValueError where a key says that layers are other than what is counted."""
    for pattern, feature in FEATURES.items():
        for name in keys.matching(pattern):
            keys.refuse(name, f"{feature}: not counted; give a profile of the model's layers")
    for kind in keys.texts("layer_types"):
        if kind not in ATTENTION_KINDS:
            raise ValueError(
                f"config.json: layer_types {kind}: layers of this kind are not counted; give a profile of the layers"
            )


def _by_key_names(keys: Keys, family: str) -> Architecture:
    """A decoder of a family that is not known."""
    model_class = keys.model_class()
    is_decoder = not model_class or model_class.endswith(("ForCausalLM", "LMHeadModel"))
    if keys.flag("is_encoder_decoder", False) or not is_decoder:
        raise ValueError(
            f"config.json: model_type {family!r} with architectures {model_class!r} is none of {', '.join(FAMILIES)}, "
            "and only decoders are read by the names of their keys"
        )
    _refuse_unknown(keys, family)
    likened, found = _likened(keys, family)
    note = f"model_type {family!r} is not known: counted as {likened} by the names of its keys."
    return replace(found, notes=(*found.notes, note)) if family else found


def _likened(keys: Keys, family: str) -> tuple[str, Architecture]:
    """The name of the family that the keys are of, and the architecture."""
    if keys.has("n_embd", "n_layer") or not keys.has("hidden_size", "num_hidden_layers"):
        return "GPT-2", layer_normed.gpt2(keys)
    if keys.has("kv_lora_rank"):
        return "DeepSeek", rms_normed.deepseek(keys)
    if keys.has("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon") and not keys.has("rms_norm_eps"):
        is_gated = keys.text("hidden_act") in ("silu", "swish")
        return "GPT-NeoX", layer_normed.rotary(keys, is_gated=is_gated)
    if keys.text("hidden_act", "hidden_activation") not in GATED:
        keys.refuse("hidden_act", "an MLP with it is hardly a gated one, as LLaMA's is, and no key says")
    return "LLaMA", rms_normed.llama(keys)


def _refuse_unknown(keys: Keys, family: str) -> None:
    """A key that is neither counted nor harmless may change the layers in a way that nobody here knows."""
    for name in keys.matching(r"(^|_)(experts?|moe)(_|$)"):
        if name not in EXPERT_KEYS and keys.is_number(name):
            keys.refuse(name, f"of experts only {', '.join(EXPERT_KEYS)} are counted in a family that is not known")
    if keys.has("moe_layer_freq") and keys.value("moe_layer_freq") != 1:
        keys.refuse("moe_layer_freq", "of experts only those of every layer are counted in a family that is not known")
    known = set(COUNTED) | set(keys.matching(HARMLESS))
    for name in keys.values():
        if name not in known and not isinstance(name, int):
            keys.refuse(
                name,
                f"a key that is not known, of model_type {family!r}, which is not known either; take it out where it "
                "changes no layer, else give a profile of the layers",
            )
