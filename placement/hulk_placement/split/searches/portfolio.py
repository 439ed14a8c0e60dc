"""The default: of the searches for several jobs the one that is best for the work there is (`bench gnn`)."""

from __future__ import annotations

from hulk_placement.split.division import Divisions, Progress, along, cut
from hulk_placement.split.searches import guided, local

FEW = 1100
"""Layouts; where there is no work for as many to be priced, the network is asked which."""


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """By constructed layouts alone, or where they take too long by the value network first."""
    (guided if affordable(divisions, progress) < FEW else local).search(divisions, progress, seed)


def affordable(divisions: Divisions, progress: Progress) -> float:
    """How many layouts all the work is enough for, as the first division's took; both searches begin with that one."""
    begun, num_priced = progress(), divisions.num_evaluations
    divisions.try_(cut(divisions, along(divisions, 0), list(range(len(divisions.jobs)))))
    return (divisions.num_evaluations - num_priced) / max(1e-9, progress() - begun)
