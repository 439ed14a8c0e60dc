"""The default: of the searches for several jobs the one that is best for the work there is (`bench gnn`).

Where there are few accelerators it ends with an attempt at all divisions: constructed layouts, by which the others
price a share, may break a limit that layouts searched for keep.
"""

from __future__ import annotations

import numpy as np

from hulk_placement.solve import guided
from hulk_placement.split import exact, local
from hulk_placement.split.division import Divisions, Progress

FEW = 8000
"""Layouts; where there is no work for as many to be priced, the network is asked which: by trial on other clusters."""

FEW_ACCELERATORS = 6
"""Of all machines: all divisions and all layouts may be few."""

PROOF_SHARE = 0.5
"""Of the work, for all divisions where there are few accelerators."""


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """By constructed layouts, and where there are few accelerators by all layouts."""
    if not are_few(divisions):
        _constructed(divisions, progress, seed)
        return
    _constructed(divisions, lambda: progress() / (1.0 - PROOF_SHARE), seed)
    if progress() < 1.0:
        exact.search(divisions, progress, seed)


def are_few(divisions: Divisions) -> bool:
    """Whether jobs may be laid out in so few ways that it is worth an attempt to look at all."""
    return int(divisions.pools.total_P.sum()) <= FEW_ACCELERATORS


def _constructed(divisions: Divisions, progress: Progress, seed: int) -> None:
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
