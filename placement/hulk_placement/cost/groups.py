"""Groups that reduce at the same time, and what they share: directed links (`cost.drawn`) and regions' uplinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hulk_placement.cost.drawn import Shared, drawn_on
from hulk_placement.topology import Link, Pair, Topology


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that sum `num_bytes` together, by the machine of each in ring order (data flow from rank r to r - 1).

    They do so in `num_buckets` equal buckets. `is_exchange`: two that send each other what they have, as ranks of
    stages do.
    """

    machines: tuple[str, ...]
    num_bytes: int
    num_buckets: int = 1
    is_exchange: bool = False

    def __post_init__(self) -> None:
        if not self.machines or self.num_bytes < 1 or self.num_buckets < 1:
            sizes = f"{len(self.machines)} ranks, {self.num_bytes} bytes and {self.num_buckets} buckets"
            raise ValueError(f"a group of {sizes}: all must be >= 1")

    def edges(self) -> Counter[Pair]:
        """How many of the ring's edges join each (source, target) pair of machines; none with one rank."""
        machines = self.machines
        if len(machines) < 2:
            return Counter()
        return Counter((machines[rank], machines[rank - 1]) for rank in range(len(machines)))


@dataclass(frozen=True, slots=True)
class GroupTime:
    """Seconds of a group's all-reduce and the (source, target) machines that hold it back, None for one rank."""

    seconds: float
    worst: Pair | None


class Sharing:
    """Who uses which link and uplink: for each, how many edges of each group (by its number).

    `edges` says for each group how many of its transfers go from one machine to another at the same time.
    """

    def __init__(self, edges: Sequence[Counter[Pair]], topology: Topology) -> None:
        self.edges = edges
        self.links: list[dict[Pair, Link]] = [{pair: topology.link(*pair) for pair in found} for found in edges]
        self.uplinks = topology.uplinks
        self._drawn = {pair: drawn_on(*pair, topology) for pair in {pair: None for found in edges for pair in found}}
        self._users: dict[Shared, Counter[int]] = {}
        for number, found in enumerate(edges):
            for pair, count in found.items():
                for shared, _ in self._drawn[pair]:
                    self._users.setdefault(shared, Counter())[number] += count
        self._leaving: dict[str, Counter[int]] = {region: Counter() for region in self.uplinks}
        self._entering: dict[str, Counter[int]] = {region: Counter() for region in self.uplinks}
        for shared, counts in self._users.items() if self.uplinks else ():
            if shared.part == "regions":
                for region, crossing in zip(shared.ends, (self._leaving, self._entering), strict=True):
                    if region in crossing:
                        crossing[region].update(counts)

    def on(self, pair: Pair) -> list[tuple[float, Counter[int]]]:
        """For all that an edge between two machines draws on but uplinks: its bytes/s, and edges of each group there.

        Nothing inside a machine: its ranks have all its memory's rate.
        """
        return [(bytes_per_s, self._users[shared]) for shared, bytes_per_s in self._drawn[pair]]

    def through(self, link: Link) -> Iterable[tuple[float, Counter[int]]]:
        """For both ends of a link between regions: the uplink's bytes/s, where it has a limit, and who goes through."""
        if link.shared is not None:
            source, target = link.shared
            if source in self.uplinks:
                yield self.uplinks[source], self._leaving[source]
            if target in self.uplinks:
                yield self.uplinks[target], self._entering[target]

    def num_on_link(self, number: int, pair: Pair, num_bytes: Sequence[float]) -> float:
        """How many edges of the group share the link of a pair; what is wider than the link counts as fewer of them.

        `num_bytes`: what an edge of each group carries.
        """
        return self._num(number, self.links[number][pair], num_bytes, self.on(pair))

    def num_sharing(self, number: int, pair: Pair, num_bytes: Sequence[float]) -> float:
        """As `num_on_link`; an uplink that is tighter counts as more of them."""
        link = self.links[number][pair]
        return self._num(number, link, num_bytes, [*self.on(pair), *self.through(link)])

    def _num(
        self, number: int, link: Link, num_bytes: Sequence[float], found: Iterable[tuple[float, Counter[int]]]
    ) -> float:
        nums = [weighted(users, num_bytes, number) * (link.bandwidth_bytes_per_s / rate) for rate, users in found]
        return max(nums, default=1.0)


def weighted(counts: Counter[int], num_bytes: Sequence[float], own: int) -> float:
    """Edges counted by their bytes: one of group `own` is 1.

    >>> weighted(Counter({0: 2, 1: 3}), [10.0, 5.0], own=0)
    3.5
    """
    return sum(count * (num_bytes[group] / num_bytes[own]) for group, count in counts.items())
