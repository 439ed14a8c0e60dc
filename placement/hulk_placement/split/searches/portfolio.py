"""The default: of the searches for several jobs the one that is best where there is a second (`bench gnn`)."""

from __future__ import annotations

from hulk_placement.split.division import Divisions, Progress
from hulk_placement.split.searches import local


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """By constructed layouts alone."""
    local.search(divisions, progress, seed)
