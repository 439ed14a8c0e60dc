"""What one rank does for every part of a vector: the plan's flows over regions become ways between ranks.

A vector is cut into lanes so that each rank of a region owns an equal piece of it, whatever the number of ranks in the
other regions: a lane's owners alone talk to other regions, all in parallel, and the other ranks of the region send them
their values and get the result back (or leave that to torch, see inside.py). A *part* is one flow's share of a lane.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hulk_runtime.plan.flows import CollectivePlan, Flow, Pair, SizeClass

ALIGNMENT = 16
"""Parts begin at a multiple of so many values, so that adding them is quick."""
MAX_MESH = 64
"""Up to so many ranks everybody is connected to everybody."""
MAX_PARTS = 1 << 16
"""The wire format has so many numbers for parts."""


@dataclass(frozen=True, slots=True)
class Lane:
    """An interval of the vector (0 to 1), and the rank that owns it in each region."""

    start: Fraction
    stop: Fraction
    owners: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Role:
    """One rank's part in one part of the vector, values [start, stop) in `num_chunks` chunks.

    The rank adds what `children` send to its own values, in that order. The sum goes to `parent`; where there is none,
    to the other ranks of `exchange`, whose sums are added in that order; with neither it is the result. The result
    comes from `source` (None: it is made here) and goes to `targets`; `is_broadcast` when regions outside the exchange
    get it. Tails say how long the way of a sum or result still is, in seconds, when it leaves for a rank: the longest
    goes first, less `advance_s` times the chunk's position.
    """

    start: int
    stop: int
    num_chunks: int
    children: tuple[int, ...]
    parent: int | None
    exchange: tuple[int, ...]
    source: int | None
    targets: tuple[int, ...]
    is_broadcast: bool
    tails_s: Mapping[int, float]
    result_tails_s: Mapping[int, float]
    advance_s: float = 0.0

    def chunk(self, number: int) -> tuple[int, int]:
        """The values of one chunk."""
        length = self.stop - self.start
        return (
            self.start + length * number // self.num_chunks,
            self.start + length * (number + 1) // self.num_chunks,
        )


def lanes(regions: Mapping[int, Sequence[int]]) -> list[Lane]:
    """Intervals in which no region's owner changes; regions by number with their ranks.

    >>> [(str(lane.start), str(lane.stop), lane.owners) for lane in lanes({0: [0, 1], 1: [2]})]
    [('0', '1/2', {0: 0, 1: 2}), ('1/2', '1', {0: 1, 1: 2})]
    """
    edges = sorted({Fraction(k, len(ranks)) for ranks in regions.values() for k in range(len(ranks) + 1)})
    return [
        Lane(start, stop, {region: ranks[int(start * len(ranks))] for region, ranks in regions.items()})
        for start, stop in itertools.pairwise(edges)
    ]


def roles(
    plan: CollectivePlan,
    size: SizeClass,
    rank: int,
    num_values: int,
    bytes_per_value: int,
    *,
    for_region: bool = False,
) -> tuple[Role, ...]:
    """What `rank` does for each part of a vector; the same parts in the same order on every rank.

    A lane's parts, one of each flow, lie side by side: what a rank owns is one piece of the vector. With `for_region`
    a rank's own values of its piece are its region's sum already, and its region gets the result from it otherwise.
    """
    regions = {number: plan.regions[number] for number in sorted(size.flows[0].regions)}
    ways = [_Ways(plan, flow) for flow in size.flows]
    found: list[Role] = []
    all_lanes = lanes(regions)
    _require_parts(len(ways), len(all_lanes), len(regions))
    for lane in all_lanes:
        for way, first, last in zip(ways, *_exact_edges(size.flows), strict=True):
            start, stop = (_cut(lane.start + (lane.stop - lane.start) * edge, num_values) for edge in (first, last))
            chunks = -(-(stop - start) * bytes_per_value // size.chunk_bytes)
            role = _role(plan, way, lane, rank, (start, stop, chunks), for_region)
            found.append(replace(role, advance_s=size.advance_s))
    return tuple(found)


def require_parts(plan: CollectivePlan) -> None:
    """Raises ValueError for a plan that cuts a vector into more parts than the wire format has numbers for."""
    for classes in (plan.classes, *plan.without.values()):
        for size in classes:
            regions = {number: plan.regions[number] for number in size.flows[0].regions}
            for flows in (size.flows, *(other.flows for other in size.alternatives)):
                _require_parts(len(flows), len(lanes(regions)), len(regions))


def _require_parts(num_flows: int, num_lanes: int, num_regions: int) -> None:
    if num_flows * num_lanes > MAX_PARTS:
        raise ValueError(
            f"{num_flows} flows over {num_regions} regions are {num_flows * num_lanes} parts, more than {MAX_PARTS}"
        )


def pieces(num_ranks: int, num_values: int) -> list[tuple[int, int]]:
    """The values that each rank of a region owns, whatever the flows.

    >>> pieces(3, 100)
    [(0, 32), (32, 64), (64, 100)]
    """
    edges = [_cut(Fraction(number, num_ranks), num_values) for number in range(num_ranks + 1)]
    return list(itertools.pairwise(edges))


def way_shares(plan: CollectivePlan) -> dict[Pair, float]:
    """By sender and receiver in another region the share of the link between these that their connection carries."""
    shares: dict[Pair, float] = {}
    for lane in lanes(dict(enumerate(plan.regions))):
        for way in itertools.permutations(lane.owners.values(), 2):
            shares[way] = shares.get(way, 0.0) + float(lane.stop - lane.start)
    return shares


def pace_shares(plan: CollectivePlan, rank: int) -> dict[int, float]:
    """Of `way_shares` those of one sender, by receiver."""
    return {receiver: share for (sender, receiver), share in way_shares(plan).items() if sender == rank}


def partners(plan: CollectivePlan, rank: int) -> list[int]:
    """Every rank that this one is connected to.

    All of them, so that all hear the same of a loss; of very many, where none goes on without others, only its region's
    and whoever shares a lane with it.
    """
    if plan.num_ranks <= MAX_MESH or plan.on_region_loss == "continue":
        return [other for other in range(plan.num_ranks) if other != rank]
    return sorted({*plan.regions[plan.region_of(rank)], *pace_shares(plan, rank)} - {rank})


def _exact_edges(flows: Sequence[Flow]) -> tuple[list[Fraction], list[Fraction]]:
    """Where each flow's share begins and ends, from 0 to exactly 1: every rank must cut alike."""
    shares = [Fraction(flow.share).limit_denominator(1 << 24) for flow in flows]
    edges = [edge / sum(shares) for edge in itertools.accumulate(shares, initial=Fraction(0))]
    return edges[:-1], edges[1:]


def _cut(position: Fraction, num_values: int) -> int:
    if position >= 1:
        return num_values
    return int(position * num_values) // ALIGNMENT * ALIGNMENT


def _role(
    plan: CollectivePlan, ways: "_Ways", lane: Lane, rank: int, values: tuple[int, int, int], for_region: bool
) -> Role:
    flow, region = ways.flow, plan.region_of(rank)
    owner, is_broadcast = lane.owners[region], bool(flow.broadcast)
    if rank != owner and for_region:
        return Role(values[0], values[1], 0, (), None, (), None, (), is_broadcast, {}, {})
    if rank != owner:
        tails = {owner: ways.after_sum(region)}
        return Role(*values, (), owner, (), owner, (), is_broadcast, tails, {})
    beside = () if for_region else tuple(other for other in plan.regions[region] if other != rank)
    below = tuple(lane.owners[child] for child, parent in flow.reduce if parent == region)
    onward = tuple(child for child, parent in flow.broadcast if parent == region)
    results = {lane.owners[child]: ways.to_end(region, child) for child in onward} | dict.fromkeys(beside, 0.0)
    children, targets = (*beside, *below), tuple(results)
    if region in flow.exchange:
        others = [other for other in flow.exchange if other != region]
        tails = {lane.owners[other]: ways.to_end(region, other) for other in others}
        everyone = tuple(lane.owners[other] for other in flow.exchange) if others else ()
        return Role(*values, children, None, everyone, None, targets, is_broadcast, tails, results)
    parent = lane.owners[dict(flow.reduce)[region]]
    source = lane.owners[dict(flow.broadcast)[region]]
    tails = {parent: ways.after_sum(region)}
    return Role(*values, children, parent, (), source, targets, is_broadcast, tails, results)


class _Ways:
    """How long values of a flow are still on their way, in seconds of latency."""

    def __init__(self, plan: CollectivePlan, flow: Flow) -> None:
        self._plan, self.flow = plan, flow
        self._parent = dict(flow.reduce)

    def to_end(self, source: int, target: int) -> float:
        """From leaving `source` for `target` as a result (or as a sum to exchange) until the last region has it."""
        below = [child for child, parent in self.flow.broadcast if parent == target]
        return self._one_way(source, target) + max((self.to_end(target, child) for child in below), default=0.0)

    def after_sum(self, region: int) -> float:
        """From the sum of the region's subtree until the last region has the result."""
        if region in self._parent:
            parent = self._parent[region]
            return self._one_way(region, parent) + self.after_sum(parent)
        below = [child for child, parent in self.flow.broadcast if parent == region]
        others = [other for other in self.flow.exchange if other != region]
        return max((self.to_end(region, other) for other in (*below, *others)), default=0.0)

    def _one_way(self, source: int, target: int) -> float:
        link = self._plan.links.get((source, target))
        return link.one_way_s if link else 0.0
