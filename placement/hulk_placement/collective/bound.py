"""What no all-reduce can beat on a network: three lower bounds, each valid for any algorithm, coding included.

Take two regions s and t and fix the vectors of all others. The sum that t must end with is then a one-to-one function
of s's vector (addition of a constant): all B bytes of it must reach t, whatever is summed, coded or stored on the way.

1. *latency*: the first byte takes the shortest path, so T is at least the longest shortest one-way path.
2. *cut*: B bytes must leave every set of regions that holds s and not t: B / the tightest cut.
3. *quickest flow*: in the network unrolled over time every cut between s at 0 and t at T must carry B bytes; the least
   such cut is the greatest flow over time (Ford and Fulkerson 1958; cutsets bound coded transport as well). It is
   reached by repeating a static flow: max over static flows of T |f| - sum latency f. Successive shortest paths give
   paths of d_1 <= d_2 <= ... seconds and f_1, f_2, ... bytes/s, the same for every T, and

       T = min over k of (B + sum_{i<=k} f_i d_i) / sum_{i<=k} f_i.

   It is never below the two others, nor below `nodes` (what the notes and papers call the combined bound): the first
   bound, and for every single region the T at which sum over its links of c (T - d)+ reaches B.

Two regions, 100 bytes/s with 1 s: 300 bytes take 1 + 3 s.

>>> from hulk_placement.collective.network import Network
>>> wide = (math.inf, math.inf)
>>> pair = Network(("a", "b"), ((0,), (1,)), ((0, 100), (100, 0)), ((0, 1), (1, 0)), wide, wide, wide, (0, 0))
>>> Bound(pair).seconds(300)
4.0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from hulk_placement.collective.arrays import Floats, shortest_s
from hulk_placement.collective.network import Network

MOST_QUICKEST_REGIONS = 24
"""With more regions only the combined bound of single regions is looked at: it is quicker, and a bound as well."""

Path = tuple[float, float]
"""Bytes/s that a path adds, and the seconds a byte takes along it."""


class Bound:
    """The bounds of one network, for any number of bytes: what does not depend on those is computed once."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._paths: dict[tuple[int, int], tuple[list[Path], Iterator[Path]]] = {}

    def seconds(self, num_bytes: float, go_on: Callable[[], bool] = lambda: True) -> float:
        """The quickest-flow bound: the largest over pairs of regions; infinite where one cannot reach another.

        A pair is looked at only where, and as far as, what is known of it does not settle that it is not the largest.
        `go_on` is asked before each: of those that were looked at until then the largest is a bound, too.
        """
        if len(self.network.regions) == 1:
            return 0.0
        most = self.nodes_seconds(num_bytes)
        if len(self.network.regions) > MOST_QUICKEST_REGIONS:
            return most
        at_most = self._at_most(num_bytes)
        out_s, in_s = np.split(quickest_s(*self._single, num_bytes), 2)
        at_least = np.array([max(out_s[s], in_s[t]) for s, t in self._pairs])
        for place in np.argsort(-at_least, kind="stable"):
            if at_most[place] > most:
                if not go_on():
                    break
                most = max(most, self._quickest_s(self._pairs[place], num_bytes, most))
        return most

    def latency_seconds(self) -> float:
        """The longest of the shortest one-way paths."""
        return float(self._shortest.max())

    def unreached(self) -> tuple[int, int] | None:
        """Two regions of which the first cannot reach the second; None where all reach all."""
        pairs = np.argwhere(~np.isfinite(self._shortest))
        return (int(pairs[0][0]), int(pairs[0][1])) if len(pairs) else None

    def nodes_seconds(self, num_bytes: float) -> float:
        """The combined bound of single regions: the longest shortest path, and the links out of or into each region."""
        if len(self.network.regions) == 1:
            return 0.0
        return max(self.latency_seconds(), float(quickest_s(*self._single, num_bytes).max()))

    def _quickest_s(self, pair: tuple[int, int], num_bytes: float, enough_s: float) -> float:
        """Seconds of a pair by its shortest augmenting paths, of which as many are found as show it is not above."""
        if pair not in self._paths:
            self._paths[pair] = ([], _augmenting(*self._arcs, *pair))
        known, further = self._paths[pair]
        number, best, total, delayed = 0, math.inf, 0.0, 0.0
        while best > enough_s:
            if number == len(known):
                known.extend(itertools.islice(further, 1))
            if number == len(known) or known[number][1] >= best:
                break
            width, seconds = known[number]
            number, total, delayed = number + 1, total + width, delayed + width * seconds
            best = (num_bytes + delayed) / total
        return best

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(itertools.permutations(range(len(self.network.regions)), 2))

    def _at_most(self, num_bytes: float) -> Floats:
        """For each pair the seconds of one flow: straight and over each other region, no link used twice.

        Uplinks are not split among those, so with a cap nothing is known but that it is finite.
        """
        return np.full(len(self._pairs), np.inf) if self._is_split else quickest_s(*self._double, num_bytes)

    @cached_property
    def _single(self) -> tuple[Floats, Floats]:
        """The links out of and into each region, nearest first, as far as its uplink carries them."""
        rate, latency_s = np.array(self.network.rate), np.array(self.network.latency_s)
        width, seconds = nearest_first(np.vstack([rate, rate.T]), np.vstack([latency_s, latency_s.T]))
        caps = np.concatenate([self.network.egress, self.network.ingress])
        return np.diff(np.minimum(width.cumsum(axis=1), caps[:, None]), axis=1, prepend=0.0), seconds

    @cached_property
    def _double(self) -> tuple[Floats, Floats]:
        """For each pair its ways of one and of two links."""
        rate, latency_s = np.array(self.network.rate), np.array(self.network.latency_s)
        s, t = np.array(self._pairs).T
        width, seconds = np.minimum(rate[s], rate[:, t].T), latency_s[s] + latency_s[:, t].T
        here = np.arange(len(s))
        width[here, s], seconds[here, s] = rate[s, t], latency_s[s, t]
        width[here, t] = 0.0
        return nearest_first(width, seconds)

    @cached_property
    def _shortest(self) -> Floats:
        return shortest_s(np.array(self.network.latency_s))

    @cached_property
    def _arcs(self) -> tuple[Floats, Floats]:
        """Rates and latencies between nodes: a region, and with uplinks its way in (R + r) and out (2 R + r)."""
        rate, latency_s = np.array(self.network.rate), np.array(self.network.latency_s)
        if not self._is_split:
            return rate, latency_s
        num = len(rate)
        wide, far = np.zeros((3 * num, 3 * num)), np.full((3 * num, 3 * num), np.inf)
        here, way_in, way_out = np.arange(num), np.arange(num, 2 * num), np.arange(2 * num, 3 * num)
        wide[way_out[0] :, num : 2 * num], far[way_out[0] :, num : 2 * num] = rate, latency_s
        wide[way_in, here], far[way_in, here] = self.network.ingress, 0.0
        wide[here, way_out], far[here, way_out] = self.network.egress, 0.0
        return wide, far

    @property
    def _is_split(self) -> bool:
        return bool(np.isfinite([*self.network.egress, *self.network.ingress]).any())


def nearest_first(width: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Ways (bytes/s and seconds, a row of each) sorted by latency; those without a width take none."""
    seconds = np.where(width > 0, seconds, 0.0)
    order = np.argsort(seconds, axis=1, kind="stable")
    return np.take_along_axis(width, order, axis=1), np.take_along_axis(seconds, order, axis=1)


def quickest_s(width: Floats, seconds: Floats, num_bytes: float) -> Floats:
    """The T at which each row's ways, nearest first, have brought the bytes: the least over k of the first k's."""
    total, delayed = width.cumsum(axis=1), (width * seconds).cumsum(axis=1)
    with np.errstate(divide="ignore"):
        least: Floats = ((num_bytes + delayed) / total).min(axis=1)
    return least


def _augmenting(rate: Floats, latency_s: Floats, source: int, target: int) -> Iterator[Path]:
    """Successive shortest paths from source to target in the residual network, in order of latency."""
    left = np.stack([rate, np.zeros_like(rate)])  # forward, and what may be taken back (at minus the latency)
    while True:
        cost = np.minimum(np.where(left[0] > 0, latency_s, np.inf), np.where(left[1] > 0, -latency_s.T, np.inf))
        far, before = _shortest_from(cost, source)
        if not np.isfinite(far[target]):
            return
        steps = _steps(before, source, target)
        # of two arcs (forward and back) between the same nodes the path takes the cheaper one
        layers = [0 if left[0][a, b] > 0 and latency_s[a, b] <= cost[a, b] else 1 for a, b in steps]
        width = min(float(left[k][a, b]) for k, (a, b) in zip(layers, steps, strict=True))
        for k, (a, b) in zip(layers, steps, strict=True):
            left[k][a, b] = left[k][a, b] - width if left[k][a, b] > width * (1 + 1e-9) else 0.0
            left[1 - k][b, a] += width
        yield width, float(far[target])


def _shortest_from(cost: Floats, source: int) -> tuple[Floats, list[int]]:
    """Seconds from the source (Bellman and Ford: costs may be negative), and each node's predecessor."""
    num = len(cost)
    far = np.full(num, np.inf)
    far[source] = 0.0
    before = np.full(num, -1)
    for _ in range(num):
        through = far[:, None] + cost
        closer = through.argmin(axis=0)
        nearer = through[closer, np.arange(num)] < far - 1e-12
        if not nearer.any():
            break
        far = np.where(nearer, through[closer, np.arange(num)], far)
        before = np.where(nearer, closer, before)
    return far, [int(b) for b in before]


def _steps(before: list[int], source: int, target: int) -> list[tuple[int, int]]:
    steps = []
    while target != source:
        steps.append((before[target], target))
        target = before[target]
    return steps
