"""gloo's ring in closed form against measured all-reduces, and its parts against values worked out by hand."""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import worlds
from hulk_placement.cost.gloo import MAX_SEGMENT_BYTES, SOFTWARE_S, Ring, cut_ring
from hulk_placement.cost.predict import allreduce
from hulk_placement.topology import Link, Machine, Topology
from hypothesis import given
from hypothesis import strategies as st

from bench.data import ALLREDUCES


@dataclass(frozen=True)
class Row:
    """One measured all-reduce with cubic, its prediction, and whether its bursts fit the router's buffer."""

    profile: str
    order: str
    num_bytes: int
    measured_s: float
    predicted_s: float
    fits: bool

    @property
    def error(self) -> float:
        return abs(self.predicted_s / self.measured_s - 1)


def predicted_s(profile: str, order: str, num_bytes: int, mtu: int = 1500) -> float:
    return allreduce(order.split(), num_bytes, 1, worlds.profile(profile, mtu))[0]


def burst_fits(profile: str, order: str, num_bytes: int, buffer_s: float) -> bool:
    """Whether two segments of every ring edge on a link fit in the buffer in front of it."""
    ranks = order.split()
    burst = 2 * cut_ring(num_bytes, len(ranks), 1).segment_bytes
    edges = Counter((ranks[r][0], ranks[r - 1][0]) for r in range(len(ranks)))
    rates = worlds.PROFILES[profile]
    return all(burst * q <= rates[a + b][1] * 1e6 / 8 * buffer_s for (a, b), q in edges.items() if a != b)


def measured() -> Iterator[Row]:
    for row in csv.DictReader(ALLREDUCES.open()):
        if row["congestion_control"] == "cubic":
            case = row["profile"], row["rank_order"], int(row["num_bytes"])
            fits = burst_fits(*case, float(row["router_buffer_s"]))
            yield Row(*case, float(row["median_s"]), predicted_s(*case, int(row["mtu"])), fits)


def test_mean_error_over_all_measured_rows_within_the_buffer() -> None:
    rows = [row for row in measured() if row.fits]
    assert len(rows) >= 40
    assert statistics.mean(row.error for row in rows) < 0.02
    assert max(row.error for row in rows) < 0.17


def test_rows_beyond_the_buffer_are_longer_than_predicted() -> None:
    rows = [row for row in measured() if not row.fits]
    assert rows
    assert all(row.measured_s > row.predicted_s for row in rows)


@pytest.mark.parametrize(
    ("profile", "order", "num_bytes", "seconds"),
    [
        ("A", "P0 P1 O0 T0 T1 O1", 1 << 18, 1.455),
        ("A", "P0 P1 O0 T0 T1 O1", 1 << 20, 1.564),
        ("A", "P0 P1 O0 T0 T1 O1", 1 << 22, 2.013),
        ("A", "P0 P1 O0 O1 T0 T1", 1 << 18, 2.260),
        ("A", "P0 P1 O0 O1 T0 T1", 1 << 20, 2.427),
        ("A", "P0 P1 O0 O1 T0 T1", 1 << 22, 3.086),
        ("B", "P0 P1 O0 T0 T1 O1", 1 << 18, 1.221),
        ("B", "P0 P1 O0 T0 T1 O1", 1 << 22, 1.388),
        ("B", "P0 P1 O0 T0 T1 O1", 1 << 24, 2.573),
        ("B", "P0 P1 O0 O1 T0 T1", 1 << 18, 2.431),
        ("B", "P0 P1 O0 O1 T0 T1", 1 << 22, 2.760),
        ("B", "P0 P1 O0 O1 T0 T1", 1 << 24, 5.326),
    ],
)
def test_measured_orders(profile: str, order: str, num_bytes: int, seconds: float) -> None:
    assert predicted_s(profile, order, num_bytes) == pytest.approx(seconds, rel=0.045)


def test_by_hand() -> None:
    """Two ranks, 4 MiB: N = roundup(max(4, 4), 2) = 4 segments of 1 MiB, k = 2 a rank, K = (2 - 1) 2 = 2 hops."""
    ring = cut_ring(4 << 20, 2, 1)
    assert ring == Ring(num_hops=2, segment_bytes=1 << 20, num_buckets=1)
    round_trip_s, segment_s = 0.1 + SOFTWARE_S, (1 << 20) / 1e7
    waiting_s = (round_trip_s + segment_s) + segment_s  # even K: floor(2 / 2) round trips, then one segment
    full_s = round_trip_s + 2 * 3 * segment_s  # three edges share the link
    assert ring.edge_s(0.1, 1e7, 1) == pytest.approx(2 * waiting_s)
    assert ring.edge_s(0.1, 1e7, 3) == pytest.approx(2 * full_s)


def test_two_buckets_lift_the_cap_of_two_segments_in_flight() -> None:
    far = {"rtt_s": 0.2, "bandwidth_bytes_per_s": 1e9, "num_sharing": 1}
    one = cut_ring(256 << 20, 4, 1).edge_s(**far)
    two = cut_ring(256 << 20, 4, 2).edge_s(**far)
    assert 1.9 < one / two < 2.1


def test_data_flows_from_a_rank_to_the_one_before_it() -> None:
    """Only a -> b is slow: the ring that uses it is the one in which a comes right after b."""
    machines = tuple(Machine(name, name) for name in "abc")
    links = {(x, y): Link(0.1, 1e3 if x + y == "ab" else 1e8) for x in "abc" for y in "abc" if x != y}
    topology = Topology(machines, region_links=links)
    slow, worst = allreduce(["b", "a", "c"], 1 << 20, 1, topology)
    fast, _ = allreduce(["c", "a", "b"], 1 << 20, 1, topology)
    assert worst == ("a", "b")
    assert slow > 100 * fast


def test_one_rank_has_nobody_to_talk_to() -> None:
    assert allreduce(["P0"], 1 << 20, 1, worlds.profile("A")) == (0.0, None)


def test_an_uplink_holds_back_all_that_leaves_a_region() -> None:
    topology = worlds.profile("B")
    narrow = Topology(topology.machines, region_links=topology.region_links, uplinks={"O": 1e5})
    order = ["P0", "P1", "O0", "T0", "T1", "O1"]
    ring = cut_ring(1 << 20, 6, 1)
    assert allreduce(order, 1 << 20, 1, narrow)[0] == pytest.approx(ring.uplink_s(1e5, num_edges=2))


@given(
    st.integers(1, 1 << 30),
    st.integers(2, 1000),
    st.integers(1, 2),
)
def test_segments_hold_the_bytes_and_stay_small(num_bytes: int, num_ranks: int, num_buckets: int) -> None:
    ring = cut_ring(num_bytes, num_ranks, num_buckets)
    per_rank = ring.num_hops // (num_ranks - 1)
    assert ring.segment_bytes * per_rank * num_ranks * num_buckets >= num_bytes * (1 - 1e-12)
    assert ring.segment_bytes <= MAX_SEGMENT_BYTES
    assert per_rank >= 2
