"""The linear program that shares the vector out over patterns, with only the rows and columns it needs.

Of the bytes that use a resource e, those that cannot be there before `a` and must be through `z` before the end have
the window [a, T - z] to themselves: with y_f bytes on pattern f and capacity c_e, for every e, a, z

    sum over uses of e with release >= a and tail >= z of y_f  <=  c_e (T - a - z)        and  sum y_f = B.

T is minimised. A row is made when a solution breaks it, a column (from a pool) when its reduced cost says it may help.

A row with a + z makes T at least that, even if no share uses it: patterns are therefore admitted by latency (`cap_s`).

The solver is loaded by the first program: most plans need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hulk_placement.collective.arrays import Bools, Floats, Ints
from hulk_placement.collective.patterns import Flow
from hulk_placement.collective.pool import Pool, Window, joined, timed
from hulk_placement.collective.timing import Delays

ENOUGH = 1e-4
"""A row broken, or a column promising, by less than this share of T is left."""

MOST_ROUNDS = 200

SHORTER = 0.1
"""Seconds of T that a second less of latency is worth: shorter ways are the easier to keep to."""

PRIMAL = 4
"""Of HiGHS' simplex strategies: takes half as long as the default where nearly all that changes is new columns."""


class ProgramError(ArithmeticError):
    """The solver found no solution, though there is one."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """A solution: the share of each column, and the seconds T that they take by the program's rows."""

    seconds: float
    shares: Floats


class Program:
    """The restricted program, in shares of the vector and seconds: neither is far from 1."""

    def __init__(self, pool: Pool, num_bytes: float, windows: Iterable[Window] = (), is_coarse: bool = False) -> None:
        """A program whose first columns are a pool's; with windows that a near solution needed, which saves rounds.

        A coarse one has one row a resource, of the window that all its uses meet: quicker, and T is only a floor.
        """
        import highspy

        self.pool, self.num_bytes, self.is_coarse = pool, num_bytes, is_coarse
        self.windows: list[Window] = []
        self.cap_s = np.inf
        self.prices, self.pays = np.zeros(0), 0.0  # of a second in each window (in T), and for the whole vector
        self.highs: Any = highspy.Highs()
        self._optimal = highspy.HighsModelStatus.kOptimal
        for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("solver", "simplex")):
            self.highs.setOptionValue(option, value)
        if is_coarse:
            self.highs.setOptionValue("simplex_strategy", PRIMAL)
        self.highs.addCol(1.0, 0.0, np.inf, 0, np.array([], dtype=np.int32), np.array([]))
        self.highs.addRow(1.0, 1.0, 0, np.array([], dtype=np.int32), np.array([]))
        self._add(pool)
        self._require([window for window in windows if pool.counts(window).any()])

    def solve(self) -> Sharing:
        """The best sharing among open columns, with all the rows that it takes."""
        for _ in range(MOST_ROUNDS):
            found = self.run()
            if not self.separate(found):
                break
        return found

    def enter(self, pool: Pool, found: Sharing, most: int) -> bool:
        """Make columns of those patterns of a pool that promise most of T; whether there were any."""
        costs = self.reduced_costs(pool)
        best = np.argsort(costs, kind="stable")[:most]
        best = best[costs[best] < -ENOUGH * found.seconds]
        if len(best):
            fresh = pool.take(best)
            self.pool = joined(self.pool, fresh)
            self._add(fresh)
        return bool(len(best))

    def keep(self, kept: Bools) -> None:
        """Close all other columns."""
        upper = np.where(kept, np.inf, 0.0)
        numbers = np.arange(1, len(self.pool) + 1, dtype=np.int32)
        self.highs.changeColsBounds(len(numbers), numbers, np.zeros(len(numbers)), upper)

    def binding(self) -> list[Window]:
        """The windows that hold the last solution back."""
        return [self.windows[number] for number in np.flatnonzero(self.prices > 0)]

    def reduced_costs(self, pool: Pool) -> Floats:
        """By pattern of a pool: what the whole vector moved to it adds to T; inf: not admitted."""
        costs = np.where(pool.uses.latency_s <= self.cap_s, SHORTER * pool.uses.latency_s - self.pays, np.inf)
        for number in np.flatnonzero(self.prices > 0):
            window = self.windows[number]
            costs += self.prices[number] * self._seconds(window) * pool.counts(window)
        return costs

    def _seconds(self, window: Window) -> float:
        """Seconds that the whole vector keeps the window's resource busy."""
        return float(self.num_bytes / self.pool.delays.capacity[window[0]])

    def run(self) -> Sharing:
        """The best sharing among open columns by the rows there are; sets the prices."""
        self.highs.run()
        if self.highs.getModelStatus() != self._optimal:
            self.highs.clearSolver()  # from what it knew it lost its way, as happens with rates of 1e3 beside 1e11 B/s
            self.highs.run()
        if self.highs.getModelStatus() != self._optimal:
            raise ProgramError(f"linear program: {self.highs.getModelStatus()}")
        solution = self.highs.getSolution()
        values, duals = np.array(solution.col_value), np.array(solution.row_dual)
        self.prices, self.pays = -duals[1:], float(duals[0])
        return Sharing(float(values[0]), np.where(values[1:] > 1e-9, values[1:], 0.0))

    def admit(self, cap_s: float) -> None:
        """Close columns and rows above the cap, open those below."""
        self.cap_s = cap_s
        self.keep(self.pool.uses.latency_s <= cap_s)
        for number, window in enumerate(self.windows):
            self.highs.changeRowBounds(number + 1, -np.inf, self._room(window))

    def _room(self, window: Window) -> float:
        """The right side of a window's row; no limit where the window is longer than the cap."""
        _, release_s, tail_s = window
        return np.inf if release_s + tail_s > self.cap_s else -(release_s + tail_s)

    def _add(self, fresh: Pool) -> None:
        """Make columns of a pool's patterns."""
        seconds = np.vstack([np.ones(len(fresh)), *(self._seconds(w) * fresh.counts(w) for w in self.windows)]).T
        columns, rows = np.nonzero(seconds)
        num = len(fresh)
        starts = np.searchsorted(columns, np.arange(num)).astype(np.int32)
        costs, none, wide = SHORTER * fresh.uses.latency_s, np.zeros(num), np.full(num, np.inf)
        self.highs.addCols(num, costs, none, wide, len(rows), starts, rows.astype(np.int32), seconds[columns, rows])

    def link_prices(self) -> Floats:
        """The price of a byte on each link, by source and target, as if it met all of its windows; absent: infinite."""
        known = self.pool.delays
        num = len(known.hop_s)
        total = np.zeros(len(known.capacity))
        for number in np.flatnonzero(self.prices > 0):
            resource = self.windows[number][0]
            total[resource] += self.prices[number] / known.capacity[resource]
        out, into = total[num * num : num * num + num], total[num * num + num :]
        prices = total[: num * num].reshape(num, num) + out[:, None] + into[None, :]
        return np.where(np.isfinite(known.hop_s), prices, np.inf)

    def separate(self, found: Sharing) -> bool:
        """Add, for each resource, the windows that the sharing overfills most; whether there was one."""
        uses = self.pool.uses
        mine = found.shares[uses.pattern] > 0
        broken = (widest if self.is_coarse else overfull)(
            uses.resource[mine],
            uses.release_s[mine],
            uses.tail_s[mine],
            found.shares[uses.pattern[mine]] * self.num_bytes,
            self.pool.delays.capacity,
            found.seconds * (1 + ENOUGH),
        )
        self._require(broken)
        return bool(broken)

    def _require(self, windows: Sequence[Window]) -> None:
        if not windows:
            return
        seconds = np.array([self._seconds(window) * self.pool.counts(window) for window in windows])
        rows, columns = np.nonzero(np.hstack([np.ones((len(windows), 1)), seconds]))
        values = np.hstack([np.full((len(windows), 1), -1.0), seconds])[rows, columns]
        self.highs.addRows(
            len(windows),
            np.full(len(windows), -np.inf),
            np.array([self._room(window) for window in windows]),
            len(rows),
            np.searchsorted(rows, np.arange(len(windows))).astype(np.int32),
            columns.astype(np.int32),
            values,
        )
        self.windows += windows


def overfull(
    resource: Ints, release_s: Floats, tail_s: Floats, num_bytes: Floats, capacity: Floats, limit_s: float
) -> list[Window]:
    """For each resource (sorted) and release the window that needs the longest T, where that is over the limit."""
    found = []
    for part, most_s in _parts(resource, release_s, tail_s, num_bytes, capacity):
        if most_s <= limit_s:
            break
        number = int(resource[part][0])
        need_s = _need_s(release_s[part], tail_s[part], num_bytes[part], capacity[number])
        worst = need_s.argmax(axis=1)
        fresh = {
            (number, float(release_s[part][a]), float(tail_s[part][worst[a]]))
            for a in np.flatnonzero(need_s[np.arange(len(worst)), worst] > limit_s)
        }
        found += sorted(fresh)
    return found


def _parts(
    resource: Ints, release_s: Floats, tail_s: Floats, num_bytes: Floats, capacity: Floats
) -> list[tuple[slice, float]]:
    """Each resource's part of the arrays, and a T that is enough for all its windows, in falling order of that."""
    first = np.flatnonzero(np.diff(resource, prepend=-1))
    most_s = (
        np.add.reduceat(num_bytes, first) / capacity[resource[first]]
        + np.maximum.reduceat(release_s, first)
        + np.maximum.reduceat(tail_s, first)
    )
    ends = np.append(first[1:], len(resource))
    return [(slice(first[n], ends[n]), float(most_s[n])) for n in np.argsort(-most_s, kind="stable")]


def widest(
    resource: Ints, release_s: Floats, tail_s: Floats, num_bytes: Floats, capacity: Floats, limit_s: float
) -> list[Window]:
    """For each resource (sorted) the window that all its uses meet, where that needs a longer T than the limit."""
    first = np.flatnonzero(np.diff(resource, prepend=-1))
    release, tail = np.minimum.reduceat(release_s, first), np.minimum.reduceat(tail_s, first)
    need_s = np.add.reduceat(num_bytes, first) / capacity[resource[first]] + release + tail
    return [(int(resource[first[n]]), float(release[n]), float(tail[n])) for n in np.flatnonzero(need_s > limit_s)]


def _need_s(release_s: Floats, tail_s: Floats, num_bytes: Floats, capacity: float) -> Floats:
    """The T that the uses of one resource need in each of their windows, by release and tail: a + z + bytes / capacity.

    >>> _need_s(np.array([0.0, 0.1]), np.array([0.2, 0.1]), np.array([30.0, 20.0]), 100.0)
    array([[0.5, 0.6],
           [0. , 0.4]])
    """
    late = release_s >= release_s[:, None]
    early = tail_s >= tail_s[:, None]
    load = (late * num_bytes) @ early.T.astype(float)
    return np.where(load > 0, load / capacity + release_s[:, None] + tail_s, 0.0)


def closed_form_s(flows: Sequence[Flow], num_bytes: float, known: Delays) -> float:
    """Seconds of an all-reduce by given flows: the T of the program's rows; infinite where a link is absent."""
    pool = timed(known, np.array([f.pattern.up for f in flows]), np.array([f.pattern.down for f in flows]))
    shares = np.array([f.share for f in flows])
    if len(pool) < len(flows):
        return float(np.inf)
    seconds = float(pool.uses.latency_s.max())
    load = shares[pool.uses.pattern] * num_bytes
    release_s, tail_s, resource = pool.uses.release_s, pool.uses.tail_s, pool.uses.resource
    for part, most_s in _parts(resource, release_s, tail_s, load, known.capacity) if len(load) else ():
        if most_s <= seconds:
            break
        need_s = _need_s(release_s[part], tail_s[part], load[part], known.capacity[resource[part][0]])
        seconds = max(seconds, float(need_s.max()))
    return seconds
