"""Random topologies, for the round trip through every document."""

from __future__ import annotations

from typing import Any

from hulk_placement.files.links import UNKNOWN
from hulk_placement.topology import Link, LinkKind, Machine, Topology
from hypothesis import strategies as st

NAMES = st.text(st.sampled_from("abz09-. é:#'"), min_size=1, max_size=4).filter(lambda name: name == name.strip())
FIGURES = st.floats(min_value=1e-9, max_value=1e18, allow_subnormal=False)
PRICES = st.floats(min_value=0, max_value=1e6)
KINDS = st.sampled_from([kind for kind in LinkKind if kind is not LinkKind.UNKNOWN])
LINKS = st.one_of(
    st.just(UNKNOWN),
    st.builds(
        Link,
        rtt_s=FIGURES,
        bandwidth_bytes_per_s=FIGURES,
        num_streams=st.integers(1, 64),
        age_s=PRICES,
        kind=KINDS,
        flow_bytes_per_s=st.none() | FIGURES,
    ),
)
INSIDE = st.builds(Link, FIGURES, FIGURES, kind=st.just(LinkKind.DECLARED))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to six machines in up to three regions, whose names may be those of machines."""
    regions = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    machines = tuple(
        draw(
            st.builds(
                Machine,
                name=st.just(name),
                region=st.sampled_from(regions),
                zone=st.just("") | NAMES,
                num_accelerators=st.integers(0, 16),
                product=st.just("unknown") | NAMES,
                memory_bytes=st.integers(0, 2**53),
                flops_per_s=st.none() | FIGURES,
                memory_bandwidth_bytes_per_s=st.just(0.0) | FIGURES,
                inside=st.none() | INSIDE,
                price_per_hour=PRICES,
            )
        )
        for name in names
    )
    used = sorted({machine.region for machine in machines})
    pairs: Any = st.tuples(st.sampled_from(used), st.sampled_from(used))
    of_nodes = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    return Topology(
        machines,
        node_links=draw(st.dictionaries(of_nodes, LINKS, max_size=6)) if len(names) > 1 else {},
        region_links=draw(st.dictionaries(pairs, LINKS, max_size=6)),
        uplinks=draw(st.dictionaries(st.sampled_from(used), FIGURES)),
        egress_price_per_gb=draw(st.dictionaries(pairs, PRICES, max_size=4)),
    )
