"""A network to a plan: flows for every size of the vector, for a region cut off, and for links that turn out slower."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hulk_placement.collective.bound import Bound
from hulk_placement.collective.candidates import Closed, Sharer, plain
from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Link
from hulk_placement.collective.plan import WIRE_SHARE, Alternative, CollectivePlan, SizeClass, Without
from hulk_placement.collective.program import ProgramError, closed_form_s
from hulk_placement.collective.simulation import MOST_CHUNKS, simulate
from hulk_placement.collective.timing import Delays, delays
from hulk_placement.collective.transport import TRANSPORT, Transport

DEFAULT_SIZES = tuple(4**power << 10 for power in range(3, 9))
"""64 KiB to 64 MiB, by fours."""

USUAL_GAP = 1.2
"""Seconds of flows by those of the bound: where the program's search for a cap on latency begins."""

NUM_SIMULATED = 2
"""Of the program's sharings, so many go into the simulation with the plain ones."""

WORTH_SIMULATING = 1.3
"""Plain flows that the closed form finds slower than this, times the program's, are not simulated."""

CHUNKS_TO_RANK = 8
"""Simulated chunks of a flow where candidates are compared: off by 0.7 % on the mean."""

USUAL_ADVANCE = 0.05
OTHER_ADVANCES = (0.0, 0.2)
"""Of the seconds that the flows take; the usual one costs three regions nothing and gains a tenth with four or more."""

SLOWED = 0.5
SLOWER = 1.1
"""An alternative is carried for a link whose rate x 0.5 makes the flows more than 1.1 x as slow as new ones."""

MOST_REGIONS = 24
"""With more there are only plain flows: the program would take minutes."""

MOST_ALTERNATIVES = 8
MOST_REGIONS_WITH_ALTERNATIVES = 6


def always() -> bool:
    """There is time."""
    return True


@dataclass
class Planner:
    """Plans one network; keeps what does not depend on the size.

    Once `go_on` says no, only plain ways are tried, and they are timed by the coarse simulation.
    """

    network: Network
    transport: Transport = TRANSPORT
    compression: str = "none"
    go_on: Callable[[], bool] = always
    bound: Bound = field(init=False)
    _sharers: dict[int, Sharer] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.bound = Bound(self.network)
        unreached = self.bound.unreached()
        if unreached:
            a, b = (self.network.regions[region] for region in unreached)
            raise ValueError(
                f"no usable links lead from {a} to {b}: no all-reduce over {len(self.network.regions)} regions"
            )

    def size_class(self, num_bytes: int) -> SizeClass:
        """The best flows for a vector of so many bytes."""
        sent = self.sent(num_bytes)
        chunk_bytes = self.transport.chunk_bytes(sent)
        bound_s = self.bound.seconds(sent, self.go_on)
        timed = [
            (*self._timed(found, sent, USUAL_ADVANCE), len(found[1]), found)
            for found in self._candidates(sent, chunk_bytes, bound_s)
        ]
        seconds, advance_s, _, best = min(timed, key=lambda tried: (tried[0], tried[2]))
        if self.go_on():
            others = [self._timed(best, sent, advance) for advance in OTHER_ADVANCES]
            _, advance_s = min([(seconds, advance_s), *others], key=lambda tried: tried[0])
            seconds = self._simulated_s(best[1], sent, advance_s, MOST_CHUNKS)
        return SizeClass(num_bytes, chunk_bytes, seconds, bound_s, best[1], advance_s=advance_s)

    def _timed(self, found: Closed, sent: int, advance: float) -> tuple[float, float]:
        """Seconds by a coarse simulation, with the advance in seconds."""
        advance_s = round(advance * found[0], 6)
        return self._simulated_s(found[1], sent, advance_s, CHUNKS_TO_RANK), advance_s

    def _simulated_s(self, flows: Sequence[Flow], sent: int, advance_s: float, most_chunks: int) -> float:
        return simulate(
            self.network, flows, sent, transport=self.transport, advance_s=advance_s, most_chunks=most_chunks
        ).seconds

    def sent(self, num_bytes: int) -> int:
        """Bytes of a vector on a WAN hop."""
        return math.ceil(num_bytes * WIRE_SHARE[self.compression])

    def _candidates(self, sent: int, chunk_bytes: int, bound_s: float) -> list[Closed]:
        """The program's flows, and the plain ones that are not far behind by the closed form."""
        named = plain(self.network, sent, self.transport, chunk_bytes)
        if len(self.network.regions) < 2:
            return [named["one hop"]]
        if not self.go_on() or len(self.network.regions) > MOST_REGIONS:
            return sorted(named.values(), key=lambda closed: closed[0])[:1]
        try:
            found = self.sharer(chunk_bytes).sharings(sent, bound_s * USUAL_GAP, NUM_SIMULATED)
        except ProgramError:
            return list(named.values())
        near_s = found[0][0] * WORTH_SIMULATING
        return [*found, *(other for other in named.values() if other[0] <= near_s)]

    def alternatives(self, found: SizeClass) -> tuple[Alternative, ...]:
        """Other flows for links at whose half rate a class's own are no longer good, those that save most first."""
        sent, sharer = self.sent(found.max_bytes), self.sharer(found.chunk_bytes)
        before_s = closed_form_s(found.flows, sent, sharer.delays)
        saved = []
        for link, slower, old_s in self._felt(found, sent, before_s):
            with contextlib.suppress(ProgramError):
                new_s, flows = sharer.again(slower, sent, cap_s=math.sqrt(before_s * old_s))
                if old_s > SLOWER * new_s:
                    saved.append((old_s / new_s, Alternative(link, flows)))
        saved.sort(key=lambda item: -item[0])
        return tuple(other for _, other in saved)

    def _felt(self, found: SizeClass, sent: int, before_s: float) -> list[tuple[Link, Delays, float]]:
        """The links whose halving slows the flows most, and enough: no other flows are faster than these were."""
        felt = []
        for link in itertools.permutations(range(len(self.network.regions)), 2):
            slower = delays(self.network.scaled(SLOWED, link), self.transport, found.chunk_bytes)
            old_s = closed_form_s(found.flows, sent, slower)
            if old_s > SLOWER * before_s:
                felt.append((link, slower, old_s))
        felt.sort(key=lambda item: -item[2])
        return felt[:MOST_ALTERNATIVES]

    def sharer(self, chunk_bytes: int) -> Sharer:
        """The linear program for chunks of this size."""
        if chunk_bytes not in self._sharers:
            before = next(reversed(self._sharers.values()), None)
            self._sharers[chunk_bytes] = Sharer(
                self.network, self.transport, chunk_bytes, before=before, go_on=self.go_on
            )
        return self._sharers[chunk_bytes]


def plan_collective(
    network: Network,
    sizes: Iterable[int] = DEFAULT_SIZES,
    *,
    on_region_loss: str = "restart",
    fixed_shares: bool = False,
    compression: str = "none",
    encryption: str = "wan",
    with_alternatives: bool = True,
    transport: Transport = TRANSPORT,
    go_on: Callable[[], bool] = always,
) -> CollectivePlan:
    """The plan of an all-reduce over a network for vectors of these sizes (bytes, 4 a value).

    `go_on` is asked before each part of the work; once it says no, the rest is planned in plain ways.
    ValueError when a region cannot be reached from another over usable links, or without a size.
    """
    wanted = sorted(set(sizes))
    if not wanted or wanted[0] < 1:
        raise ValueError(f"sizes {wanted}: at least one, each at least 1 byte")
    planner = Planner(network, transport, compression, go_on)
    classes = tuple(reversed([planner.size_class(size) for size in reversed(wanted)]))
    if with_alternatives and 1 < len(network.regions) <= MOST_REGIONS_WITH_ALTERNATIVES:
        classes = tuple(
            replace(found, alternatives=planner.alternatives(found)) if go_on() else found for found in classes
        )
    return CollectivePlan(
        network=network,
        classes=classes,
        without=tuple(_without(planner, wanted)) if on_region_loss == "continue" else (),
        compression=compression,
        on_region_loss=on_region_loss,
        fixed_shares=fixed_shares,
        encryption=encryption,
    )


def _without(planner: Planner, sizes: Sequence[int]) -> Iterator[Without]:
    """For each region the classes of the others; none where those cannot reach each other."""
    num = len(planner.network.regions)
    for region in range(num if num > 1 else 0):
        with contextlib.suppress(ValueError):
            others = Planner(planner.network.without([region]), planner.transport, planner.compression, planner.go_on)
            yield Without(region, tuple(others.size_class(size) for size in sizes))
