"""Shares of machines, each with what a job's step takes by the best shape for it: what the network learns from.

Half of them a search of divisions asked about, half are of divisions at random, as searches begin with.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hulk_placement.cost.closed_form.arrays import Floats
from hulk_placement.gnn.graphs import Graphs, figures_of, graphs_of
from hulk_placement.gnn.guide import Guide
from hulk_placement.gnn.network import Network
from hulk_placement.solve import guided
from hulk_placement.solve.together import divisions_of
from hulk_placement.split import local
from hulk_placement.split.division import Divisions
from numpy.typing import NDArray

from bench.gnn.training import clusters

SEARCHED = 2000
"""Layouts priced in the search whose shares are labelled, or divisions asked about where few are new."""

NUM_SHARES = 8
"""Labelled of each job, of the search and of chance."""

WORST = 3.0
"""The label where no layout is possible, and the highest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The graph of one share, without padding, and log10(step / ideal)."""

    graphs: Graphs
    ratio: float


def problem(seed: int, number: int) -> tuple[Divisions, random.Random]:
    """A problem with a chance of its own."""
    rng = random.Random(f"{seed}/{number}")
    topology, jobs = clusters.draw(rng)
    return divisions_of(jobs, topology), rng


def searched(divisions: Divisions, rng: random.Random, network: Network | None) -> None:
    """A short search for divisions, guided by a network where there is one already."""
    seed = rng.randrange(1 << 30)

    def progress() -> float:
        return max(divisions.num_evaluations + divisions.num_guessed / 4, divisions.num_divisions) / SEARCHED

    if network is None:
        local.search(divisions, progress, seed)
    else:
        guided.search_with(divisions, progress, seed, Guide(divisions, network))


def labelled(divisions: Divisions, rng: random.Random) -> list[Sample]:
    """Samples of a problem that was searched."""
    found = []
    blind = guided.drawn(divisions, rng, NUM_SHARES)
    for number, job in enumerate(divisions.jobs):
        figures, asked = figures_of(job), list(job.asked())
        rows = [*rng.sample(asked, min(NUM_SHARES, len(asked))), *(counts[number] for counts in blind)]
        for row in rows:
            if row @ figures.speed_P > 0.0:
                graphs = graphs_of(figures, row[None])
                job.scan(row)
                ratio = (job.value(row) - np.log(graphs.ideal_B[0])) / np.log(10.0)
                found.append(Sample(graphs, float(min(WORST, ratio))))
    return found


def padded(samples: Sequence[Sample]) -> tuple[Graphs, Floats]:
    """Samples as one batch, and their labels."""
    most = max(sample.graphs.share_BN.shape[1] for sample in samples)
    arrays = {name: np.concatenate([_grown(name, sample, most) for sample in samples]) for name in Graphs._fields}
    return Graphs(**arrays), np.array([sample.ratio for sample in samples])


def _grown(name: str, sample: Sample, most: int) -> NDArray[Any]:
    """An array of a sample with room for so many nodes."""
    array: NDArray[Any] = getattr(sample.graphs, name)
    num_axes = name.count("N")
    return np.pad(array, [(0, most - array.shape[d]) if 0 < d <= num_axes else (0, 0) for d in range(array.ndim)])
