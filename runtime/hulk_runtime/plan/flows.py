"""What the plan says of all-reduces between regions: flows by size of the vector, over links with their figures.

Regions are numbers into `CollectivePlan.regions`, each of which lists its ranks. Every field:
docs/reference/plan-wire.md.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_CHUNK_BYTES: Final = 4 << 20
"""Also the largest payload of a frame."""

ENCRYPTIONS: Final = ("wan", "none")
"""Of bytes between regions: encrypted, or as they are."""

Pair = tuple[int, int]
"""(child, parent) in a tree of regions, or (source, target) of a link between regions."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A share of the vector and its way.

    Every region outside `exchange` sends the sum of its subtree to its parent in `reduce`; the regions in `exchange`
    send theirs to each other; the result comes back from parent to child in `broadcast`.
    """

    share: float
    exchange: tuple[int, ...]
    reduce: tuple[Pair, ...] = ()
    broadcast: tuple[Pair, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1):
            raise ValueError(f"flow: share {self.share} must be from 0 to 1")
        if not self.exchange or len(set(self.exchange)) != len(self.exchange):
            raise ValueError(f"flow: exchange {self.exchange} must name one region or more, each once")
        for name, tree in (("reduce", self.reduce), ("broadcast", self.broadcast)):
            _require_tree(name, tree, self.exchange)
        if {child for child, _ in self.reduce} != {child for child, _ in self.broadcast}:
            raise ValueError(f"flow: reduce {self.reduce} and broadcast {self.broadcast} name different regions")

    @property
    def links(self) -> frozenset[Pair]:
        """Every link that it crosses."""
        return frozenset(self.crossings)

    @property
    def crossings(self) -> tuple[Pair, ...]:
        """Its links, each as often as its share crosses it."""
        down = ((parent, child) for child, parent in self.broadcast)
        return (*self.reduce, *down, *itertools.permutations(self.exchange, 2))

    @property
    def regions(self) -> frozenset[int]:
        """Every region that takes part."""
        return frozenset(self.exchange) | {child for child, _ in self.reduce}


@dataclass(frozen=True, slots=True)
class Alternative:
    """Flows for the time that a link, (source, target), is much slower than planned."""

    slow: Pair
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class SizeClass:
    """The flows of vectors up to `max_bytes`, sent in chunks of about `chunk_bytes`.

    `predicted_s` is what a vector of `max_bytes` is predicted to take, `bound_s` what none can beat; 0 where the plan
    does not say. `advance_s`: so much of the way still to go the last chunk of a flow gives way to another's first, so
    that no link waits idle for it.
    """

    max_bytes: int
    chunk_bytes: int
    flows: tuple[Flow, ...]
    alternatives: tuple[Alternative, ...] = ()
    predicted_s: float = 0.0
    advance_s: float = 0.0
    bound_s: float = 0.0

    @property
    def every_flow(self) -> tuple[Flow, ...]:
        """Its own and those of the alternatives."""
        return (*self.flows, *(flow for other in self.alternatives for flow in other.flows))

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or not 1 <= self.chunk_bytes <= MAX_CHUNK_BYTES or not self.flows:
            raise ValueError(
                f"size class: {self.max_bytes} bytes and {len(self.flows)} flows must be > 0, chunks of "
                f"{self.chunk_bytes} bytes from 1 to {MAX_CHUNK_BYTES}"
            )
        for flows in (self.flows, *(other.flows for other in self.alternatives)):
            total = sum(flow.share for flow in flows)
            if abs(total - 1) > 1e-3:
                raise ValueError(f"size class up to {self.max_bytes} bytes: shares sum to {total}, not 1")


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """What the plan believes of a directed link: TCP payload rate, and half of the round trip."""

    bytes_per_s: float
    one_way_s: float

    def __post_init__(self) -> None:
        if not (self.bytes_per_s > 0 and self.one_way_s >= 0):
            raise ValueError(f"link: {self.bytes_per_s} B/s must be > 0, {self.one_way_s} s one way >= 0")


@dataclass(frozen=True, slots=True)
class Uplink:
    """What all links out of a region carry together, and all into it."""

    egress_bytes_per_s: float = math.inf
    ingress_bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if not (self.egress_bytes_per_s > 0 and self.ingress_bytes_per_s > 0):
            raise ValueError(f"uplink: {self.egress_bytes_per_s} B/s out, {self.ingress_bytes_per_s} in must be > 0")


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """Ranks by region, the links between the regions, and the size classes in ascending order.

    `without` has the classes to go on with when a region, by number, is cut off; `left_out` are the regions that were.
    With `fixed_shares` the ranks do not follow what the links carry. `names` are the regions' own, `uplinks` those of
    the regions that have one. `encryption`: whether what crosses regions is.
    """

    regions: tuple[tuple[int, ...], ...]
    links: Mapping[Pair, LinkFigures]
    classes: tuple[SizeClass, ...]
    without: Mapping[int, tuple[SizeClass, ...]] = field(default_factory=dict)
    compression: str = "none"
    on_region_loss: str = "restart"
    fixed_shares: bool = False
    names: tuple[str, ...] = ()
    left_out: frozenset[int] = frozenset()
    uplinks: Mapping[int, Uplink] = field(default_factory=dict)
    encryption: str = "wan"

    def __post_init__(self) -> None:
        ranks = [rank for region in self.regions for rank in region]
        if sorted(ranks) != list(range(len(ranks))) or not all(self.regions):
            raise ValueError(f"collective: regions {self.regions} must hold the ranks 0 to n-1, each once, none empty")
        if self.encryption not in ENCRYPTIONS:
            raise ValueError(f"collective: encryption {self.encryption!r} must be one of {', '.join(ENCRYPTIONS)}")
        numbers = range(len(self.regions))
        if not self.uplinks.keys() <= set(numbers):
            raise ValueError(f"collective: uplinks of regions {sorted(self.uplinks)} of {len(self.regions)}")
        slow = {other.slow for found in self.classes for other in found.alternatives}
        strange = sorted((slow | self.links.keys()) - set(itertools.permutations(numbers, 2)))
        if strange:
            raise ValueError(f"collective: links {strange} between {len(self.regions)} regions")
        everywhere = frozenset(numbers) - self.left_out
        _require_classes(self.classes, everywhere)
        for lost, classes in self.without.items():
            _require_classes(classes, everywhere - {lost})

    @property
    def num_ranks(self) -> int:
        """World size."""
        return sum(map(len, self.regions))

    def digest(self) -> bytes:
        """32 bytes that are the same only for the same plan."""
        return hashlib.sha256(repr(self).encode()).digest()

    def size_class(self, num_bytes: int) -> SizeClass:
        """The class that serves a vector."""
        return serving(self.classes, num_bytes)

    def region_of(self, rank: int) -> int:
        """The number of a rank's region."""
        return next(number for number, ranks in enumerate(self.regions) if rank in ranks)

    def is_encrypted(self, rank: int, other: int) -> bool:
        """Whether nobody may read what two ranks send each other: they are in different regions."""
        return self.encryption == "wan" and self.region_of(rank) != self.region_of(other)

    def among(self, members: frozenset[int]) -> Self:
        """The plan for the members that are left, whole regions: the planned one without a region, else stars."""
        left = [number for number, ranks in enumerate(self.regions) if set(ranks) <= members]
        lost = [number for number in range(len(self.regions)) if number not in left]
        if not lost:
            return self
        planned = self.without.get(lost[0]) if len(lost) == 1 else None
        chunk_bytes = self.classes[-1].chunk_bytes
        stars = SizeClass(1, chunk_bytes, tuple(_star(root, left) for root in left))
        links = {link: figures for link, figures in self.links.items() if not set(link) & set(lost)}
        return replace(self, links=links, classes=planned or (stars,), without={}, left_out=frozenset(lost))

    def part(self, ranks: Sequence[int]) -> Self | None:
        """The plan for a group of some ranks, each known by its place among them; None where all are of one region.

        A group with a share of each region's ranks has that share of the links: others like it sum at the same time.
        For ranks of some of the regions nothing was planned: they exchange equal shares.

        >>> whole = CollectivePlan.direct([[0, 1], [2, 3]])
        >>> whole.part([1, 3]).regions, whole.part([0, 1])
        (((0,), (1,)), None)
        """
        places = [tuple(place for place, rank in enumerate(ranks) if rank in region) for region in self.regions]
        there = [own for own in places if own]
        if len(there) < 2:
            return None
        if len(there) < len(self.regions) or self.left_out:
            return replace(self.direct(there), compression=self.compression, encryption=self.encryption)
        share = max(len(own) / len(region) for own, region in zip(places, self.regions, strict=True))
        return replace(
            self,
            regions=tuple(places),
            links={pair: replace(link, bytes_per_s=share * link.bytes_per_s) for pair, link in self.links.items()},
            uplinks={
                region: Uplink(share * uplink.egress_bytes_per_s, share * uplink.ingress_bytes_per_s)
                for region, uplink in self.uplinks.items()
            },
            classes=_of_share(self.classes, share),
            without={},
            on_region_loss="restart",
        )

    @classmethod
    def direct(cls, regions: Sequence[Sequence[int]], chunk_bytes: int = 1 << 16) -> Self:
        """A plan for regions of which nothing was measured: each reduces an equal share and broadcasts it.

        >>> CollectivePlan.direct([[0], [1]]).classes[0].flows[1]
        Flow(share=0.5, exchange=(1,), reduce=((0, 1),), broadcast=((0, 1),))
        """
        numbers = range(len(regions))
        flows = tuple(_star(root, numbers) for root in numbers)
        return cls(tuple(map(tuple, regions)), {}, (SizeClass(1, chunk_bytes, flows),))


def serving(classes: Sequence[SizeClass], num_bytes: int) -> SizeClass:
    """The class, of ascending ones, that serves a vector; the last one also serves anything larger."""
    return next((found for found in classes if num_bytes <= found.max_bytes), classes[-1])


def _of_share(classes: Sequence[SizeClass], share: float) -> tuple[SizeClass, ...]:
    """The classes for links of which there is a share: a vector takes as long there as one that much larger."""
    sizes = [max(1, round(share * found.max_bytes)) for found in classes]
    last = dict(zip(sizes, classes, strict=True))  # of several that become the same size
    return tuple(replace(found, max_bytes=size) for size, found in last.items())


def _star(root: int, regions: Sequence[int]) -> Flow:
    """A share that one region reduces and broadcasts."""
    spokes = tuple((region, root) for region in regions if region != root)
    return Flow(1 / len(regions), (root,), spokes, spokes)


def _require_tree(name: str, tree: Sequence[Pair], roots: Sequence[int]) -> None:
    """Every way from child to parent must end in the exchange."""
    parent = dict(tree)
    if len(parent) != len(tree) or set(parent) & set(roots):
        raise ValueError(f"flow: {name} {tree} gives a region two parents, or one to a region of exchange {roots}")
    for start in parent:
        at, steps = start, 0
        while at in parent and steps <= len(parent):
            at, steps = parent[at], steps + 1
        if at not in roots:
            raise ValueError(f"flow: {name} {tree}: region {start} does not reach the exchange {roots}")


def _require_classes(classes: Sequence[SizeClass], regions: frozenset[int]) -> None:
    sizes = [found.max_bytes for found in classes]
    if not sizes or sizes != sorted(set(sizes)):
        raise ValueError(f"collective: size classes {sizes} must be ascending, at least one")
    for found in classes:
        for flow in found.every_flow:
            if flow.regions != regions:
                raise ValueError(f"collective: a flow over regions {sorted(flow.regions)}, not {sorted(regions)}")
