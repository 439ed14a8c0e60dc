"""A measured profile becomes a model with seconds, or a sentence that says where it is wrong."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import yaml
from hulk_placement.model import Layer
from hulk_placement.model.profile import parse_profile
from hypothesis import given
from hypothesis import strategies as st

TEXT = """
bytesPerParameter: 2
layers:
  - name: embed
    parameterBytes: 4000
    outputBytes: 512
    activationBytes: 0
  - name: h.0
    parameters: 600
    outputBytes: 512
    activationBytes: 900
    replicatedActivationBytes: 300
    tensorBytes: 1024
    tensorAllreduces: 2
  - name: head
    parameters: 10
    outputBytes: 0
    activationBytes: 70
    tiedTo: embed
    tiedParameters: 2000
times:
  - product: NVIDIA-A100-SXM4-80GB
    microBatch: 4
    forwardSeconds: [0, 0.010, 2e-3]
    backwardSeconds: [0, 0.025, 4e-3]
  - product: NVIDIA-A100-SXM4-80GB
    microBatch: 4
    tensor: 2
    forwardSeconds: [0, 0.006, 0.001]
    backwardSeconds: [0, 0.014, 0.002]
"""
MEASURED: dict[str, Any] = yaml.safe_load(TEXT)
COUNTED: dict[str, Any] = {"layers": [{"name": "a", "parameters": 3, "outputBytes": 1, "activationBytes": 2}]}
OLDER_LAYER = {"parameters": 10, "flopsPerSequence": 100.0, "activationBytesPerSequence": 7}
OLDER: dict[str, Any] = {"layers": [dict(OLDER_LAYER), dict(OLDER_LAYER)]}


def test_a_measured_profile() -> None:
    model = parse_profile(MEASURED)
    assert model.layers == (
        Layer("embed", 2000, 0.0, 0.0, 512, 0),
        Layer("h.0", 600, 0.0, 0.0, 512, 900, 300, 1024, 2),
        Layer("head", 10, 0.0, 0.0, 0, 70, tied_to=0, tied_parameters=2000),
    )
    assert model.times is not None
    assert model.times.seconds("NVIDIA-A100-SXM4-80GB", 8, 1) == ((0, 0.020, 0.004), (0, 0.050, 0.008))
    assert model.times.seconds("NVIDIA-A100-SXM4-80GB", 4, 2) == ((0, 0.006, 0.001), (0, 0.014, 0.002))


def test_flops_are_taken_as_given_and_the_backward_pass_as_twice_the_forward() -> None:
    first = COUNTED["layers"][0] | {"forwardFlops": 5.0}
    second = first | {"name": "b", "backwardFlops": 8}
    model = parse_profile({"layers": [first, second]})
    assert [(layer.forward_flops, layer.backward_flops) for layer in model.layers] == [(5.0, 10.0), (5.0, 8.0)]
    assert model.times is None


def test_the_older_form_is_one_layer_each_whose_output_is_not_free() -> None:
    model = parse_profile(OLDER)
    assert [layer.name for layer in model.layers] == ["layers.0", "layers.1"]
    assert (model.num_parameters, model.flops_per_sequence, model.activation_bytes_per_sequence) == (20, 200.0, 14)
    assert [layer.output_bytes for layer in model.layers] == [7, 7]
    assert model.layers[0].backward_flops == pytest.approx(2 * model.layers[0].forward_flops)


def changed(document: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """The document with another value at a place like `layers.0.name`; `...` takes the key away."""
    copy = yaml.safe_load(yaml.safe_dump(document))
    *way, key = [int(part) if part.isdigit() else part for part in place.split(".")]
    part = copy
    for step in way:
        part = part[step]
    if value is ...:
        del part[key]
    else:
        part[key] = value
    return copy


@pytest.mark.parametrize(
    ("document", "place", "value", "message"),
    [
        (MEASURED, "layers", [], "layers: Tuple should have at least 1 item"),
        (MEASURED, "layers", ..., "layers: Field required"),
        (MEASURED, "layers", "three", "layers: Input should be a valid tuple"),
        (MEASURED, "stages", 3, "stages: Extra inputs are not permitted"),
        (MEASURED, "layers.1.actvationBytes", 3, "layers.1.actvationBytes: Extra inputs"),
        (MEASURED, "layers.1.output_bytes", 3, "layers.1.output_bytes: Extra inputs"),
        (MEASURED, "layers.1.outputBytes", ..., "layers.1.outputBytes: Field required"),
        (MEASURED, "layers.1.outputBytes", -1, "layers.1.outputBytes: Input should be greater than or equal to 0"),
        (MEASURED, "layers.1.parameters", 1.5, "layers.1.parameters: Input should be a valid integer"),
        (MEASURED, "layers.1.parameters", ..., "layers.1: exactly one of parameters and parameterBytes"),
        (MEASURED, "layers.1.parameterBytes", 8, "layers.1: exactly one of parameters and parameterBytes"),
        (MEASURED, "layers.0.parameterBytes", 401, "layers.0.parameterBytes: 401 is no multiple of 2 bytes each"),
        (MEASURED, "layers.1.forwardFlops", 5, "layers.1.forwardFlops: must be given for all layers or for none"),
        (MEASURED, "layers.1.backwardFlops", 5, "layers.1.backwardFlops: forwardFlops are missing"),
        (MEASURED, "layers.1.name", "embed", "more than one of 3 layers has the name 'embed'"),
        (MEASURED, "layers.2.tiedTo", "tok", "layers.2.tiedTo: no layer has the name 'tok'"),
        (MEASURED, "layers.2.tiedTo", "head", "tied to layer 2, which must come before it"),
        (MEASURED, "times.1.forwardSeconds", [1, 2], "times.1.forwardSeconds: 2 figures for 3 layers"),
        (MEASURED, "times.0.backwardSeconds.2", float("nan"), "times.0.backwardSeconds.2: Input should be a finite"),
        (MEASURED, "times.0.microBatch", 0, "times.0.microBatch: Input should be greater than or equal to 1"),
        (MEASURED, "times.1.tensor", 1, "2 rows for NVIDIA-A100-SXM4-80GB, tensor 1, micro-batch 4"),
        (MEASURED, "times", [], "layers.0.forwardFlops: missing, and there are no times"),
        (OLDER, "layers.1.parameters", -1, "layers.1.parameters: Input should be greater than"),
        (OLDER, "layers.1.flopsPerSequence", ..., "layers.1.flopsPerSequence: Field required"),
        (OLDER, "layers.0.name", "a", "layers.0.name: Extra inputs are not permitted"),
    ],
)
def test_every_mistake_is_named_with_its_place(document: dict[str, Any], place: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_profile(changed(document, place, value))


def test_all_mistakes_of_form_are_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"layers\.0\.outputBytes: .*; times\.0\.product: "):
        parse_profile(changed(changed(MEASURED, "layers.0.outputBytes", -1), "times.0.product", ""))


KEYS = st.sampled_from(["layers", "times", "name", "parameters", "flopsPerSequence", "forwardFlops", "outputBytes"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(JSON)
def test_whatever_is_read_is_a_model_or_a_value_error(document: Any) -> None:
    with contextlib.suppress(ValueError):
        assert parse_profile(document).num_parameters > 0
