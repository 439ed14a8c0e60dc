"""The bench of annealing's moves: the layout that it times is one that the cluster has, of the degrees asked for."""

from __future__ import annotations

from bench.families.clusters import drawn
from bench.moves import NUM_CALLS, measured


def test_the_rate_is_that_of_a_layout_of_the_degrees_that_were_asked_for() -> None:
    cluster = next(drawn(short=True))
    row = measured(cluster, moves_a_call=500)
    assert row.degrees[:2] == cluster.degrees
    assert len(row.moves_per_s) == NUM_CALLS
    assert min(row.moves_per_s) <= row.median <= max(row.moves_per_s)
