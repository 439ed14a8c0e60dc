"""From the best divisions by constructed layouts to the best by layouts searched for: successive halving.

A job that has the same machines in several divisions is laid out once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split.arrange import Arranged
from hulk_placement.split.division import Divisions
from hulk_placement.split.pools import assign

FINALISTS = 4
"""Divisions that are arranged; half as many in each round."""

CONSTRUCTED_WORTH = 20
"""Evaluations of an annealed layout that take as long as constructing one and pricing it."""

ASKED_WORTH, GUESSED_WORTH = 10, 10
"""As above, that take as long as drawing a division whose price is known, and as the network's guess of a share."""


@dataclass
class Work:
    """How much of a budget is spent, as a part of it: of the seconds or of the evaluations, whichever is more."""

    clock: Callable[[], float]
    seconds: float
    evaluations: float
    divisions: Divisions
    start_s: float

    def done(self) -> float:
        """0 at the beginning, 1 or more at the end."""
        asked = ASKED_WORTH * self.divisions.num_divisions + GUESSED_WORTH * self.divisions.num_guessed
        spent = CONSTRUCTED_WORTH * self.divisions.num_evaluations + asked + self.num_arranged
        return max((self.clock() - self.start_s) / self.seconds, spent / self.evaluations)

    @property
    def num_arranged(self) -> int:
        """Layouts evaluated in divisions that were arranged."""
        found = self.divisions.arranged.values()
        return sum(arranged.trials.num_evaluations - arranged.num_counted for arranged in found)


@dataclass
class Final:
    """A division in which each job is laid out, and the sum of the logarithms of what their steps take."""

    counts: Ints
    jobs: list[Arranged]

    @property
    def value(self) -> float:
        """Infinite where a job has no possible layout."""
        return sum(arranged.value for arranged in self.jobs)


def finals(work: Work, seed: int) -> Final | None:
    """The best of the best divisions after all are laid out; None where in none every job has room."""
    field = _entered(work)
    while field:
        begun = work.done()
        is_last = len(field) == 1
        end = 1.0 if is_last else begun + (1.0 - begun) / 2
        jobs = list({id(arranged): arranged for final in field for arranged in final.jobs}.values())
        for number, arranged in enumerate(jobs):
            if (now := work.done()) >= end:
                break
            until = now + (end - now) / (len(jobs) - number)
            arranged.improve(lambda until=until: work.done() < until, seed + number)  # type: ignore[misc]
        if is_last:
            return field[0]
        field = sorted(field, key=lambda final: final.value)[: len(field) // 2]
    return None


def _entered(work: Work) -> list[Final]:
    """The best divisions, each job begun; as many as a quarter of what is left of the work is enough for."""
    begun = work.done()
    field: list[Final] = []
    end = begun + (1.0 - begun) / 4
    for counts in work.divisions.best(FINALISTS):
        if field and work.done() >= end:
            break
        final = _final(work, counts)
        if final is not None:
            for arranged in final.jobs:
                if not arranged.is_begun:
                    arranged.begin(lambda: work.done() < end)
            field.append(final)
    possible = [final for final in field if final.value < math.inf]
    return possible or field[:1]


def _final(work: Work, counts: Ints) -> Final | None:
    jobs = []
    for number, machines in enumerate(assign(work.divisions.pools, counts[:-1])):
        key = (number, frozenset(machines.items()))
        if key not in work.divisions.arranged:
            arranged = Arranged.of(work.divisions, number, counts[number], machines)
            if arranged is None:
                return None
            work.divisions.arranged[key] = arranged
        jobs.append(work.divisions.arranged[key])
    return Final(counts, jobs)
