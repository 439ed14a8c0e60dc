"""A plan with its basis, and the cluster now -> what has changed, each change as a value and as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hulk_placement.basis import Basis
from hulk_placement.plan import Plan
from hulk_placement.topology import Link, LinkKind, Pair, Topology
from hulk_placement.workload import Workload

LEAST_RTT_CHANGE_S = 0.001
"""What a round trip may vary by without meaning anything, however short it is."""


@dataclass(frozen=True, slots=True)
class MachineLost:
    """A machine of the plan with fewer accelerators for it than the plan holds; 0 where there is no such machine."""

    name: str
    num_held: int
    num_left: int

    def __str__(self) -> str:
        if self.num_left:
            return f"{self.name} has {self.num_left} of the {self.num_held} accelerators left that the plan holds there"
        return f"{self.name} was lost, with {self.num_held} of the plan's accelerators"


@dataclass(frozen=True, slots=True)
class MachineAdded:
    """A machine with accelerators that were not there when the plan was made."""

    name: str
    region: str
    num_before: int
    num_now: int

    def __str__(self) -> str:
        return f"{self.name} in {self.region} has {self.num_now} accelerators, {self.num_before} before"


@dataclass(frozen=True, slots=True)
class LinkDrifted:
    """A directed link, of regions or machines, with other figures than when the plan was made."""

    pair: Pair
    before: Link
    now: Link

    @property
    def factor(self) -> float:
        """How many times as much or as little the figure is that changed most; 1 is no change."""
        return drift_factor(self.before, self.now)

    def __str__(self) -> str:
        before, now = self.before, self.now
        return (
            f"{self.pair[0]} -> {self.pair[1]} went from {_figures(before)} to {_figures(now)} "
            f"(by a factor of {self.factor:.2f})"
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that changed; `drifted` has the links with any change of figures, the most changed first.

    `is_whole` says that what the plan was made of is known, so that nothing else has changed.
    """

    lost: tuple[MachineLost, ...] = ()
    added: tuple[MachineAdded, ...] = ()
    drifted: tuple[LinkDrifted, ...] = ()
    is_whole: bool = True

    def beyond(self, factor: float) -> tuple[LinkDrifted, ...]:
        """The links that drifted by at least that factor."""
        return tuple(drift for drift in self.drifted if drift.factor >= factor)


def changes(plan: Plan, basis: Basis | None, workload: Workload, topology: Topology) -> Changes:
    """What is different now. Without a basis only the machines of the plan that were lost can be known."""
    there = {m.name: m for m in topology.machines if m.name in workload.candidates}
    lost = tuple(
        MachineLost(name, held, there[name].num_accelerators if name in there else 0)
        for name, held in plan.accelerators().items()
        if name not in there or there[name].num_accelerators < held
    )
    if basis is None:
        return Changes(lost, is_whole=False)
    added = tuple(
        MachineAdded(name, machine.region, before, machine.num_accelerators)
        for name, machine in there.items()
        if (before := basis.accelerators.get(name, 0)) < machine.num_accelerators
    )
    drifted = sorted(_drifted(basis, topology), key=lambda drift: (-drift.factor, drift.pair))
    return Changes(lost, added, tuple(drifted))


def _drifted(basis: Basis, topology: Topology) -> Iterator[LinkDrifted]:
    """Links that are known then and now, with other figures."""
    names = {machine.name for machine in topology.machines}
    now = {pair: topology.link(*pair) for pair in basis.machine_links if names.issuperset(pair)}
    yield from _differing(basis.machine_links, now)
    yield from _differing(basis.region_links, {pair: topology.region_link(*pair) for pair in basis.region_links})


def _differing(before: Mapping[Pair, Link], now: Mapping[Pair, Link]) -> Iterator[LinkDrifted]:
    for pair in before.keys() & now.keys():
        if now[pair].kind is not LinkKind.UNKNOWN and drift_factor(before[pair], now[pair]) > 1.0:
            yield LinkDrifted(pair, before[pair], now[pair])


def drift_factor(before: Link, now: Link) -> float:
    """How many times as much or as little a link's figures are, the larger of bandwidth and round trip; at least 1.

    >>> drift_factor(Link(0.02, 1e8), Link(0.03, 5e7)), drift_factor(Link(0.0001, 1e8), Link(0.0005, 1e8))
    (2.0, 1.0)
    """
    found = _factor(before.bandwidth_bytes_per_s, now.bandwidth_bytes_per_s)
    if abs(before.rtt_s - now.rtt_s) > LEAST_RTT_CHANGE_S:
        found = max(found, _factor(max(before.rtt_s, LEAST_RTT_CHANGE_S), max(now.rtt_s, LEAST_RTT_CHANGE_S)))
    return found


def _factor(before: float, now: float) -> float:
    return max(before / now, now / before)


def _figures(link: Link) -> str:
    return f"{link.rtt_s * 1e3:.3g} ms and {link.bandwidth_bytes_per_s * 8 / 1e6:.4g} Mbit/s"
