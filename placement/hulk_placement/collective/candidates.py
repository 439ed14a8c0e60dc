"""Ways to share one vector out over a network: the linear program's at several latency caps, and the plain ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from hulk_placement.collective.columns import asked_for, first_patterns
from hulk_placement.collective.neighbours import neighbours
from hulk_placement.collective.network import Network
from hulk_placement.collective.patterns import Flow, Pattern, all_patterns, one_hop, ring, star
from hulk_placement.collective.pool import Pool, Window, joined, timed
from hulk_placement.collective.program import Program, ProgramError, Sharing, closed_form_s
from hulk_placement.collective.timing import Delays, delays
from hulk_placement.collective.transport import Transport

MOST_LISTED_REGIONS = 4
"""Up to this many regions every pattern is listed (1,445 of four); with more, prices ask for patterns."""

MOST_EXACT_REGIONS = 6
"""With more the program has one row a resource, and the closed form says how long its flows really take."""

MOST_CAPS = 4
CLOSE_CAPS = 1.03

ROUNDS, ROUNDS_A_CAP = 8, 3
"""Rounds of new patterns below the first cap, and below each further one: more of them gain less than they take."""

COLUMNS_A_ROUND = 32
LEAST_GAIN = 0.002
MOST_IDLE = 3
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
    """The linear program of one network and chunk size, for any number of bytes.

    Each begins with the patterns that the last one used, the first with those of the sharer `before`.
    """

    def __init__(
        self,
        network: Network,
        transport: Transport,
        chunk_bytes: int,
        is_listed: bool | None = None,
        before: Sharer | None = None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.go_on = go_on
        self.delays = delays(network, transport, chunk_bytes)
        num = len(network.regions)
        is_listed = num <= MOST_LISTED_REGIONS if is_listed is None else is_listed
        self.is_coarse = num > MOST_EXACT_REGIONS
        self.listed = _listed(num, self.delays) if is_listed else None
        self._least = self._first = first_patterns(self.delays)
        if before is not None:
            used = before._first
            self._first = joined(self._least, timed(self.delays, used.up_NR, used.down_NR))
        self._windows: list[Window] = []
        self._looked_at: dict[float, Pool] = {}

    def sharings(self, num_bytes: float, near_s: float, most: int = 1) -> list[Closed]:
        """The fastest sharings without their smallest shares, with the seconds of the closed form.

        `near_s` is a guess at those. Raises ProgramError.
        """
        program = Program(self._first, num_bytes, self._windows, self.is_coarse)
        found = self._bracketed(program, near_s, MOST_CAPS, CLOSE_CAPS)
        found.sort(key=lambda item: item[0].seconds)
        self._looked_at[num_bytes] = program.pool
        self._first = joined(self._least, program.pool.take(np.flatnonzero(found[0][0].shares)))
        distinct = {item[0].seconds: item for item in reversed(found)}
        pruned = [self._pruned(program, *distinct[seconds]) for seconds in sorted(distinct)[:most]]
        return sorted(pruned, key=lambda closed: closed[0])

    def again(self, slower: Delays, num_bytes: float, cap_s: float) -> Closed:
        """The fastest sharing over slower links of the patterns that were looked at for that many bytes, no others.

        Raises ProgramError, also where none were looked at.
        """
        known = self._looked_at.get(num_bytes)
        if known is None:
            raise ProgramError(f"no patterns were looked at for {num_bytes:g} bytes")
        program = Program(timed(slower, known.up_NR, known.down_NR), num_bytes, self._windows, self.is_coarse)
        cap_s = max(cap_s, float(program.pool.uses.latency_s.min()))
        program.admit(cap_s)
        return self._pruned(program, program.solve(), cap_s)

    def least_s(self, num_bytes: float) -> float:
        """The program's seconds, before small shares are pruned, with caps as close as it takes."""
        program = Program(self._first, num_bytes, is_coarse=self.is_coarse)
        found = self._bracketed(program, np.inf, 16, 1.0005)
        return min(sharing.seconds for sharing, _ in found)

    def _bracketed(self, program: Program, cap_s: float, most_caps: int, close: float) -> list[tuple[Sharing, float]]:
        """Sharings of patterns no later than a cap, with the cap; bisection finds where the best is.

        T falls as the cap on latency rises, until T is no more than the cap: then rows that are longer than T, which
        have no part in it, hold T up.
        """
        low_s, high_s = float(program.pool.uses.latency_s.min()), np.inf
        solved: list[tuple[Sharing, float]] = []
        for number in range(most_caps):
            cap_s = max(cap_s, low_s)
            found = self._solve(program, cap_s, ROUNDS if number == 0 else ROUNDS_A_CAP)
            if not solved or found.seconds < min(known.seconds for known, _ in solved):
                self._windows = program.binding()
            solved.append((found, cap_s))
            if found.seconds <= cap_s:
                high_s = min(cap_s, found.seconds)
            else:
                low_s, high_s = cap_s, min(high_s, found.seconds)
            if high_s <= low_s * close or low_s >= self._latest_s(program) or not self.go_on():
                break
            cap_s = (low_s + high_s) / 2
        return solved

    def _latest_s(self, program: Program) -> float:
        """The latency of the latest pattern there is."""
        return float((program.pool if self.listed is None else self.listed).uses.latency_s.max())

    def _solve(self, program: Program, cap_s: float, rounds: int) -> Sharing:
        """A solution, for so many rounds with the patterns that the last one's prices asked for."""
        program.admit(cap_s)
        found = program.run()
        num_idle = 0
        for _ in range(rounds):
            is_broken = program.separate(found)
            entered = any(program.enter(pool, found, COLUMNS_A_ROUND) for pool in self._pools(program, found))
            if num_idle >= MOST_IDLE or not self.go_on() or not (entered or is_broken):
                break
            before_s, found = found.seconds, program.run()
            num_idle = num_idle + 1 if abs(found.seconds - before_s) < before_s * LEAST_GAIN else 0
        return program.solve()

    def _pools(self, program: Program, found: Sharing) -> Iterator[Pool]:
        """Patterns that may make a sharing faster: the second pool is for when the first one has none that does."""
        if self.listed is not None:
            yield self.listed
            return
        yield asked_for(program, found)
        yield neighbours(program, found)

    def _pruned(self, program: Program, sharing: Sharing, cap_s: float) -> Closed:
        """The sharing without its smallest shares, at most a hundredth slower unless it has too many flows."""
        program.admit(cap_s)
        pool, shares = program.pool, np.zeros(len(program.pool))
        shares[: len(sharing.shares)] = sharing.shares
        least_of_most = np.sort(shares)[-FLOWS_A_REGION * pool.up_NR.shape[1] :][0]
        for least in LEAST_SHARES:
            kept = (shares > 0) & (shares >= max(least, least_of_most))
            if kept.any():
                program.keep(kept)
                found = program.solve()
                if found.seconds <= sharing.seconds * (1 + PRUNING_LOSS):
                    break
        total = found.shares.sum()
        flows = tuple(
            Flow(float(found.shares[n] / total), _pattern(pool, int(n))) for n in np.flatnonzero(found.shares)
        )
        return closed_form_s(flows, program.num_bytes, pool.delays) if self.is_coarse else found.seconds, flows


def _pattern(pool: Pool, number: int) -> Pattern:
    return Pattern(tuple(map(int, pool.up_NR[number])), tuple(map(int, pool.down_NR[number])))


def _listed(num_regions: int, known: Delays) -> Pool:
    patterns = all_patterns(num_regions)
    return timed(known, np.array([p.up for p in patterns]), np.array([p.down for p in patterns]))


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
