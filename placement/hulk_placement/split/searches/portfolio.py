"""The default: of the searches for several jobs the one that is best for the work there is (`bench gnn`)."""

from __future__ import annotations

import numpy as np

from hulk_placement.split.division import Divisions, Progress
from hulk_placement.split.searches import guided, local

FEW = 1400
"""Layouts; where there is no work for as many to be priced, the network is asked which: by trial on other clusters."""


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """By constructed layouts alone, or where these take too long by the value network first, in what is left."""
    if affordable(divisions, progress) >= FEW:
        local.search(divisions, progress, seed)
        return
    begun = progress()

    def of_the_rest() -> float:
        done = progress()
        return 1.0 if done >= 1.0 else (done - begun) / (1.0 - begun)

    guided.search(divisions, of_the_rest, seed)


def affordable(divisions: Divisions, progress: Progress) -> float:
    """How many layouts all the work is enough for, by what a few of each job take on its share of everything."""
    shares = [np.minimum(divisions.pools.total_P // len(divisions.jobs), job.most_P) for job in divisions.jobs]
    for job, share_P in zip(divisions.jobs, shares, strict=True):
        job.probe(share_P)  # the first time tables are made
    begun = progress()
    num = sum(job.probe(share_P) for job, share_P in zip(divisions.jobs, shares, strict=True))
    return num / max(1e-9, progress() - begun)
