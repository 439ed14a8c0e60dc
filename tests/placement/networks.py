"""Networks of regions for the tests of Hulk's own all-reduce."""

from __future__ import annotations

import math

from hulk_placement.collective.network import Network
from hypothesis import strategies as st

MEGABIT = 125_000.0

PROFILES = {
    "A": {"PO": (70, 60), "OP": (70, 60), "OT": (50, 100), "TO": (50, 100), "PT": (120, 40), "TP": (100, 20)},
    "B": {"PO": (40, 300), "OP": (40, 300), "OT": (60, 200), "TO": (60, 200), "PT": (120, 100), "TP": (120, 100)},
}
"""One-way milliseconds and Mbit/s of three emulated regions."""


def network(
    rate: list[list[float]],
    latency_s: list[list[float]],
    num_ranks: list[int] | None = None,
    uplinks: list[float] | None = None,
) -> Network:
    """A network of regions r0, r1, ...; a rate of 0 is an absent link."""
    num = len(rate)
    counts = num_ranks or [1] * num
    firsts = [sum(counts[:region]) for region in range(num)]
    caps = tuple(uplinks or [math.inf] * num)
    return Network(
        regions=tuple(f"r{region}" for region in range(num)),
        ranks=tuple(tuple(range(first, first + count)) for first, count in zip(firsts, counts, strict=True)),
        rate=tuple(tuple(0.0 if a == b else float(rate[a][b]) for b in range(num)) for a in range(num)),
        latency_s=tuple(
            tuple(0.0 if a == b else float(latency_s[a][b]) if rate[a][b] else math.inf for b in range(num))
            for a in range(num)
        ),
        egress=caps,
        ingress=caps,
        inside_rate=(1e9,) * num,
        inside_latency_s=(0.0001,) * num,
    )


def profile(name: str, num_ranks: int = 1) -> Network:
    """One of the emulated profiles, with as many ranks in each of its three regions."""
    links = PROFILES[name]
    return network(
        [[0.0 if a == b else links[a + b][1] * MEGABIT for b in "POT"] for a in "POT"],
        [[0.0 if a == b else links[a + b][0] / 1e3 for b in "POT"] for a in "POT"],
        [num_ranks] * 3,
    )


@st.composite
def networks(draw: st.DrawFn, least: int = 2, most: int = 4, full: bool = False) -> Network:
    """Connected networks with asymmetric links, some absent, some uplinks, one to three ranks a region."""
    num = draw(st.integers(least, most))
    rates = st.sampled_from([1e5, 1e6, 4e6, 4e6, 2e7])
    rate = [
        [
            0.0 if not full and (b - a) % num not in (1, num - 1) and not draw(st.integers(0, 3)) else draw(rates)
            for b in range(num)
        ]
        for a in range(num)
    ]
    latencies = st.sampled_from([0.001, 0.01, 0.04, 0.1, 0.15])
    uplinks = [draw(st.sampled_from([math.inf, math.inf, 3e6])) for _ in range(num)]
    ranks = [draw(st.integers(1, 3)) for _ in range(num)]
    return network(rate, [[draw(latencies) for _ in range(num)] for _ in range(num)], ranks, uplinks)
