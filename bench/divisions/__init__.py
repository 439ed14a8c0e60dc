"""Searches over divisions of machines among jobs that the planner's is compared with: anytime, the same for a seed.

`portfolio` is what plans are made by; `local`, `gnn` and `exact` are its parts; the others are here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hulk_placement.solve import guided, portfolio
from hulk_placement.split import exact, local
from hulk_placement.split.division import Divisions, Progress

from bench.divisions import evolutionary, greedy, hulk_gcn, sampling

SEARCHES: Mapping[str, Callable[[Divisions, Progress, int], None]] = {
    "portfolio": portfolio.search,
    "local": local.search,
    "gnn": guided.search,
    "hulk-gcn": hulk_gcn.search,
    "greedy": greedy.search,
    "random": sampling.search,
    "evolutionary": evolutionary.search,
    "exact": exact.search,
}
"""By name: (what was tried, how much of the work is done, seed) -> what was tried is changed."""
