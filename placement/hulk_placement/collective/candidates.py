"""Ways to share one vector out over a network: the linear program's at several latency caps, and the plain ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hulk_placement.collective.columns import asked_for, first_patterns
from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Pattern, all_patterns, one_hop, ring, star
from hulk_placement.collective.program import Pool, Program, Sharing, Window, closed_form_s
from hulk_placement.collective.timing import Delays, delays
from hulk_placement.collective.transport import Transport

MOST_LISTED_REGIONS = 4
"""Up to this many regions every pattern is listed (1,445 of four); with more, prices ask for patterns."""

MOST_EXACT_REGIONS = 6
"""With more the program has one row a resource, and the closed form says how long its flows really take."""

MOST_CAPS = 4
CLOSE_CAPS = 1.03
ROUNDS, ROUNDS_A_CAP = 8, 2
LEAST_GAIN = 0.002
MOST_IDLE = 2
"""Rounds that gain less, one after the other, before it is given up: among equal sharings one may gain nothing."""

LEAST_SHARES = (0.02, 0.005, 0.0)
PRUNING_LOSS = 0.01
FLOWS_A_REGION = 4
MOST_ORDERED_REGIONS = 5
MOST_STARTS = 8
MOST_REGIONS_OF_ALL_WAYS = 24


Closed = tuple[float, tuple[Flow, ...]]
"""Flows with their seconds by the closed form."""


class Sharer:
    """The linear program of one network and chunk size, for any number of bytes, each from what the last one used."""

    def __init__(
        self,
        network: Network,
        transport: Transport,
        chunk_bytes: int,
        is_listed: bool | None = None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.go_on = go_on
        self.delays = delays(network, transport, chunk_bytes)
        num = len(network.regions)
        self.is_listed = num <= MOST_LISTED_REGIONS if is_listed is None else is_listed
        self.is_coarse = num > MOST_EXACT_REGIONS
        self.pool = _listed(num, self.delays) if self.is_listed else Pool(self.delays, *first_patterns(self.delays))
        self._windows: list[Window] = []
        self._columns: list[int] = []

    def sharings(self, num_bytes: float, most: int) -> list[Closed]:
        """The fastest pruned sharings with the seconds of the closed form, of caps that bracket the best."""
        program = self._program(num_bytes, self._windows, self._columns)
        found = [(sharing, program.binding()) for sharing in self._at_caps(program)]
        found.sort(key=lambda item: item[0].seconds)
        self._columns, self._windows = list(found[0][0].bytes_by_pattern), found[0][1]
        distinct = {item[0].seconds: item for item in reversed(found)}
        pruned = [self._pruned(*distinct[seconds]) for seconds in sorted(distinct)[:most]]
        return sorted(pruned, key=lambda closed: closed[0])

    def _program(self, num_bytes: float, windows: Sequence[Window] = (), columns: Sequence[int] = ()) -> Program:
        return Program(self.pool, num_bytes, windows, columns, self.is_coarse)

    def least_s(self, num_bytes: float) -> float:
        """The program's seconds, before small shares are pruned, with caps as close as it takes."""
        return min(found.seconds for found in self._at_caps(self._program(num_bytes), most_caps=16, close=1.0005))

    def _at_caps(self, program: Program, most_caps: int = MOST_CAPS, close: float = CLOSE_CAPS) -> Iterator[Sharing]:
        """Solutions by cap: T falls as the cap rises, until T is no more than the cap; bisection finds where.

        Where T without a cap is above every latency, no cap can lower it: each of its rows then allows that T.
        """
        free = self._solve(program, np.inf, ROUNDS)
        yield free
        latency_s = self.pool.uses.latency_s
        low_s, high_s = float(latency_s.min()), free.seconds
        if high_s > latency_s.max():
            return
        for _ in range(most_caps):
            if high_s <= low_s * close or not self.go_on():
                return
            cap_s = (low_s + high_s) / 2
            found = self._solve(program, cap_s, ROUNDS_A_CAP)
            yield found
            if found.seconds <= cap_s:
                high_s = cap_s
            else:
                low_s, high_s = cap_s, min(high_s, found.seconds)

    def _solve(self, program: Program, cap_s: float, rounds: int) -> Sharing:
        """A solution, for so many rounds with the patterns that the last one's prices asked for."""
        found = program.solve(cap_s)
        num_idle = 0
        for _ in range(0 if self.is_listed else rounds):
            up_NR, down_NR = asked_for(program, found)
            if not len(up_NR) or num_idle == MOST_IDLE or not self.go_on():
                break
            self.pool.add(up_NR, down_NR)
            before_s, found = found.seconds, program.solve(cap_s)
            num_idle = num_idle + 1 if found.seconds > before_s * (1 - LEAST_GAIN) else 0
        return found

    def _pruned(self, sharing: Sharing, windows: Sequence[Window]) -> Closed:
        """The sharing without its smallest shares, at most a hundredth slower unless it has too many flows."""
        pool = self.pool
        most = FLOWS_A_REGION * pool.num_regions
        by_share = sorted(sharing.bytes_by_pattern.items(), key=lambda item: (-item[1], item[0]))[:most]
        for least in LEAST_SHARES:
            kept = np.array([number for number, size in by_share if size >= least * sharing.num_bytes])
            if len(kept):
                small = Pool(self.delays, pool.up_NR[kept], pool.down_NR[kept])
                few = Program(small, sharing.num_bytes, windows, range(len(kept)), self.is_coarse).solve(np.inf)
                if few.seconds <= sharing.seconds * (1 + PRUNING_LOSS):
                    break
        total = sum(few.bytes_by_pattern.values())
        flows = tuple(
            Flow(float(size / total), _pattern(pool, int(kept[number])))
            for number, size in few.bytes_by_pattern.items()
        )
        return closed_form_s(flows, sharing.num_bytes, self.delays) if self.is_coarse else few.seconds, flows


def _pattern(pool: Pool, number: int) -> Pattern:
    return Pattern(tuple(map(int, pool.up_NR[number])), tuple(map(int, pool.down_NR[number])))


def _listed(num_regions: int, known: Delays) -> Pool:
    patterns = all_patterns(num_regions)
    return Pool(known, np.array([p.up for p in patterns]), np.array([p.down for p in patterns]))


def plain(network: Network, num_bytes: float, transport: Transport, chunk_bytes: int) -> dict[str, Closed]:
    """What one would do without a program: one hop, a hub, equal direct exchange, the pipelined ring in its best order.

    With the seconds of the closed form; only those whose links all are there.
    """
    num = len(network.regions)
    known = delays(network, transport, chunk_bytes)
    orders = _orders(num) if num <= MOST_ORDERED_REGIONS else _near(known)
    ways: dict[str, list[tuple[Flow, ...]]] = {
        "one hop": [(Flow(1.0, one_hop(num)),)],
        "hub": [(Flow(1.0, star(num, root)),) for root in range(num)],
        "direct exchange": [tuple(Flow(1 / num, star(num, root)) for root in range(num))],
        "ring": [tuple(Flow(1 / num, p) for p in ring(order)) for order in orders],
    }
    if num > MOST_REGIONS_OF_ALL_WAYS:
        ways = {"hub": ways["hub"], "direct exchange": ways["direct exchange"]}
    timed = {
        name: min(((closed_form_s(flows, num_bytes, known), flows) for flows in found), key=lambda item: item[0])
        for name, found in ways.items()
    }
    return {name: found for name, found in timed.items() if np.isfinite(found[0])}


def _orders(num_regions: int) -> list[tuple[int, ...]]:
    """Every cyclic order, in both directions."""
    return [(0, *rest) for rest in itertools.permutations(range(1, num_regions))]


def _near(known: Delays) -> list[tuple[int, ...]]:
    """From each of a few regions always on to the nearest left."""
    orders = []
    for first in range(min(MOST_STARTS, len(known.hop_s))):
        order = [first]
        while len(order) < len(known.hop_s):
            far = known.hop_s[order[-1]].copy()
            far[order] = np.inf
            left = [r for r in range(len(far)) if r not in order]
            order.append(min(left, key=lambda r: (far[r], r)))
        orders.append(tuple(order))
    return orders
