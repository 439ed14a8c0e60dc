"""Layers and models: what they sum up to, what they refuse, and what of them decides a rank's speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hulk_placement.model import Layer, LayerTimes, Model, TimesRow, Transformer
from hulk_placement.workload import Workload
from hypothesis import given
from hypothesis import strategies as st

FIRST = Layer("first", 100, 10.0, 20.0, 8, 50, replicated_activation_bytes=20, tensor_bytes=16, num_tensor_allreduces=2)
LAST = Layer("last", 10, 1.0, 2.0, 0, 5, tied_to=0, tied_parameters=60)
MODEL = Model((FIRST, LAST))
ONE_LAYER = LayerTimes((TimesRow("T4", 1, 1, (0.1,), (0.2,)),))


def workload(model: Model, **changes: Any) -> Workload:
    return Workload("team/job", model, global_batch=8, candidates={"a": 1}, **changes)


def test_a_model_is_the_sum_of_its_layers() -> None:
    assert (MODEL.num_layers, MODEL.num_parameters, MODEL.gradient_bytes) == (2, 110, 440)
    assert (MODEL.flops_per_sequence, MODEL.activation_bytes_per_sequence) == (33.0, 55)
    assert workload(MODEL).replica_bytes(3) == 110 * (4 + 4 + 4 + 8) + 3 * 55
    assert workload(MODEL, optimizer="sgd").replica_bytes(3) == 110 * 12 + 3 * 55


@given(st.integers(1, 10**12), st.floats(1e-3, 1e30), st.integers(0, 10**12))
def test_totals_come_back_to_the_last_bit(num_parameters: int, flops: float, activation_bytes: int) -> None:
    model = Model.of_totals(num_parameters, flops, activation_bytes)
    assert (model.num_parameters, model.flops_per_sequence) == (num_parameters, flops)
    assert model.activation_bytes_per_sequence == activation_bytes
    assert model.layers[0].backward_flops == pytest.approx(2 * model.layers[0].forward_flops)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(FIRST, num_parameters=-1), "layer first: num_parameters -1 must be >= 0"),
        (lambda: replace(FIRST, output_bytes=-2), "layer first: output_bytes -2 must be >= 0"),
        (lambda: replace(FIRST, forward_flops=float("nan")), "layer first: nan forward"),
        (lambda: replace(FIRST, backward_flops=float("inf")), "inf backward FLOPs"),
        (
            lambda: replace(FIRST, replicated_activation_bytes=51),
            "51 replicated bytes of activations are more than",
        ),
        (lambda: replace(FIRST, tied_to=0), "layer first: 0 parameters tied to layer 0"),
        (lambda: replace(FIRST, tied_parameters=3), "layer first: 3 parameters tied to layer None"),
        (lambda: Model(()), "0 parameters must be > 0.* in 0 layers"),
        (lambda: Model((FIRST, FIRST)), "more than one of 2 layers has the name 'first'"),
        (lambda: Model((replace(FIRST, forward_flops=0, backward_flops=0),)), "0 FLOPs a sequence must be > 0"),
        (lambda: Model((LAST,)), "60 parameters tied to layer 0, which must come before it"),
        (lambda: Model((FIRST, replace(LAST, tied_to=1))), "number 1: 60 parameters tied to layer 1"),
        (lambda: Model((FIRST, replace(LAST, tied_parameters=101))), "101 parameters tied to layer 0"),
        (lambda: Model((FIRST, LAST), times=ONE_LAYER), "times of 1 layers, of 2"),
        (lambda: Model.of_totals(1, -3.0), "-3.0 FLOPs a sequence must be > 0"),
    ],
)
def test_bad_figures_are_refused_with_their_numbers(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_measured_seconds_stand_in_for_flops() -> None:
    layer = replace(FIRST, forward_flops=0.0, backward_flops=0.0)
    assert Model((layer,), times=ONE_LAYER).flops_per_sequence == 0


def test_the_digest_is_of_what_decides_a_ranks_speed() -> None:
    """The literal: speeds that nodes have stored under a digest stay theirs with the next version."""
    shape = Transformer(layers=2, hidden=64, heads=4, sequence_length=32, vocabulary=256)
    digest = workload(Model.of(shape)).digest
    assert digest == "b8fbddcf1f6ebcab"
    renamed = tuple(replace(layer, name=f"other.{layer.name}", output_bytes=1) for layer in Model.of(shape).layers)
    assert workload(Model(renamed)).digest == digest
    others = [
        workload(Model.of(shape, "bf16")),
        workload(Model.of(replace(shape, heads=8))),
        workload(Model.of(shape), precision="bf16"),
        workload(Model.of(shape), optimizer="sgd"),
        workload(Model.of(shape), micro_batch=2),
    ]
    assert len({digest, *(other.digest for other in others)}) == 1 + len(others)
