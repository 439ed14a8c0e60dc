"""Divisions and changes of them by the value network's guess: hundreds of shares in a pass.

What one job gives another, and what it gets for it, changes two shares; to first order both changes add up. So the
network is asked about each gift alone, some hundred shares in one pass; the best gift each way is the best exchange.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.graphs import Figures, Graphs, figures_of, graphs_of, log_step
from hulk_placement.gnn.weights import Single
from hulk_placement.split import moves
from hulk_placement.split.division import Divisions

EMPTY = 200.0
"""Value of a job that has nothing."""


class Answers(Protocol):
    """A network, or what stands for one."""

    def ratios(self, graphs: Graphs) -> Single:
        """log10(step / ideal) of each graph, (B,)."""


@dataclass
class Guide:
    """The network on the jobs of one problem; shares that it was asked about are remembered."""

    divisions: Divisions
    network: Answers
    figures: list[Figures] = field(init=False)
    _known: list[dict[bytes, float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.figures = [figures_of(job) for job in self.divisions.jobs]
        self._known = [{} for _ in self.figures]

    def ranked(self, divisions: Iterable[Ints]) -> list[Ints]:
        """By the guessed value, least first, each once."""
        several = {counts.tobytes(): counts for counts in divisions}
        rows_BJP = np.stack(list(several.values()))
        values_JB = [self.guess(job, rows_BJP[:, job]) for job in range(len(self.figures))]
        return [rows_BJP[k] for k in np.argsort(np.sum(values_JB, axis=0), kind="stable").tolist()]

    def exchange(self, counts: Ints, rng: random.Random) -> tuple[float, Ints]:
        """The best exchange of two rows at random: what the value rises by, guessed, and the division then.

        A rise of 0, and the division as it is, where no exchange is guessed to be better.
        """
        here, there = rng.sample(range(len(counts)), 2)
        gifts, returns = self._gifts(counts, here, there, rng), self._gifts(counts, there, here, rng)
        rise_G = self._rise(counts[here], here, -gifts) + self._rise(counts[there], there, gifts)
        rise_H = self._rise(counts[there], there, -returns) + self._rise(counts[here], here, returns)
        g, h = int(rise_G.argmin()), int(rise_H.argmin())
        changed = counts.copy()
        changed[here] += returns[h] - gifts[g]
        changed[there] += gifts[g] - returns[h]
        return float(rise_G[g] + rise_H[h]), changed

    def _gifts(self, counts: Ints, source: int, target: int, rng: random.Random) -> Ints:
        """What a row may give another, (G, P): nothing, some or all of one pool, all of a region.

        In whole workers of both.
        """
        pools, held = self.divisions.pools, counts[source]
        room = pools.most_JP[target] - counts[target] if target < len(counts) - 1 else held
        together = math.lcm(pools.each_J[source], pools.each_J[target])
        given = np.minimum(held, room) // together * together
        found = [np.zeros_like(held)]
        for pool in np.flatnonzero(given > 0).tolist():
            some = moves.some(pools, counts, pool, source, target, rng)
            for num in {int(given[pool]), min(int(given[pool]), max(1, some // together) * together)}:
                gift = np.zeros_like(held)
                gift[pool] = num
                found.append(gift)
        for region in dict.fromkeys(pools.region_P[given > 0].tolist()):
            gift = np.where(pools.region_P == region, given, 0)
            if (gift > 0).sum() > 1:
                found.append(gift)
        return np.stack(found)

    def _rise(self, row: Ints, job: int, changes: Ints) -> Floats:
        """What the logarithm of a job's step rises by, guessed; 0 for what nobody has."""
        if job == len(self.figures):
            return np.zeros(len(changes))
        values = self.guess(job, row + changes)
        return np.asarray(values - values[0])

    def guess(self, job: int, rows_BP: Ints) -> Floats:
        """The logarithm of a step's seconds on each share, guessed."""
        known, keys, figures = self._known[job], [row.tobytes() for row in rows_BP], self.figures[job]
        new = {key: row for key, row in zip(keys, rows_BP, strict=True) if key not in known}
        if new:
            rows = np.stack(list(new.values()))
            values, is_any = np.full(len(rows), EMPTY), ((rows > 0) & (figures.speed_P > 0)).any(axis=1)
            if is_any.any():
                graphs = graphs_of(figures, rows[is_any])
                values[is_any] = log_step(graphs, self.network.ratios(graphs))
            known |= zip(new, values.tolist(), strict=True)
            self.divisions.num_guessed += len(new)
        return np.array([known[key] for key in keys])
