"""Well-known models by name: their dimensions, as their authors published them, in the keys of a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hulk_placement.model.architecture import Architecture
from hulk_placement.model.hugging_face import from_config

_GPT2 = {"model_type": "gpt2", "n_positions": 1024, "vocab_size": 50257}
_LLAMA3 = {"model_type": "llama", "max_position_embeddings": 8192, "vocab_size": 128256, "num_key_value_heads": 8}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Radford et al. 2019, table 2
    "gpt2": {**_GPT2, "n_layer": 12, "n_embd": 768, "n_head": 12},
    "gpt2-medium": {**_GPT2, "n_layer": 24, "n_embd": 1024, "n_head": 16},
    "gpt2-large": {**_GPT2, "n_layer": 36, "n_embd": 1280, "n_head": 20},
    "gpt2-xl": {**_GPT2, "n_layer": 48, "n_embd": 1600, "n_head": 25},
    # Zhang et al. 2022, arXiv 2205.01068, table 1; the narrow embedding and the post-norm are the released weights'
    "opt-350m": {
        "model_type": "opt",
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "ffn_dim": 4096,
        "word_embed_proj_dim": 512,
        "do_layer_norm_before": False,
        "max_position_embeddings": 2048,
        "vocab_size": 50272,
    },
    # Devlin et al. 2019, arXiv 1810.04805, section 3; uncased, with the pooler and without a head
    "bert-large": {
        "model_type": "bert",
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 512,
        "vocab_size": 30522,
    },
    # Raffel et al. 2020, arXiv 1910.10683, section 3.7; 512 tokens in and out
    "t5-11b": {
        "model_type": "t5",
        "num_layers": 24,
        "d_model": 1024,
        "num_heads": 128,
        "d_kv": 128,
        "d_ff": 65536,
        "n_positions": 512,
        "vocab_size": 32128,
    },
    # Grattafiori et al. 2024, arXiv 2407.21783, table 3
    "llama-3-8b": {
        **_LLAMA3,
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 14336,
    },
    "llama-3-70b": {
        **_LLAMA3,
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "intermediate_size": 28672,
    },
}


def preset(name: str, sequence_length: int | None = None) -> Architecture:
    """The model of this name; `sequence_length` where a training sequence has fewer tokens than it could have."""
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    return from_config({**PRESETS[name], "sequence_length": sequence_length})
