"""Which nodes stand for their regions: stable, spread, and the same for whoever computes it.

Rendezvous hashing: for a purpose, every node gets a score and the highest wins, but none stands for more of the other
regions than its share: so that tests towards several regions can run at once. When a winner goes away its own pairs
move and few others, and no memory is needed. Measurements grow with regions^2 + nodes: one node pair per region pair, a
few pairs inside each region, and every node towards the one that its region elects.

>>> elect("a|b", ["node-1", "node-2", "node-3"]) == elect("a|b", ["node-3", "node-2", "node-1"])
True
>>> first = elect("a|b", ["node-1", "node-2", "node-3"])
>>> elect("a|b", [name for name in ("node-1", "node-2", "node-3") if name != first]) != first
True
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import ceil

from hulk_operator.probing.types import Pair


def ranked(purpose: str, nodes: Iterable[str]) -> list[str]:
    """The nodes by falling score for a purpose."""
    return sorted(nodes, key=lambda node: _score(purpose, node), reverse=True)


def elect(purpose: str, nodes: Iterable[str]) -> str:
    """The node with the highest score; `ValueError` when there is none."""
    return max(nodes, key=lambda node: _score(purpose, node))


def between(regions: Mapping[str, Sequence[str]]) -> list[Pair]:
    """One elected pair of nodes per pair of regions, in both directions."""
    delegates = {region: _delegates(region, sorted(regions.keys() - {region}), regions[region]) for region in regions}
    pairs: list[Pair] = []
    for one, other in combinations(sorted(regions), 2):
        left, right = delegates[one][other], delegates[other][one]
        pairs += [(left, right), (right, left)]
    return pairs


def inside(regions: Mapping[str, Sequence[str]], num_links: int) -> list[Pair]:
    """At most `num_links` pairs per region, in both directions: a cycle over the region's highest nodes."""
    pairs: list[Pair] = []
    for region in sorted(regions):
        first = ranked(region, regions[region])[:num_links]
        closed = [*first[1:], first[0]] if len(first) > 2 else first[1:]
        cycle = list(zip(first, closed, strict=False))
        pairs += [pair for one, other in cycle for pair in ((one, other), (other, one))]
    return pairs


def _delegates(region: str, others: Sequence[str], nodes: Sequence[str]) -> dict[str, str]:
    """Other region -> the node that is measured towards it."""
    share = ceil(len(others) / len(nodes))
    load: Counter[str] = Counter()
    chosen: dict[str, str] = {}
    for other in others:
        chosen[other] = elect(f"{region}|{other}", (node for node in nodes if load[node] < share))
        load[chosen[other]] += 1
    return chosen


@lru_cache(maxsize=1 << 16)  # the same nodes compete in every pass
def _score(purpose: str, node: str) -> bytes:
    return hashlib.blake2b(f"{purpose}|{node}".encode(), digest_size=8).digest()
