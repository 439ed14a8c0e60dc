"""`python -m bench moves`: how many changed layouts the compiled annealing prices in a second of one core.

Of each drawn cluster (`bench.families.clusters`) the best constructed layout is annealed. A move changes machines,
layers or sequences, and prices what that changes; one that is bound to be too late is undone before it is priced.
Predictions only, nothing is trained.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts import portfolio
from hulk_placement.layouts.annealing import annealed
from hulk_placement.layouts.drafts import Drafts
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from rich.console import Console
from rich.table import Table

from bench.families.clusters import Cluster, drawn
from bench.raw import Raw
from bench.verdicts import verdict

MOVES_A_CALL = 20_000
NUM_CALLS = 5
MIN_RATE = 1e6
"""Moves a second and core: the aim."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one cluster: degrees of the layout, and the moves of each call over its processor seconds."""

    cluster: str
    degrees: tuple[int, ...]
    moves_per_s: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the calls."""
        return statistics.median(self.moves_per_s)


def run(short: bool = False) -> None:
    """Print moves per second by cluster, and whether the median reaches the aim."""
    console, raw, rows = Console(highlight=False, width=120), Raw("moves"), list[Rate]()
    table = Table("cluster", "data x pipeline x tensor", "moves/s", "us a move")
    for cluster in drawn(short):
        rows.append(row := measured(cluster))
        raw.add(row)
        degrees = " x ".join(map(str, row.degrees))
        table.add_row(row.cluster, degrees, f"{row.median:,.0f}", f"{1e6 / row.median:.2f}")
    console.print(table)
    median = statistics.median(row.median for row in rows)
    console.print(verdict("moves per second and core, median", median, "at least", MIN_RATE))


def measured(cluster: Cluster, moves_a_call: int = MOVES_A_CALL) -> Rate:
    """Anneal the best of the constructed layouts, several times from the same one."""
    trials = Trials(Ground.of(cluster.workload, cluster.topology, cluster.topology.machines))
    space = space_of(trials.ground)
    portfolio.construct(Drafts(trials, space), iter([tuple(range(len(trials.ground.regions)))]), lambda: True)
    best = trials.cheapest
    assert best is not None, f"{cluster.name} has no layout"
    rates = []
    for seed in range(NUM_CALLS):
        start_s = time.process_time()
        annealed(trials, best, 1, lambda: True, seed, moves_a_call)
        rates.append(moves_a_call / (time.process_time() - start_s))
    return Rate(cluster.name, best.shape.degrees, tuple(rates))
