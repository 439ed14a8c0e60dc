"""Links inside machines, prices, memory bandwidth: what a topology says of them and what it refuses."""

from __future__ import annotations

import pytest
from hulk_placement.topology import SAME_MACHINE, Link, LinkKind, Machine, Topology
from hypothesis import given
from hypothesis import strategies as st


def test_the_link_inside_a_machine_is_declared_else_its_products_else_its_memory() -> None:
    declared = Link(1e-5, 5e10, kind=LinkKind.DECLARED)
    topology = Topology(
        (
            Machine("own", "r", product="NVIDIA-H200", inside=declared),
            Machine("sheet", "r", product="NVIDIA-H200"),
            Machine("older", "r", product="NVIDIA-A100-SXM4-40GB"),
            Machine("card", "r", product="NVIDIA-L40S"),
            Machine("unknown", "r", product="cpu"),
        )
    )
    assert topology.inside("own") is declared
    rates = [topology.inside(name).bandwidth_bytes_per_s for name in ("sheet", "older", "card", "unknown")]
    assert rates == pytest.approx([3.6e11, 2.4e11, 2.56e10, 1e9])
    assert topology.inside("sheet").kind is LinkKind.INFERRED
    assert topology.link("sheet", "sheet") == topology.inside("unknown") == SAME_MACHINE  # gloo goes through memory


@given(st.sampled_from([1, 100, 10**6, 10**9]), st.floats(0, 1), st.floats(1, 1e12))
def test_a_larger_message_takes_longer_and_less_for_each_byte(num_bytes: int, rtt_s: float, rate: float) -> None:
    link = Link(rtt_s, rate)
    assert link.message_s(num_bytes) < link.message_s(2 * num_bytes) <= 2 * link.message_s(num_bytes) * (1 + 1e-9)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_figures_that_cannot_be_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"machine m: memory bandwidth {value} B/s"):
        Machine("m", "r", memory_bandwidth_bytes_per_s=value)
    with pytest.raises(ValueError, match=f"machine m: .* price {value} an hour must be >= 0"):
        Machine("m", "r", price_per_hour=value)
    with pytest.raises(ValueError, match=f"egress eu to us: price {value} a GB must be >= 0"):
        Topology((), egress_price_per_gb={("eu", "us"): value})
