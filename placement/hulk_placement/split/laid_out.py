"""From the best division by constructed layouts to layouts searched for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.solution import Budget, Readings
from hulk_placement.split.arrange import Arranged
from hulk_placement.split.division import Divisions
from hulk_placement.split.pools import assign
from hulk_placement.stopping import Stopping, stopping

MOST_BEGUN = 4
"""Divisions, at most, that are begun until every job of one has a layout."""

BEGUN_SHARE = 0.25
"""Of the work that is left, at most: to begin them."""

CONSTRUCTED_WORTH = 20
"""Evaluations of an annealed layout that take as long as constructing one and pricing it."""

ASKED_WORTH, GUESSED_WORTH = 10, 10
"""As above, that take as long as drawing a division whose price is known, and as the network's guess of a share."""


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


@dataclass
class Work:
    """How much of a budget is spent, as a part of it: of the evaluations or of the seconds, whichever is more.

    Seconds count in whole percents, which `readings` keep by the number of the question that they were read at; with
    `given` ones no clock is looked at. `stopping` may end it before.
    """

    divisions: Divisions
    evaluations: float
    clock: Callable[[], float]
    start_s: float
    seconds: float
    given: Readings | None = None
    readings: Readings = field(default_factory=dict)
    stopping: Stopping | None = None
    laid_out: LaidOut | None = None
    """The division whose jobs are laid out at last."""
    num_asked: int = 0
    percent: int = 0

    @classmethod
    def begun(cls, divisions: Divisions, budget: Budget, clock: Callable[[], float], share: float) -> Work:
        """A share of the budget, of which nothing is spent."""
        (given, made), num_jobs, start_s = budget.record.begin(), len(divisions.jobs), clock()
        limits = (share * budget.iterations * num_jobs, clock, start_s, share * budget.seconds)
        waiting = replace(budget, num_waiting=budget.num_waiting / num_jobs)
        return cls(divisions, *limits, given, made, stopping(waiting, start_s))

    def done(self) -> float:
        """0 at the beginning, 1 or more at the end."""
        self.num_asked += 1
        by_work = self._num_spent / self.evaluations
        percent = self._read() if self.given is None else self.given.get(self.num_asked, 0)
        if percent > max(self.percent, 100 * by_work):
            self.percent = self.readings[self.num_asked] = percent
        return max(by_work, self.percent / 100)

    def _read(self) -> int:
        """Percents of the time that are over; all of them where waiting costs more than may be won."""
        now_s = self.clock()
        if self.stopping is not None and self.stopping.is_over(now_s, self._run_s()):
            return 100
        return min(100, int(100 * (now_s - self.start_s) / self.seconds))

    def _run_s(self) -> float:
        """Seconds that a job runs by the best division found, in the geometric mean; infinite before the first."""
        divisions, laid_out = self.divisions, self.laid_out
        if divisions.least_value == math.inf:
            return math.inf
        value = divisions.least_value if laid_out is None else min(divisions.least_value, laid_out.value)
        return divisions.run_s * math.exp((value - divisions.first_value) / len(divisions.jobs))

    @property
    def _num_spent(self) -> int:
        asked = ASKED_WORTH * self.divisions.num_divisions + GUESSED_WORTH * self.divisions.num_guessed
        return CONSTRUCTED_WORTH * self.divisions.num_evaluations + asked + self.num_arranged

    @property
    def num_arranged(self) -> int:
        """Layouts evaluated in divisions that were arranged."""
        found = self.divisions.arranged.values()
        return sum(arranged.trials.num_evaluations - arranged.num_counted for arranged in found)


def lay_out(work: Work, seed: int) -> LaidOut | None:
    """The best division, each job laid out with its part of what is left of the work.

    Where a job has no layout there, the next one; of several without one the best. None where too few accelerators are
    given to some job in all of them.
    """
    found = [laid_out for laid_out in _begun(work) if laid_out is not None]
    best = min(found, key=lambda laid_out: not laid_out.is_possible, default=None)
    work.laid_out = best
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
