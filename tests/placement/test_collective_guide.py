"""docs/how-it-works/all-reduce-shares.md: what it computes by hand is what the planner computes."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hulk_placement.collective.bound import Bound
from hulk_placement.collective.candidates import Sharer
from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Pattern
from hulk_placement.collective.program import closed_form_s
from hulk_placement.collective.simulation import simulate
from hulk_placement.collective.timing import delays
from hulk_placement.collective.transport import TRANSPORT

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "how-it-works" / "all-reduce-shares.md").read_text()
NUM_BYTES = 1_000_000
CHUNK_BYTES = 100
WIDE = (math.inf, math.inf, math.inf)
GUIDE = Network(
    regions=("a", "b", "c"),
    ranks=((0,), (1,), (2,)),
    rate=((0, 10e6, 2e6), (10e6, 0, 10e6), (2e6, 10e6, 0)),
    latency_s=((0, 0.05, 0.1), (0.05, 0, 0.05), (0.1, 0.05, 0)),
    egress=WIDE,
    ingress=WIDE,
    inside_rate=WIDE,
    inside_latency_s=(0, 0, 0),
)
IDEAL = replace(TRANSPORT, pace=1.0, hop_s=0.0, start_s=0.0, stretch=1.0)
HUB, DIRECT = Pattern((1, 1, 1), (1, 1, 1)), Pattern((0, 1, 2), (0, 1, 2))
PLANS = {
    "all to all": (Flow(1.0, DIRECT),),
    "hub b": (Flow(1.0, HUB),),
    "5/6 over hub b, 1/6 all to all": (Flow(5 / 6, HUB), Flow(1 / 6, DIRECT)),
}


def test_the_bound() -> None:
    assert Bound(GUIDE).seconds(NUM_BYTES) == pytest.approx(0.1 + 1 / 12)
    assert "0.1 + 1/12 = **0.1833 s**" in TEXT


@pytest.mark.parametrize(("name", "seconds"), [("all to all", 0.6), ("hub b", 0.2), (list(PLANS)[2], 0.1833)])
def test_the_rows(name: str, seconds: float) -> None:
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {name} |")]
    assert row.endswith(f"| {seconds:g} |")
    assert closed_form_s(PLANS[name], NUM_BYTES, delays(GUIDE, IDEAL, 0)) == pytest.approx(seconds, abs=1e-4)
    assert simulate(GUIDE, PLANS[name], NUM_BYTES, CHUNK_BYTES, IDEAL).seconds == pytest.approx(seconds, rel=0.02)


def test_the_program_finds_the_shares() -> None:
    seconds, flows = Sharer(GUIDE, IDEAL, 0).sharings(NUM_BYTES, 0.2)[0]
    assert seconds == pytest.approx(0.1 + 1 / 12, rel=1e-3)
    over_b = [flow.share for flow in flows if 1 in flow.pattern.exchange and len(flow.pattern.exchange) < 3]
    assert sum(over_b) == pytest.approx(5 / 6, abs=0.01)  # whether b and one more exchange is all the same here
