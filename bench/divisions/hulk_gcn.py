"""`hulk-gcn`, the paper's own formulation as a baseline: a graph convolution classifies machines; layers follow."""

from __future__ import annotations

from hulk_placement.split.division import Divisions, Progress

from bench.divisions.classify import Classifier, classified


def search(divisions: Divisions, progress: Progress, seed: int) -> None:
    """One division, by the classes alone; there is nothing to search, and `seed` decides nothing."""
    divisions.try_(classified(divisions, Classifier.trained()))
