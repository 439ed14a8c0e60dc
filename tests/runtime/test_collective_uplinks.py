"""What all connections of a region are paced at together stays within its uplink, whatever is believed of its links."""

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import pytest
from depth import num_examples
from hulk_runtime.collective.connections.pacing import pace_channels, path_bytes, share_out, within_uplinks
from hulk_runtime.collective.connections.peer import Peer
from hulk_runtime.collective.drift.agreement import Drift
from hulk_runtime.collective.drift.flow_versions import Version, first, following, given
from hulk_runtime.collective.drift.link_estimates import Beliefs, LinkEstimate
from hulk_runtime.plan.flows import CollectivePlan, Flow, LinkFigures, Pair, SizeClass, Uplink
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from test_collective_drift_agreement import NUM_BYTES, PACE, RATE, STARS, carried

LINKS = {pair: LinkFigures(RATE, 0.002) for pair in permutations(range(3), 2)}
OUT, INTO = 1.5 * RATE, 1.25 * RATE
PLAN = CollectivePlan(
    ((0, 1), (2,), (3, 4, 5)), LINKS, (SizeClass(1 << 40, 1 << 15, STARS),), uplinks={0: Uplink(OUT, INTO)}
)


@dataclass
class Meter:
    """Of a connection that only counts."""

    def reset(self) -> None:
        """Nothing was measured."""


@dataclass
class Paced:
    """A connection, as far as its pace goes."""

    bytes_per_s: float = 0.0
    meter: Meter = field(default_factory=Meter)
    outlook: Meter = field(default_factory=Meter)

    def pace(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s


def peers_of(plan: CollectivePlan, rank: int) -> dict[int, Peer]:
    found = {other: Peer(other, True) for other in range(plan.num_ranks) if other != rank}
    for peer in found.values():
        channels: list[Any] = [Paced()]
        peer.channels = channels
    return found


def by_link(plan: CollectivePlan, everyone: list[dict[int, Peer]]) -> dict[Pair, float]:
    """What is paced on each link, all ranks together."""
    found: dict[Pair, float] = {}
    for rank, peers in enumerate(everyone):
        for other, peer in peers.items():
            link = (plan.region_of(rank), plan.region_of(other))
            paced: list[Any] = list(peer.channels)
            if link[0] != link[1]:
                found[link] = found.get(link, 0.0) + sum(channel.bytes_per_s for channel in paced)
    return found


def leaving(rates: dict[Pair, float], region: int) -> float:
    return sum(rate for (source, _), rate in rates.items() if source == region)


def entering(rates: dict[Pair, float], region: int) -> float:
    return sum(rate for (_, target), rate in rates.items() if target == region)


def paced_at_the_start(plan: CollectivePlan) -> dict[Pair, float]:
    everyone = [peers_of(plan, rank) for rank in range(plan.num_ranks)]
    for rank, peers in enumerate(everyone):
        pace_channels(plan, rank, peers, PACE)
    return by_link(plan, everyone)


def test_a_region_is_paced_within_its_uplink() -> None:
    rates = paced_at_the_start(PLAN)
    assert leaving(rates, 0) == pytest.approx(PACE * OUT)
    assert entering(rates, 0) == pytest.approx(PACE * INTO)
    assert rates[1, 2] == pytest.approx(PACE * RATE)


def test_without_uplinks_every_link_has_its_own_rate() -> None:
    rates = paced_at_the_start(replace(PLAN, uplinks={}))
    assert all(rate == pytest.approx(PACE * RATE) for rate in rates.values())


def test_a_path_holds_no_more_than_its_uplink_lets_through() -> None:
    free, held = path_bytes(replace(PLAN, uplinks={}), 2), path_bytes(PLAN, 2)
    assert held[0] < 0.7 * free[0]
    assert held[3] == free[3]


def test_a_used_link_has_more_of_an_uplink() -> None:
    """Of the vector 3/4 goes one way: both links of the uplink end at the same time."""
    flows = (Flow(0.75, (0,), ((1, 0), (2, 1)), ((1, 0), (2, 1))), Flow(0.25, (0,), ((2, 0), (1, 2)), ((2, 0), (1, 2))))
    plan = replace(PLAN, classes=(SizeClass(1 << 40, 1 << 15, flows),), uplinks={0: Uplink(RATE)})
    rates = paced_at_the_start(plan)
    assert (rates[0, 1], rates[0, 2]) == pytest.approx((PACE * 0.75 * RATE, PACE * 0.25 * RATE))


def test_a_link_that_is_hardly_used_still_has_room_for_beats() -> None:
    found = share_out(1e6, {(0, 1): 1e6, (0, 2): 1e6}, {(0, 1): 1.0, (0, 2): 1e-9})
    assert found[0, 2] == pytest.approx(1e6 / 17)
    assert sum(found.values()) == pytest.approx(1e6)


RATES = st.floats(1.0, 1e9)


@settings(max_examples=num_examples(200))
@drawn(st.lists(st.tuples(RATES, st.floats(0.01, 2.0)), min_size=1, max_size=6), RATES)
def test_all_of_a_cap_is_shared_and_no_more(links: list[tuple[float, float]], cap: float) -> None:
    rates = {(0, number): rate for number, (rate, _) in enumerate(links, 1)}
    found = share_out(cap, rates, {(0, number): load for number, (_, load) in enumerate(links, 1)})
    assert all(0 < found[link] <= rates[link] for link in rates)
    assert sum(found.values()) == pytest.approx(min(cap, sum(rates.values())))


@settings(max_examples=num_examples(100))
@drawn(
    st.lists(RATES, min_size=6, max_size=6),
    st.dictionaries(st.integers(0, 2), st.builds(Uplink, RATES, RATES), max_size=3),
)
def test_no_uplink_is_exceeded(drawn_rates: list[float], uplinks: dict[int, Uplink]) -> None:
    plan = replace(PLAN, uplinks=uplinks)
    rates = dict(zip(LINKS, drawn_rates, strict=True))
    found = within_uplinks(plan, rates, plan.classes)
    assert all(0 < found[link] <= rates[link] for link in rates)
    for region, uplink in uplinks.items():
        assert leaving(found, region) <= uplink.egress_bytes_per_s * (1 + 1e-9)
        assert entering(found, region) <= uplink.ingress_bytes_per_s * (1 + 1e-9)


# What is measured, and believed.


def what_is_given(plan: CollectivePlan, version: Version, of: float = 1.0) -> list[float]:
    """The figures of links that carry a share of what they are paced at, and no more than was planned."""
    rates = given(plan, version)
    return carried(plan, lambda link: of * min(1.0, PACE * rates[link] / plan.links[link].bytes_per_s))


def test_a_link_that_an_uplink_holds_back_is_not_taken_for_a_slow_one() -> None:
    """Nor are trials paced above the uplink, round after round."""
    version = first(PLAN)
    for _ in range(100):
        version, news = following(PLAN, version, what_is_given(PLAN, version), {0: NUM_BYTES}, PACE)
        assert not news
        rates = given(PLAN, version)
        assert leaving(rates, 0) <= OUT * (1 + 1e-9)
        assert entering(rates, 0) <= INTO * (1 + 1e-9)
    assert all(belief.bytes_per_s == pytest.approx(RATE, rel=0.05) for belief in version.beliefs.values())
    assert version.classes == PLAN.classes


def test_an_uplink_that_carries_less_than_it_is_given_is_found() -> None:
    version, _ = following(PLAN, first(PLAN), what_is_given(PLAN, first(PLAN), 0.5), {0: NUM_BYTES}, PACE)
    assert version.beliefs[0, 1].bytes_per_s < 0.5 * RATE


def test_drift_paces_within_the_uplink_what_it_believes() -> None:
    """Links that are believed, or tried, at twice their planned rate."""
    fast: Beliefs = {link: LinkEstimate.of(1.5 * RATE, boost=1.5) for link in LINKS}
    everyone = [peers_of(PLAN, rank) for rank in range(PLAN.num_ranks)]
    for rank, peers in enumerate(everyone):
        drift = Drift(PLAN, rank, peers, PACE)
        drift._next = replace(drift._now, beliefs=fast)
        drift.begin()
    rates = by_link(PLAN, everyone)
    assert leaving(rates, 0) == pytest.approx(PACE * OUT)
    assert entering(rates, 0) == pytest.approx(PACE * INTO)
    assert rates[1, 2] == pytest.approx(PACE * 2.25 * RATE)
