"""The presets have the published numbers of parameters, layers and operations."""

from __future__ import annotations

import pytest
from hulk_placement.model import Model
from hulk_placement.model.presets import PRESETS, preset

PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-350m": 331_196_416,
    "bert-large": 335_141_888,
    "t5-11b": 11_307_321_344,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
}


def test_every_preset_is_checked() -> None:
    assert set(PRESETS) == set(PARAMETERS)


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_parameters_are_the_published_ones(name: str, expected: int) -> None:
    assert Model.of(preset(name)).num_parameters == expected


@pytest.mark.parametrize("name", ["gpt2-xl", "opt-350m", "llama-3-8b", "llama-3-70b"])
def test_a_decoder_computes_six_operations_a_parameter_and_token_and_attention(name: str) -> None:
    """Kaplan et al. 2020, section 2.1: 6 N a token, with N without the embeddings that are only looked up."""
    short = preset(name, sequence_length=16)  # attention is next to nothing
    embedding, *others = Model.of(short).layers
    matrices = sum(layer.num_parameters + layer.tied_parameters for layer in others)
    assert Model.of(short).flops_per_sequence == pytest.approx(6 * 16 * matrices, rel=0.01)
    assert embedding.forward_flops == (0 if name != "opt-350m" else 2 * 16 * 512 * 1024)


def test_only_gpt2_has_the_bundled_gpts_structure() -> None:
    assert {name for name in PRESETS if Model.of(preset(name)).shape} == {name for name in PRESETS if "gpt2" in name}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no preset 'gpt5'; there are gpt2, gpt2-medium, "):
        preset("gpt5")
