"""The searches over layouts: on one evaluator, anytime, deterministic for a seed and a number of evaluations.

Each tries layouts (`Trials`) until it is told to stop; the best it tried is its answer. `portfolio` is what plans are
made by; the others are what it is compared with, and parts of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hulk_placement.layouts.searches import evolutionary, exact, greedy, local, portfolio, sampling
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials

Search = Callable[[Trials, Space, Callable[[], bool], int], None]
"""Workload and machines, what may be tried, whether to go on, and a seed."""

SEARCHES: Mapping[str, Search] = {
    "portfolio": portfolio.search,
    "random": sampling.search,
    "greedy": greedy.search,
    "local": local.search,
    "evolutionary": evolutionary.search,
    "exact": exact.search,
}
