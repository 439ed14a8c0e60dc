"""Cycles over regions: the worst edge is the least possible, beside every cycle there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hulk_native import MOST_EXACT_REGIONS
from hulk_placement.layouts.cycles import shortest_cycle
from hypothesis import given
from hypothesis import strategies as st


def worst(seconds: np.ndarray, cycle: tuple[int, ...] | list[int]) -> float:
    return max(float(seconds[a, b]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))


@given(st.integers(2, 7), st.integers(0, 10_000), st.sampled_from([0.0, 0.3]))
def test_no_cycle_has_a_quicker_worst_edge(num: int, seed: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(0.01, 1.0, (num + 1, num + 1))
    seconds[rng.uniform(size=seconds.shape) < missing] = np.inf
    regions = tuple(int(region) for region in rng.permutation(num + 1)[:num])
    cycle = shortest_cycle(seconds, regions)
    assert cycle[0] == regions[0]
    assert sorted(cycle) == sorted(regions)
    least = min(worst(seconds, (regions[0], *rest)) for rest in itertools.permutations(regions[1:]))
    assert worst(seconds, cycle) == least


@pytest.mark.parametrize("num", [MOST_EXACT_REGIONS + 1, 24])
def test_many_regions_on_a_circle_are_visited_in_turn(num: int) -> None:
    """Names are shuffled; only neighbours are near."""
    places = np.random.default_rng(num).permutation(num)
    apart = np.abs(places[:, None] - places[None, :])
    seconds = np.minimum(apart, num - apart).astype(float)
    assert worst(seconds, shortest_cycle(seconds, tuple(range(num)))) == 1.0
