"""From the best division by constructed layouts to layouts searched for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.split.arrange import Arranged
from hulk_placement.split.division import Divisions
from hulk_placement.split.pools import assign

MOST_BEGUN = 4
"""Divisions, at most, that are begun until every job of one has a layout."""

BEGUN_SHARE = 0.25
"""Of the work that is left, at most: to begin them."""

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
class LaidOut:
    """A division in which each job is laid out, and the sum of the logarithms of what their steps take."""

    counts: Ints
    jobs: list[Arranged]

    @property
    def value(self) -> float:
        """Infinite where a job has no possible layout."""
        return sum(arranged.value for arranged in self.jobs)

    @property
    def is_possible(self) -> bool:
        """Whether every job has a layout."""
        return self.value < math.inf


def lay_out(work: Work, seed: int) -> LaidOut | None:
    """The best division, each job laid out with its part of what is left of the work.

    Where a job has no layout there, the next one; of several without one the best. None where too few accelerators are
    given to some job in all of them.
    """
    found = [laid_out for laid_out in _begun(work) if laid_out is not None]
    best = min(found, key=lambda laid_out: not laid_out.is_possible, default=None)
    jobs = [] if best is None else best.jobs
    for number, arranged in enumerate(jobs):
        if (now := work.done()) >= 1.0:
            break
        until = now + (1.0 - now) / (len(jobs) - number)
        arranged.improve(lambda until=until: work.done() < until, seed + number)  # type: ignore[misc]
    return best


def _begun(work: Work) -> Iterator[LaidOut | None]:
    """The best divisions, each job begun, up to the first in which all have a layout."""
    begun = work.done()
    end = begun + BEGUN_SHARE * (1.0 - begun)
    for number, counts in enumerate(work.divisions.best(MOST_BEGUN)):
        if number and work.done() >= end:
            return
        found = _arranged(work, counts)
        for arranged in found.jobs if found else ():
            if not arranged.is_begun:
                arranged.begin(lambda: work.done() < end)
        yield found
        if found and found.is_possible:
            return


def _arranged(work: Work, counts: Ints) -> LaidOut | None:
    """The jobs of a division; one that has the same machines in several divisions is laid out once for all of them."""
    jobs = []
    for number, machines in enumerate(assign(work.divisions.pools, counts[:-1])):
        key = (number, frozenset(machines.items()))
        if key not in work.divisions.arranged:
            arranged = Arranged.of(work.divisions, number, counts[number], machines)
            if arranged is None:
                return None
            work.divisions.arranged[key] = arranged
        jobs.append(work.divisions.arranged[key])
    return LaidOut(counts, jobs)
