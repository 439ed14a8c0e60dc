"""The default: of the searches for several jobs the one that is best for the work there is (`bench gnn`)."""

from __future__ import annotations

from hulk_placement.split.division import Divisions, Progress, along, cut
from hulk_placement.split.searches import guided, local

FEW = 900
"""Layouts; where there is no work for as many to be priced, the network is asked which."""


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
    """How many layouts all the work is enough for, as the first division's took; both searches begin with that one."""
    begun, num_priced = progress(), divisions.num_evaluations
    divisions.try_(cut(divisions, along(divisions, 0), list(range(len(divisions.jobs)))))
    return (divisions.num_evaluations - num_priced) / max(1e-9, progress() - begun)
