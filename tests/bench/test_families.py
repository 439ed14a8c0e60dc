"""The short form of the bench of hand-drawn families: no floor is below what the search finds."""

from __future__ import annotations

import pytest

from bench.families.clusters import Cluster, drawn
from bench.families.question import ROUNDING, floor_of, searched

EVALUATIONS = 3000


@pytest.mark.parametrize("cluster", list(drawn(short=True)), ids=lambda cluster: cluster.name)
def test_no_hand_made_layout_is_better_than_the_search(cluster: Cluster) -> None:
    found = searched(cluster, EVALUATIONS)
    assert found.cost <= floor_of(cluster).cost * ROUNDING


def test_the_same_seed_finds_the_same() -> None:
    cluster = next(drawn(short=True))
    assert searched(cluster, 500).cost == searched(cluster, 500).cost
