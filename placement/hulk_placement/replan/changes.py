"""A plan with its basis, and the cluster now -> what has changed, each change as a value and as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

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
    what: ClassVar[str] = "link"

    @property
    def key(self) -> tuple[str, ...]:
        """What tells one drift from another."""
        return self.pair

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
class FigureDrifted:
    """An uplink (bytes/s; `name` is its region) or a speed (FLOP/s; of a machine) that was stated then and is now."""

    what: Literal["uplink", "speed"]
    name: str
    before: float
    now: float

    @property
    def key(self) -> tuple[str, ...]:
        """What tells one drift from another."""
        return self.what, self.name

    @property
    def factor(self) -> float:
        """How many times as much or as little it is; 1 is no change."""
        return _factor(self.before, self.now)

    def __str__(self) -> str:
        unit, size = ("Mbit/s", 125_000) if self.what == "uplink" else ("TFLOP/s", 10**12)
        figures = f"from {self.before / size:.4g} to {self.now / size:.4g} {unit}"
        return f"the {self.what} of {self.name} went {figures} (by a factor of {self.factor:.2f})"


Drifted = LinkDrifted | FigureDrifted


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that changed; `drifted` has the links with any change of figures, the most changed first, and
    `figures` the uplinks and speeds.

    `is_whole` says that what the plan was made of is known, so that nothing else has changed.
    """

    lost: tuple[MachineLost, ...] = ()
    added: tuple[MachineAdded, ...] = ()
    drifted: tuple[LinkDrifted, ...] = ()
    figures: tuple[FigureDrifted, ...] = ()
    is_whole: bool = True

    def beyond(self, factor: float) -> tuple[Drifted, ...]:
        """What drifted by at least that factor, the most changed first."""
        every: list[Drifted] = [*self.drifted, *self.figures]
        return tuple(sorted((one for one in every if one.factor >= factor), key=lambda one: -one.factor))


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
    speeds = {name: machine.flops_per_s for name, machine in there.items() if machine.flops_per_s is not None}
    figures = (*_other("uplink", basis.uplinks, topology.uplinks), *_other("speed", basis.speeds, speeds))
    return Changes(lost, added, tuple(drifted), figures)


def _drifted(basis: Basis, topology: Topology) -> Iterator[LinkDrifted]:
    """Links that were known, with other figures now; those of an unknown link where nothing is known any more."""
    names = {machine.name for machine in topology.machines}
    regions = {machine.region for machine in topology.machines}
    now = {pair: topology.link(*pair) for pair in basis.machine_links if names.issuperset(pair)}
    yield from _differing(basis.machine_links, now)
    there = [pair for pair in basis.region_links if regions.issuperset(pair)]
    yield from _differing(basis.region_links, {pair: topology.region_link(*pair) for pair in there})


def _other(
    what: Literal["uplink", "speed"], before: Mapping[str, float], now: Mapping[str, float]
) -> Iterator[FigureDrifted]:
    """Figures that are stated then and now, and are not the same."""
    for name in before:
        if name in now and now[name] != before[name]:
            yield FigureDrifted(what, name, before[name], now[name])


def _differing(before: Mapping[Pair, Link], now: Mapping[Pair, Link]) -> Iterator[LinkDrifted]:
    for pair in before.keys() & now.keys():
        if drift_factor(before[pair], now[pair]) > 1.0:
            yield LinkDrifted(pair, before[pair], now[pair])


def drift_factor(before: Link, now: Link) -> float:
    """How many times as much or as little a link's figures are; at least 1.

    It is the largest of bandwidth, what one flow gets of it (uplinks counted) and round trip.

    >>> drift_factor(Link(0.02, 1e8), Link(0.03, 5e7)), drift_factor(Link(0.0001, 1e8), Link(0.0005, 1e8))
    (2.0, 1.0)
    """
    found = max(
        _factor(before.bandwidth_bytes_per_s, now.bandwidth_bytes_per_s),
        _factor(before.one_flow_bytes_per_s, now.one_flow_bytes_per_s),
    )
    if abs(before.rtt_s - now.rtt_s) > LEAST_RTT_CHANGE_S:
        found = max(found, _factor(max(before.rtt_s, LEAST_RTT_CHANGE_S), max(now.rtt_s, LEAST_RTT_CHANGE_S)))
    return found


def _factor(before: float, now: float) -> float:
    return max(before / now, now / before)


def _figures(link: Link) -> str:
    if link.kind is LinkKind.UNKNOWN:
        return "nothing that is known"
    rate, flow = link.bandwidth_bytes_per_s, link.one_flow_bytes_per_s
    one = f", {flow * 8 / 1e6:.4g} Mbit/s of one flow" if flow < rate else ""
    return f"{link.rtt_s * 1e3:.3g} ms and {rate * 8 / 1e6:.4g} Mbit/s{one}"
