"""Searches over divisions of machines among jobs, behind one interface: all anytime, deterministic for a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hulk_placement.split.division import Divisions, Progress
from hulk_placement.split.searches import evolutionary, exact, greedy, guided, local, paper, portfolio, sampling

SEARCHES: Mapping[str, Callable[[Divisions, Progress, int], None]] = {
    "portfolio": portfolio.search,
    "local": local.search,
    "gnn": guided.search,
    "hulk-gcn": paper.search,
    "greedy": greedy.search,
    "random": sampling.search,
    "evolutionary": evolutionary.search,
    "exact": exact.search,
}
"""By name: (what was tried, how much of the work is done, seed) -> what was tried is changed."""
