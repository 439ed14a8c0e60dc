"""The closed form beside what was recorded of it: costs of layouts, of constructed ones, and estimates of shapes."""

from __future__ import annotations

import math

import pytest
from closed_form_cases import NUM_CASES, costs, drawn, recorded


def test_costs_are_those_that_were_recorded() -> None:
    """Random settings with every feature: transports, schedules, ties, pins, prices, whole workers, cold windows."""
    expected = recorded()
    assert len(expected) == NUM_CASES
    for seed, row in enumerate(expected):
        assert costs(drawn(seed)) == pytest.approx(row, rel=1e-9), seed


def test_what_is_recorded_is_of_use() -> None:
    """Most layouts may be, and cost something."""
    first = [row[0] for row in recorded()]
    assert sum(math.isfinite(cost) for cost in first) > 0.8 * NUM_CASES
    assert len(set(first)) > 0.8 * NUM_CASES
