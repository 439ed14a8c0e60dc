"""Searches over layouts that the planner's is compared with: one evaluator, anytime, deterministic for a seed.

Each tries layouts (`Trials`) until it is told to stop; the best it tried is its answer. `portfolio` is what plans are
made by, `exact` its proof; the others are here alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from hulk_placement.layouts import exact, portfolio
from hulk_placement.layouts.place import Search

from bench.layout_searches import evolutionary, greedy, local, sampling

SEARCHES: Mapping[str, Search] = {
    "portfolio": portfolio.search,
    "random": sampling.search,
    "greedy": greedy.search,
    "local": local.search,
    "evolutionary": evolutionary.search,
    "exact": exact.search,
}
