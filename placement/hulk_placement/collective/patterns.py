"""How one share of the vector may flow over regions: who exchanges, who reduces to whom, who hears from whom."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

Parents = tuple[int, ...]
Link = tuple[int, int]
"""From one region to another, by number."""

Edges = tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Regions that exchange partial sums, and two forests rooted in them, over the other regions.

    `up[r]` is the region that r sends its subtree's sum to, `down[r]` the one it gets the result from; r itself where r
    exchanges. With one region exchanging it is a reduction to a root and a broadcast; with all of them it is one hop.

    >>> hub = Pattern(up=(1, 1, 1), down=(1, 1, 1))
    >>> hub.exchange, hub.reduce, hub.broadcast
    ((1,), ((0, 1), (2, 1)), ((0, 1), (2, 1)))
    """

    up: Parents
    down: Parents

    def __post_init__(self) -> None:
        roots = [r for r, parent in enumerate(self.up) if parent == r]
        if not roots or roots != [r for r, parent in enumerate(self.down) if parent == r]:
            raise ValueError(f"pattern: up {self.up} and down {self.down} must have the same roots, and one at least")
        for parents in (self.up, self.down):
            if not all(is_rooted(parents, r) for r in range(len(parents))):
                raise ValueError(f"pattern: {parents} has a cycle")

    @property
    def exchange(self) -> tuple[int, ...]:
        """The regions that send each other their partial sums."""
        return tuple(r for r, parent in enumerate(self.up) if parent == r)

    @property
    def reduce(self) -> Edges:
        """(region, parent) of every region outside the exchange, on the way in."""
        return tuple((r, parent) for r, parent in enumerate(self.up) if parent != r)

    @property
    def broadcast(self) -> Edges:
        """(region, parent) of every region outside the exchange, on the way out."""
        return tuple((r, parent) for r, parent in enumerate(self.down) if parent != r)


@dataclass(frozen=True, slots=True)
class Flow:
    """A share (0..1) of the vector and the way it goes."""

    share: float
    pattern: Pattern


def is_rooted(parents: Parents, region: int) -> bool:
    """Whether following parents from a region ends at a root."""
    for _ in parents:
        if parents[region] == region:
            return True
        region = parents[region]
    return False


@cache
def all_patterns(num_regions: int) -> tuple[Pattern, ...]:
    """Every pattern over 1 to 4 regions: 1, 3, 40 or 1,445... as forests rooted in each set of members.

    >>> [len(all_patterns(n)) for n in (1, 2, 3, 4)]
    [1, 3, 40, 1445]
    """
    return tuple(
        Pattern(up, down)
        for size in range(1, num_regions + 1)
        for members in itertools.combinations(range(num_regions), size)
        for up, down in itertools.product(_forests(num_regions, members), repeat=2)
    )


def _forests(num_regions: int, members: tuple[int, ...]) -> list[Parents]:
    """Every way to hang the other regions under the members: k n^(n-k-1) of them (Cayley)."""
    choices = [(r,) if r in members else range(num_regions) for r in range(num_regions)]
    return [
        parents
        for parents in itertools.product(*choices)
        if all(parents[r] != r or r in members for r in range(num_regions))
        and all(is_rooted(parents, r) for r in range(num_regions))
    ]


def star(num_regions: int, root: int) -> Pattern:
    """Everybody sends to the root and hears from it."""
    parents = (root,) * num_regions
    return Pattern(parents, parents)


def one_hop(num_regions: int) -> Pattern:
    """Everybody sends everybody everything."""
    parents = tuple(range(num_regions))
    return Pattern(parents, parents)


def ring(order: tuple[int, ...]) -> Iterator[Pattern]:
    """The pipelined ring in this order: for each region a chain that ends in it and a chain that starts from it.

    >>> [p.reduce for p in ring((0, 1, 2))][2]
    ((0, 1), (1, 2))
    """
    num = len(order)
    for last in range(num):
        up, down = [0] * num, [0] * num
        for place in range(num):
            here = order[place]
            up[here] = here if place == last else order[(place + 1) % num]
            down[here] = here if place == last else order[place - 1]
        yield Pattern(tuple(up), tuple(down))
