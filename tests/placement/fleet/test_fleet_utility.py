"""Utilities: what work is worth, in the log domain where that would vanish, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fleet_cases import sigmoid
from hulk_placement.fleet.types import Job, Ring
from hulk_placement.fleet.utility import Utility, UtilityKind
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("utility", "work", "expected"),
    [
        (Utility(weight=2.0), 10.0, 20.0),
        (Utility(UtilityKind.SQRT, weight=2.0), 9.0, 6.0),
        (Utility(UtilityKind.PROPORTIONAL, scale=10.0), 90.0, math.log(10)),
        (Utility(UtilityKind.DEADLINE, weight=5.0, deadline_s=1.0), 99.0, 0.0),
        (Utility(UtilityKind.DEADLINE, weight=5.0, deadline_s=1.0), 100.0, 5.0),
        (Utility(UtilityKind.BACKLOG), 100.0, 50.0),
        (Utility(UtilityKind.BACKLOG), 50.0, 37.5),
        (Utility(UtilityKind.ENERGY, power_price=1.0), 10.0, 10.0),
        (sigmoid(10.0, weight=4.0), 10.0, 2.0 - 4.0 / (1 + math.exp(10.0))),
    ],
)
def test_what_work_is_worth(utility: Utility, work: float, expected: float) -> None:
    assert utility.value(work, 100.0) == pytest.approx(expected)


def test_a_late_deadline_is_worth_its_share_in_proportion() -> None:
    utility = Utility(UtilityKind.DEADLINE, weight=5.0, deadline_s=1.0, late_share=0.2)
    assert utility.value(50.0, 100.0, late=True) == pytest.approx(0.5)


def test_power_costs_the_square_of_all_watts() -> None:
    utility = Utility(UtilityKind.ENERGY, power_price=0.01)
    assert utility.power_cost(3, 10.0) == pytest.approx(9.0)
    assert Utility().power_cost(3, 10.0) == 0.0


@given(start=st.floats(0, 5000), more=st.floats(0.01, 1000), midpoint=st.floats(0, 5000), steep=st.floats(0.001, 1))
def test_gains_of_a_sigmoid_have_a_logarithm_everywhere(
    start: float, more: float, midpoint: float, steep: float
) -> None:
    utility = sigmoid(midpoint, steepness=steep)
    found = float(utility.log_gain(start, start + more, 1e9))
    assert math.isfinite(found)
    plain = 1 / (1 + math.exp(-max(-700.0, min(700.0, steep * (start + more - midpoint)))))
    plain -= 1 / (1 + math.exp(-max(-700.0, min(700.0, steep * (start - midpoint)))))
    if plain > 1e-9:
        assert math.exp(found) == pytest.approx(plain, rel=1e-4)


@given(points=st.lists(st.floats(0, 100), min_size=3, max_size=3, unique=True))
def test_gains_add_up(points: list[float]) -> None:
    low, middle, high = sorted(points)
    for utility in (
        Utility(),
        Utility(UtilityKind.SQRT),
        Utility(UtilityKind.PROPORTIONAL),
        Utility(UtilityKind.BACKLOG),
    ):
        parts = utility.gain(low, middle, 100.0) + utility.gain(middle, high, 100.0)
        assert parts == pytest.approx(utility.gain(low, high, 100.0), rel=1e-6, abs=1e-9)


def test_work_beyond_the_total_is_worth_nothing() -> None:
    assert np.isneginf(Utility().log_gain(100.0, 200.0, 100.0))


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"kind": UtilityKind.SIGMOID}, "utility sigmoid: needs steepness and midpoint"),
        ({"kind": UtilityKind.DEADLINE}, "utility deadline: needs deadline_s"),
        ({"kind": UtilityKind.ENERGY}, "utility energy: needs power_price"),
        ({"weight": 0.0}, "weight 0.0 must be > 0"),
        ({"kind": UtilityKind.SIGMOID, "steepness": -1.0, "midpoint": 1.0}, "steepness -1.0 must be > 0"),
        ({"kind": UtilityKind.DEADLINE, "deadline_s": math.inf}, "deadline_s inf"),
    ],
)
def test_a_utility_without_its_parameters_is_refused(figures: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Utility(**figures)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"min_workers": 3, "max_workers": 2}, "3 to 2 workers"),
        ({"total_work": 0.0}, "0.0 of 0.0 samples done"),
        ({"restart_s": -1.0}, "restart -1.0 s"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(figures: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Job("j", Utility(), **({"total_work": 1.0, "work_done": 0.0} | figures))  # type: ignore[arg-type]


def test_a_ring_of_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="bandwidth 0"):
        Ring(1.0, 0.0, 1, 1.0, bandwidth_bytes_per_s=0.0)
