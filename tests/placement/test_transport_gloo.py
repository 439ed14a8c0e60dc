"""gloo's closed form: buckets, a flow's own limit; and its inverse that searches use."""

from __future__ import annotations

import pytest
import worlds
from hulk_placement.cost.gloo import SOFTWARE_S, Ring, cut_ring, quickest
from hulk_placement.cost.point_to_point import send_receive_s
from hulk_placement.topology import Link
from hypothesis import given
from hypothesis import strategies as st

RINGS = st.builds(cut_ring, st.integers(1, 1 << 28), st.integers(2, 60), st.integers(1, 2))
MIB = 1 << 20


def test_two_buckets_fill_the_link_while_one_turns_round() -> None:
    """Two ranks, two buckets of 4 MiB, x = 0.1 s, R = 0.3: a burst of the other lasts 0.2, so R - 0.2 is left idle."""
    ring, rate = cut_ring(8 * MIB, 2, 2), MIB / 0.1
    rtt_s = 0.3 - SOFTWARE_S
    assert ring.edge_s(rtt_s, rate, 1) == pytest.approx(2 * 2 * 2 * 0.1 + 0.3 + 0.1)
    assert cut_ring(4 * MIB, 2, 1).edge_s(rtt_s, rate, 1) == pytest.approx(2 * (0.3 + 0.2))


def test_a_flow_that_gets_less_than_its_link() -> None:
    ring = cut_ring(MIB, 4, 1)
    assert ring.edge_s(0.1, 1e8, 1, 1e6) == ring.edge_s(0.1, 1e6, 1)
    assert ring.edge_s(0.1, 1e6, 1, 1e8) == ring.edge_s(0.1, 1e6, 1)
    assert ring.edge_s(0.1, 1e8, 200, 1e6) == ring.edge_s(0.1, 1e8, 200)


@given(RINGS, worlds.RTTS, worlds.BANDWIDTHS, st.none() | worlds.BANDWIDTHS, st.integers(0, 30), st.floats(0.001, 1e4))
def test_most_sharing_is_the_most_that_meets_the_limit(
    ring: Ring, rtt: float, rate: float, flow: float | None, at_most: int, limit: float
) -> None:
    allowed = [q for q in range(1, at_most + 1) if ring.edge_s(rtt, rate, q, flow) <= limit]
    assert ring.max_sharing(rtt, rate, limit, at_most, flow) == max(allowed, default=0)


@given(
    st.integers(1, 1 << 28),
    st.lists(st.integers(2, 60), min_size=1, max_size=5),
    st.integers(1, 2),
    worlds.RTTS,
    worlds.BANDWIDTHS,
    st.integers(1, 20),
)
def test_the_quickest_ring_bounds_all(
    size: int, nums: list[int], buckets: int, rtt: float, rate: float, sharing: int
) -> None:
    rings = [cut_ring(size, num, buckets) for num in nums]
    least = min(ring.edge_s(rtt, rate, sharing) for ring in rings)
    assert quickest(rings).edge_s(rtt, rate, sharing) <= least * (1 + 1e-12)


@given(RINGS, worlds.RTTS, worlds.BANDWIDTHS, st.integers(1, 20))
def test_more_sharing_a_slower_link_or_a_longer_way_is_never_quicker(
    ring: Ring, rtt: float, rate: float, sharing: int
) -> None:
    seconds = ring.edge_s(rtt, rate, sharing)
    assert ring.edge_s(rtt, rate, sharing + 1) >= seconds
    assert ring.edge_s(rtt, rate / 2, sharing) >= seconds
    assert ring.edge_s(rtt + 0.01, rate, sharing) >= seconds


@pytest.mark.parametrize(
    ("receive_posted_s", "seconds"),
    [(-1.0, 0.05 + 0.5), (-0.05, 0.05 + 0.5), (-0.02, 0.08 + 0.5), (0.0, 0.1 + 0.5), (0.3, 0.4 + 0.5)],
)
def test_a_receive_posted_early_saves_a_way(receive_posted_s: float, seconds: float) -> None:
    link = Link(0.1 - SOFTWARE_S, 2e6)
    assert send_receive_s(link, 1e6, receive_posted_s) == pytest.approx(seconds)
    assert send_receive_s(Link(link.rtt_s, 4e6, flow_bytes_per_s=2e6), 1e6, receive_posted_s) == pytest.approx(seconds)
    assert send_receive_s(Link(link.rtt_s, 4e6), 1e6, receive_posted_s, num_sharing=2) == pytest.approx(seconds)


@pytest.mark.parametrize("flow", [0.0, -1.0, float("nan"), float("inf")])
def test_a_flow_of_no_bytes(flow: float) -> None:
    with pytest.raises(ValueError, match="one flow's"):
        Link(0.1, 1e6, flow_bytes_per_s=flow)
