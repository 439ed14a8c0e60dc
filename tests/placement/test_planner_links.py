"""What is known about the link of any two machines."""

from __future__ import annotations

import pytest
from hulk_placement.topology import Link, LinkKind, Machine, Topology

MACHINES = tuple(Machine(f"{region}{number}", region) for region in "abcd" for number in range(3))
OWN = {
    ("a0", "b0"): Link(0.100, 1e6),
    ("a1", "b1"): Link(0.120, 3e6, age_s=50),
    ("a2", "b2"): Link(0.900, 2e6),
    ("a0", "a1"): Link(0.002, 1e9),
    ("a1", "a2"): Link(0.001, 3e9),
    ("a0", "gone"): Link(0.5, 1.0),
}
DECLARED = Link(0.050, 5e6, kind=LinkKind.DECLARED)
TOPOLOGY = Topology(MACHINES, OWN, {("b", "c"): DECLARED})


@pytest.mark.parametrize(
    ("name", "source", "target", "kind", "rtt_s", "bandwidth", "shared"),
    [
        ("its own", "a0", "b0", LinkKind.MEASURED, 0.100, 1e6, ("a", "b")),
        ("median of the region pair", "a0", "b1", LinkKind.INFERRED, 0.120, 2e6, ("a", "b")),
        ("median inside a region", "a2", "a0", LinkKind.INFERRED, 0.0015, 2e9, None),
        ("declared for the regions", "b1", "c1", LinkKind.INFERRED, 0.050, 5e6, ("b", "c")),
        ("the other direction says nothing", "b0", "a0", LinkKind.UNKNOWN, 2.0, 125_000, ("b", "a")),
        ("inside of a region never measured", "b0", "b1", LinkKind.UNKNOWN, 2.0, 125_000, None),
        ("the machine itself", "d0", "d0", LinkKind.INFERRED, 0.0001, 1e9, None),
    ],
)
def test_link(
    name: str, source: str, target: str, kind: LinkKind, rtt_s: float, bandwidth: float, shared: tuple[str, str] | None
) -> None:
    link = TOPOLOGY.link(source, target)
    assert (link.kind, link.shared) == (kind, shared)
    assert (link.rtt_s, link.bandwidth_bytes_per_s) == (pytest.approx(rtt_s), pytest.approx(bandwidth))


def test_an_inferred_link_is_as_old_as_the_oldest_it_comes_from() -> None:
    assert TOPOLOGY.link("a0", "b1").age_s == 50


def test_a_machine_that_is_gone_has_no_link() -> None:
    with pytest.raises(KeyError):
        TOPOLOGY.link("a0", "gone")
