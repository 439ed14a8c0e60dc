"""What a product's label says of it, and which labels say nothing."""

from __future__ import annotations

import re

import pytest
from hulk_placement.accelerators import look_up
from hulk_placement.accelerators.table import PRECISIONS, _table

PRODUCTS = [one.product for one in _table().values()]


@pytest.mark.parametrize(
    ("label", "bf16_tflops", "memory_gb", "memory_gb_per_s", "inside"),
    [
        ("NVIDIA-A100-SXM4-80GB", 312, 80, 2039, "NVLink 3"),
        ("A100-SXM4-40GB", 312, 40, 1555, "NVLink 3"),  # as drivers of 2020 say it
        ("NVIDIA-A100-PCIE-40GB", 312, 40, 1555, "PCIe 4"),
        ("NVIDIA-H100-80GB-HBM3", 989.5, 80, 3350, "NVLink 4"),
        ("NVIDIA-H100-PCIe", 756, 80, 2000, "PCIe 5"),
        ("NVIDIA-H200", 989.5, 141, 4800, "NVLink 4"),
        ("NVIDIA-B200", 2250, 180, 8000, "NVLink 5"),
        ("NVIDIA-GH200-480GB", 989.5, 96, 4000, "NVLink 4"),
        ("NVIDIA-L4", 121, 24, 300, "PCIe 4"),
        ("NVIDIA-L40S", 362, 48, 864, "PCIe 4"),
        ("NVIDIA-A10G", 70, 24, 600, "PCIe 4"),
        ("Tesla-T4", 8.1, 16, 300, "PCIe 3"),  # no units for bf16: as fp32
        ("Tesla-V100-SXM2-32GB", 15.7, 32, 900, "NVLink 2"),
        ("NVIDIA-GeForce-RTX-4090", 165.2, 24, 1008, "PCIe 4"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 312 / 7, 10, 2039 / 8, "host memory"),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 312 * 3 / 7, 20, 1555 / 2, "host memory"),
        ("AMD_Instinct_MI300X_OAM", 1307.4, 192, 5300, "Infinity Fabric"),
        ("NVIDIA-A30-MIG-1g.6gb.me", 165 / 4, 6, 933 / 4, "host memory"),
    ],
)
def test_a_label_is_looked_up(
    label: str, bf16_tflops: float, memory_gb: int, memory_gb_per_s: float, inside: str
) -> None:
    found = look_up(label)
    assert found is not None
    assert found.peak("bf16") == pytest.approx(bf16_tflops * 1e12)
    assert found.memory_bytes == memory_gb * 10**9
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(memory_gb_per_s * 1e9)
    assert found.inside == inside


@pytest.mark.parametrize(
    "label",
    [
        "unknown",
        "lab-cpu",
        "",
        "NVIDIA-",
        "NVIDIA-A100",
        "NVIDIA-A100-SXM4-80GB-SHARED",  # who knows what the others leave
        "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED",
        "NVIDIA-A100-SXM4-80GB-MIG-INVALID",
        "NVIDIA-A100-SXM4-80GB-MIG-1c.3g.40gb",  # a part of an instance
        "NVIDIA-A30-MIG-7g.24gb",  # more slices than there are
        "NVIDIA-A30-MIG-4g.48gb",  # more memory than there is
        "Tesla-T4-MIG-1g.2gb",  # cannot be divided
        "NVIDIA-A30-MIG-1g.6gb-MIG-1g.6gb",
    ],
)
def test_a_label_that_says_nothing(label: str) -> None:
    assert look_up(label) is None


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_row_of_the_table_is_what_a_node_can_have(product: str) -> None:
    found = look_up(product)
    assert found is not None
    assert re.fullmatch(r"((NVIDIA|Tesla)-[-A-Za-z0-9.]{2,55}|AMD_Instinct_[A-Z0-9_]+)", product)
    assert set(found.flops_per_s) <= set(PRECISIONS)
    fp32, tf32, bf16, fp16 = (found.peak(precision) for precision in PRECISIONS)
    assert 8e12 < fp32 <= tf32 < 2e15
    assert fp32 <= bf16 <= fp16 < 4e15
    named_gb = re.search(r"-(\d+)GB", product)
    if named_gb and not product.startswith("NVIDIA-GH200"):  # which names its processor's memory
        assert found.memory_bytes == int(named_gb[1]) * 10**9
    assert 3e11 <= found.memory_bandwidth_bytes_per_s <= 1e13
    assert (found.inside_bytes_per_s < 7e10) == found.inside.startswith("PCIe")
    assert found.mig_slices in (0, 4, 7)
    assert 0.5 <= found.eff_max <= 0.9


def test_a_precision_that_nobody_knows() -> None:
    found = look_up("NVIDIA-H200")
    assert found is not None
    with pytest.raises(ValueError, match="precision 'fp8' is none of fp32, tf32, bf16, fp16"):
        found.peak("fp8")
