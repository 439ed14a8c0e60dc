"""The linear program that shares the vector out over patterns, with only the rows and columns it needs.

Of the bytes that use a resource e, those that cannot be there before `a` and must be through `z` before the end have
the window [a, T - z] to themselves: with y_f bytes on pattern f and capacity c_e, for every e, a, z

    sum over uses of e with release >= a and tail >= z of y_f  <=  c_e (T - a - z)        and  sum y_f = B.

T is minimised. A row is made when a solution breaks it, a column (from a pool) when its reduced cost says it may help.

A row with a + z makes T at least that, even if no share uses it: patterns are therefore admitted by latency (`cap_s`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np

from hulk_placement.collective.network import Bools, Floats, Ints
from hulk_placement.collective.patterns import Flow
from hulk_placement.collective.timing import Delays, Uses, are_usable, uses

ENOUGH = 1e-4
"""A row broken, or a column promising, by less than this share of T is left."""

MAX_ROUNDS = 200
COLUMNS_A_ROUND = 12

Window = tuple[int, float, float]
"""A resource, a release and a tail."""


@dataclass
class Pool:
    """Patterns by number, with their uses sorted by resource; grows. Those that need an absent link are left out."""

    delays: Delays
    up_NR: Ints  # noqa: N815 - a shape suffix
    down_NR: Ints  # noqa: N815 - as above
    uses: Uses = field(init=False)
    _starts: Ints = field(init=False)
    _counts: dict[Window, Floats] = field(init=False)

    def __post_init__(self) -> None:
        self._time()

    def __len__(self) -> int:
        return len(self.up_NR)

    @property
    def num_regions(self) -> int:
        return int(self.up_NR.shape[1])

    def add(self, up_NR: Ints, down_NR: Ints) -> None:
        """Put in those patterns that are new."""
        up_NR, down_NR = np.concatenate([self.up_NR, up_NR]), np.concatenate([self.down_NR, down_NR])
        self.up_NR, self.down_NR = distinct(up_NR, down_NR)
        self._time()

    def counts(self, window: Window) -> Floats:
        """How often each pattern uses the window's resource within it."""
        if window not in self._counts:
            self._counts[window] = self._count(window)
        return self._counts[window]

    def _count(self, window: Window) -> Floats:
        resource, release_s, tail_s = window
        part = slice(self._starts[resource], self._starts[resource + 1])
        inside = (self.uses.release_s[part] >= release_s) & (self.uses.tail_s[part] >= tail_s)
        return np.bincount(self.uses.pattern[part][inside], minlength=len(self)).astype(float)

    def of(self, patterns: Ints) -> Bools:
        """Which uses are of these patterns."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[patterns] = True
        return chosen[self.uses.pattern]

    def _time(self) -> None:
        self._counts = {}
        usable = are_usable(self.up_NR, self.down_NR, self.delays)
        self.up_NR, self.down_NR = self.up_NR[usable], self.down_NR[usable]
        found = uses(self.up_NR, self.down_NR, self.delays)
        order = np.argsort(found.resource, kind="stable")
        self.uses = Uses(
            found.pattern[order],
            found.resource[order],
            found.release_s[order],
            found.tail_s[order],
            found.latency_s,
        )
        self._starts = np.searchsorted(self.uses.resource, np.arange(len(self.delays.capacity) + 1))


def distinct(up_NR: Ints, down_NR: Ints) -> tuple[Ints, Ints]:
    """Each pattern where it is first."""
    _, first = np.unique(np.hstack([up_NR, down_NR]), axis=0, return_index=True)
    first.sort()
    return up_NR[first], down_NR[first]


@dataclass(frozen=True, slots=True)
class Sharing:
    """A solution for so many bytes: bytes by pattern number, and the seconds T that they take by the program's rows."""

    num_bytes: float
    seconds: float
    bytes_by_pattern: dict[int, float]


class Program:
    """The restricted program over a pool, in shares of the vector and seconds: neither is far from 1."""

    def __init__(
        self,
        pool: Pool,
        num_bytes: float,
        windows: Sequence[Window] = (),
        columns: Sequence[int] = (),
        is_coarse: bool = False,
    ) -> None:
        """An empty program, or one that begins with some rows and columns, of a solution that is likely near.

        A coarse one has one row a resource, of the window that all its uses meet: quicker, and T is only a floor.
        """
        self.pool, self.num_bytes, self.is_coarse = pool, num_bytes, is_coarse
        self.windows: list[Window] = []
        self.columns: list[int] = []
        self.cap_s = np.inf
        self.highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("solver", "simplex")):
            self.highs.setOptionValue(option, value)
        self.highs.addCol(1.0, 0.0, highspy.kHighsInf, 0, np.array([], dtype=np.int32), np.array([]))
        self.highs.addRow(1.0, 1.0, 0, np.array([], dtype=np.int32), np.array([]))
        self._enter(np.array(columns, dtype=np.int64))
        for window in windows:
            if pool.counts(window)[self.columns].any():
                self._require(window)

    def solve(self, cap_s: float) -> Sharing:
        """The best sharing among patterns of the pool whose latency is at most the cap; one must be there."""
        self._admit(cap_s)
        if not any(self.pool.uses.latency_s[c] <= cap_s for c in self.columns):
            self._enter(np.argsort(self.pool.uses.latency_s, kind="stable")[:1])
        for _ in range(MAX_ROUNDS):
            found = self._run()
            if not self._separate(found) and not self._enter(self.promising(self.pool, found, COLUMNS_A_ROUND)):
                break
        return found

    def duals(self) -> tuple[Floats, float]:
        """The price of a second in each window (in T), and what the sharing pays for the whole vector."""
        duals = np.array(self.highs.getSolution().row_dual)
        return -duals[1:], float(duals[0])

    def binding(self) -> list[Window]:
        """The windows that hold the last solution back."""
        prices, _ = self.duals()
        return [window for window, price in zip(self.windows, prices, strict=True) if price > 0]

    def reduced_costs(self, pool: Pool) -> Floats:
        """By pattern of a pool: what the whole vector moved to it adds to T; inf: not admitted."""
        prices, pays = self.duals()
        costs = np.where(pool.uses.latency_s <= self.cap_s, -pays, np.inf)
        for window, price in zip(self.windows, prices, strict=True):
            if price > 0:
                costs += price * self._seconds(window) * pool.counts(window)
        return costs

    def promising(self, pool: Pool, found: Sharing, most: int) -> Ints:
        """The patterns of a pool that promise most of T if all bytes could be moved to them, best first."""
        costs = self.reduced_costs(pool)
        best = np.argsort(costs, kind="stable")[:most]
        return best[costs[best] < -ENOUGH * found.seconds]

    def _seconds(self, window: Window) -> float:
        """Seconds that the whole vector keeps the window's resource busy."""
        return float(self.num_bytes / self.pool.delays.capacity[window[0]])

    def _run(self) -> Sharing:
        self.highs.run()
        if self.highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise AssertionError(f"linear program: {self.highs.getModelStatus()}")
        values = np.array(self.highs.getSolution().col_value)
        shares = {c: v * self.num_bytes for c, v in zip(self.columns, values[1:], strict=True) if v > 1e-9}
        return Sharing(self.num_bytes, float(values[0]), shares)

    def _admit(self, cap_s: float) -> None:
        """Close columns and rows above the cap, open those below."""
        if cap_s == self.cap_s:
            return
        self.cap_s = cap_s
        for number, pattern in enumerate(self.columns):
            is_open = self.pool.uses.latency_s[pattern] <= cap_s
            self.highs.changeColBounds(number + 1, 0.0, highspy.kHighsInf if is_open else 0.0)
        for number, window in enumerate(self.windows):
            self.highs.changeRowBounds(number + 1, -highspy.kHighsInf, self._room(window))

    def _room(self, window: Window) -> float:
        """The right side of a window's row; no limit where the window is longer than the cap."""
        _, release_s, tail_s = window
        return float(highspy.kHighsInf) if release_s + tail_s > self.cap_s else -(release_s + tail_s)

    def _enter(self, patterns: Ints) -> bool:
        """Make columns of those patterns that are not; whether there were any."""
        fresh = [int(pattern) for pattern in patterns if pattern not in self.columns]
        known = [self._seconds(window) * self.pool.counts(window) for window in self.windows] if fresh else []
        for pattern in fresh:
            seconds = np.array([1.0, *(by_pattern[pattern] for by_pattern in known)])
            rows = np.flatnonzero(seconds).astype(np.int32)
            self.highs.addCol(0.0, 0.0, highspy.kHighsInf, len(rows), rows, seconds[rows])
            self.columns.append(pattern)
        return bool(fresh)

    def _separate(self, found: Sharing) -> bool:
        """Add, for each resource, the window that the sharing overfills most; whether there was one."""
        mine = self.pool.of(np.array(list(found.bytes_by_pattern)))
        uses = self.pool.uses
        num_bytes = np.zeros(len(self.pool))
        num_bytes[list(found.bytes_by_pattern)] = list(found.bytes_by_pattern.values())
        broken = (widest if self.is_coarse else overfull)(
            uses.resource[mine],
            uses.release_s[mine],
            uses.tail_s[mine],
            num_bytes[uses.pattern[mine]],
            self.pool.delays.capacity,
            found.seconds * (1 + ENOUGH),
        )
        for window in broken:
            self._require(window)
        return bool(broken)

    def _require(self, window: Window) -> None:
        seconds = self._seconds(window) * self.pool.counts(window)[self.columns]
        places = np.flatnonzero(seconds)
        index = np.concatenate([[0], places + 1]).astype(np.int32)
        values = np.concatenate([[-1.0], seconds[places]])
        self.highs.addRow(-highspy.kHighsInf, self._room(window), len(index), index, values)
        self.windows.append(window)


def overfull(
    resource: Ints, release_s: Floats, tail_s: Floats, num_bytes: Floats, capacity: Floats, limit_s: float
) -> list[Window]:
    """For each resource (sorted) the window that needs the longest T, where that is more than the limit."""
    found = []
    for part, most_s in _parts(resource, release_s, tail_s, num_bytes, capacity):
        if most_s <= limit_s:
            break
        window, need_s = fullest(int(resource[part][0]), release_s[part], tail_s[part], num_bytes[part], capacity)
        if need_s > limit_s:
            found.append(window)
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


def fullest(
    resource: int, release_s: Floats, tail_s: Floats, num_bytes: Floats, capacity: Floats
) -> tuple[Window, float]:
    """The window of a resource whose uses need the longest T, and that T: a + z + bytes / capacity.

    >>> fullest(0, np.array([0.0, 0.1]), np.array([0.2, 0.1]), np.array([30.0, 20.0]), np.array([100.0]))
    ((0, 0.0, 0.1), 0.6)
    """
    late = release_s >= release_s[:, None]
    early = tail_s >= tail_s[:, None]
    load = (late * num_bytes) @ early.T.astype(float)
    need_s = np.where(load > 0, load / capacity[resource] + release_s[:, None] + tail_s, 0.0)
    a, z = divmod(int(need_s.argmax()), len(tail_s))
    return (resource, float(release_s[a]), float(tail_s[z])), float(need_s[a, z])


def closed_form_s(flows: Sequence[Flow], num_bytes: float, known: Delays) -> float:
    """Seconds of an all-reduce by given flows: the T of the program's rows; infinite where a link is absent."""
    pool = Pool(known, np.array([f.pattern.up for f in flows]), np.array([f.pattern.down for f in flows]))
    shares = np.array([f.share for f in flows])
    if len(pool) < len(flows):
        return float(np.inf)
    seconds = float(pool.uses.latency_s.max())
    load = shares[pool.uses.pattern] * num_bytes
    release_s, tail_s, resource = pool.uses.release_s, pool.uses.tail_s, pool.uses.resource
    for part, most_s in _parts(resource, release_s, tail_s, load, known.capacity) if len(load) else ():
        if most_s <= seconds:
            break
        window = fullest(int(resource[part][0]), release_s[part], tail_s[part], load[part], known.capacity)
        seconds = max(seconds, window[1])
    return seconds
