"""The efficiency curve: never faster in smaller pieces, never faster than the data sheet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.accelerators import Accelerator, look_up
from hulk_placement.accelerators.table import PRECISIONS, _table
from hulk_placement.cost.efficiency import LAUNCH_S, layer_seconds, seconds
from hulk_placement.model import Layer
from hypothesis import given
from hypothesis import strategies as st

ROUNDING = 1 + 1e-9
PRODUCTS = st.sampled_from(sorted(one.product for one in _table().values()))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Layers of any size: with and without parameters, FLOPs, activations."""
    kept = draw(st.sampled_from([0, 10**4, 10**7, 10**9]))
    flops = draw(st.sampled_from([0.0, 1e6, 1e9, 1e12]))
    return Layer(
        name="layer",
        num_parameters=draw(st.sampled_from([0, 100, 10**6, 10**9])),
        forward_flops=flops,
        backward_flops=draw(st.sampled_from([1, 2, 3])) * flops,
        output_bytes=100,
        activation_bytes=kept,
        replicated_activation_bytes=draw(st.sampled_from([0, kept // 3, kept])),
    )


def known(product: str) -> Accelerator:
    found = look_up(product)
    assert found is not None
    return found


@given(PRODUCTS, st.sampled_from(PRECISIONS), layers(), st.sampled_from([0.5, 1, 3, 64]), st.sampled_from([1, 2, 8]))
def test_larger_micro_batches_take_longer_and_less_for_each_sequence(
    product: str, precision: str, layer: Layer, micro_batch: float, tensor: int
) -> None:
    smaller = seconds(known(product), precision, layer, micro_batch, tensor)
    larger = seconds(known(product), precision, layer, 2 * micro_batch, tensor)
    for small_s, large_s in zip(smaller, larger, strict=True):
        assert small_s <= large_s <= 2 * small_s * ROUNDING


@given(PRODUCTS, st.sampled_from(PRECISIONS), layers(), st.sampled_from([1, 4]), st.sampled_from([1, 2, 4]))
def test_a_larger_tensor_degree_takes_less_and_more_of_all_ranks_together(
    product: str, precision: str, layer: Layer, micro_batch: float, tensor: int
) -> None:
    fewer = seconds(known(product), precision, layer, micro_batch, tensor)
    more = seconds(known(product), precision, layer, micro_batch, 2 * tensor)
    for few_s, many_s in zip(fewer, more, strict=True):
        assert many_s <= few_s * ROUNDING
        assert 2 * many_s >= few_s / ROUNDING


@given(PRODUCTS, st.sampled_from(PRECISIONS), layers(), st.sampled_from([1, 32]), st.sampled_from([1, 8]))
def test_nothing_is_faster_than_the_data_sheet(
    product: str, precision: str, layer: Layer, micro_batch: float, tensor: int
) -> None:
    accelerator = known(product)
    forward_s, backward_s = seconds(accelerator, precision, layer, micro_batch, tensor)
    peak = accelerator.eff_max * accelerator.peak(precision)
    assert forward_s >= micro_batch * layer.forward_flops / tensor / peak / ROUNDING
    assert backward_s >= micro_batch * layer.backward_flops / tensor / peak / ROUNDING
    kept_s = micro_batch * layer.activation_bytes / tensor / accelerator.memory_bandwidth_bytes_per_s
    assert min(forward_s, backward_s) >= kept_s + LAUNCH_S


@given(PRODUCTS, layers(), st.sampled_from([1, 32]))
def test_a_better_data_sheet_is_never_slower(product: str, layer: Layer, micro_batch: float) -> None:
    plain = known(product)
    faster = replace(plain, flops_per_s={precision: 2 * flops for precision, flops in plain.flops_per_s.items()})
    wider = replace(plain, memory_bandwidth_bytes_per_s=2 * plain.memory_bandwidth_bytes_per_s)
    for better in (faster, wider):
        for new_s, old_s in zip(
            seconds(better, "bf16", layer, micro_batch), seconds(plain, "bf16", layer, micro_batch), strict=True
        ):
            assert new_s <= old_s * ROUNDING


def test_by_hand() -> None:
    """1 TFLOP/s, 1 GB/s, 4-byte values: I_half = 0.75e12 x 4 / 2e9 = 1500; M = 750, n = 1500: I = 375, a fifth."""
    plain = Accelerator("p", {"fp32": 1e12}, 0.75, 0, 1e9, "none", 1.0)
    layer = Layer("l", 1500 * 1500, 2 * 750 * 1500**2, 4 * 750 * 1500**2, 0, 10**6)
    reached = 0.75e12 / 5
    forward_s, backward_s = seconds(plain, "fp32", layer, 1.0)
    assert forward_s == pytest.approx(2 * 750 * 1500**2 / reached + 2e-3 + LAUNCH_S)
    assert backward_s == pytest.approx(4 * 750 * 1500**2 / reached + 4e-3 + 2 * LAUNCH_S)


def test_half_precision_is_faster_where_there_are_units_for_it() -> None:
    layer = Layer("l", 10**8, 1e12, 2e12, 0, 10**6)
    for product, factor in (("NVIDIA-A100-SXM4-80GB", 16), ("Tesla-V100-SXM2-16GB", 8), ("Tesla-P100-PCIE-16GB", 1)):
        slow, fast = (sum(seconds(known(product), precision, layer, 16)) for precision in ("fp32", "fp16"))
        assert slow / fast == pytest.approx(factor, rel=0.1), product


def test_layers_are_what_they_are_alone() -> None:
    many = [Layer("a", 10**6, 1e9, 2e9, 0, 10**6), Layer("b", 0, 0.0, 0.0, 0, 0), Layer("c", 10**3, 1e12, 2e12, 0, 1)]
    accelerator = known("NVIDIA-L4")
    forward_s, backward_s = layer_seconds(accelerator, "bf16", many, 4, 2)
    assert list(zip(forward_s, backward_s, strict=True)) == [seconds(accelerator, "bf16", one, 4, 2) for one in many]


@pytest.mark.parametrize(("micro_batch", "tensor"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_bad_sizes_are_refused(micro_batch: float, tensor: int) -> None:
    with pytest.raises(ValueError, match=f"micro-batch {micro_batch} must be > 0 and tensor degree {tensor} >= 1"):
        seconds(known("NVIDIA-L4"), "bf16", Layer("l", 1, 1.0, 1.0, 0, 0), micro_batch, tensor)
