"""When a search ends because waiting costs more than it may still win.

The value of computation (Russell & Wefald 1991): a look is worth what it is expected to save of the run, less what
waiting for it costs. What a search wins falls with time, and there it is optimal to stop as soon as the next look is
not worth it (the one-step look-ahead rule of optimal stopping, Chow, Robbins & Siegmund 1971; for searches that always
have an answer, Hansen & Zilberstein 2001).

    W    jobs      that wait for the answer, for each that the search plans
    R    seconds   that a job is predicted to run: steps that are left x seconds of the best step found until now
    t    seconds   searched; t_0 when the first plan was found, t_i when the i-th improvement was
    d_i  seconds   by which the i-th improvement shortened R; d_0 = LUCK R, what the first plan counts as

    gain(t) = sum_i (t_i / t) d_i,   at most R - R_least

is what searching on until e t is expected to win, and W t what each such unit of ln t costs. The search ends when

    W t  >=  min(gain(t), SHARE R)

so that nobody waits longer for it than SHARE of a run. What is assumed:

1. Candidates come like independent draws: a search wins about as much while its time grows from t to e t as it won
   before, while it grew from t / e to t (the theory of records). A gain counts by how recent it is.
2. What has won nothing since t_0 may have luck with a chance of t_0 / t, as of a find in t / t_0 draws (the rule of
   succession). It is worth LUCK of the run: where any layout is allowed, steps are shorter by 24 % in the mean of 8
   clusters than by the first plan, and by 0.4 to 1.3 % for each e of time after that
   (docs/benchmarks/layout-search.md).
3. A second of waiting costs as much as a second of running, for every job. Runs are as long as predicted.
4. A job runs for RUN_S by its first plan where its steps are not known, or where plans are judged by their price.

One job alone of 600 steps of a second, a first plan after 0.01 s, nothing better after that:

    t, s    gain, s                SHARE R, s
    0.01    150                    6
    1.00    1.5                    6
    1.23    0.01 x 150 / 1.23      6        1.23 >= 1.22: the search ends
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from hulk_placement.solution import Budget
from hulk_placement.workload import Workload

SHARE: Final = 0.01
"""Of the predicted run: what may be waited for a search at most."""

LUCK: Final = 0.25
"""Of the predicted run: what a better plan than the first one is worth before any was found."""

RUN_S: Final = 86_400.0
"""A day: what a job runs that does not say how many steps it makes."""


@dataclass(slots=True)
class Stopping:
    """The rule for one search, which began at `start_s`. No run is shorter than `least_s`.

    >>> alone = Stopping(num_waiting=1, start_s=0.0)
    >>> [alone.is_over(now_s, 600.0) for now_s in (0.01, 1.0, 1.23)]
    [False, False, True]
    >>> better = Stopping(num_waiting=1, start_s=0.0)  # 60 s won at 1.0 count 49 at 1.23
    >>> [better.is_over(now_s, run_s) for now_s, run_s in ((0.01, 660.0), (1.0, 600.0), (1.23, 600.0), (6.1, 600.0))]
    [False, False, False, True]
    """

    num_waiting: float
    start_s: float
    least_s: float = 0.0
    _run_s: float = math.inf
    _won: float = 0.0
    """The sum of t_i d_i."""

    def is_over(self, now_s: float, run_s: float) -> bool:
        """Whether the search is to end; `run_s`: R of the best plan found until now, infinite before the first."""
        if run_s == math.inf:
            return False
        searched_s = now_s - self.start_s
        self._won += searched_s * (LUCK * run_s if self._run_s == math.inf else max(0.0, self._run_s - run_s))
        self._run_s = run_s
        gain_s = min(self._won / searched_s, run_s - self.least_s) if searched_s > 0.0 else math.inf
        return self.num_waiting * searched_s >= min(gain_s, SHARE * run_s)


def stopping(budget: Budget, start_s: float) -> Stopping | None:
    """The rule for a search whose costs are seconds of run; None where no clock is looked at."""
    is_clocked = budget.seconds < math.inf and budget.record.given is None
    return Stopping(budget.num_waiting, start_s) if is_clocked else None


def known_steps(workload: Workload) -> float | None:
    """How many times a job takes the seconds that are made least; None where that is not known."""
    return workload.num_steps if workload.objective == "time" else None
