"""What the fleet's benchmark makes of its rows."""

from __future__ import annotations

import math

import pytest
from hulk_placement.fleet.utility import UtilityKind

from bench.fleet.cases import hard
from bench.fleet.question import PARTS
from bench.fleet.runs import Row, interval, leads, simulated, words, worst_lead
from bench.fleet_simulator.offline import bound
from bench.fleet_simulator.policies import POLICIES


def row(seed: int, policy: str, utility: float) -> Row:
    return Row("case", seed, policy, utility, 10.0, 0.0, 0.0, 0, 0, 0.0)


def test_leads_compare_the_same_scenario() -> None:
    rows = [row(1, "gadget", 9.0), row(1, "drf", 8.0), row(2, "gadget", 5.0), row(2, "drf", 6.0)]
    assert leads(rows, "drf") == pytest.approx([0.1, -0.1])
    assert worst_lead(rows, "drf") == pytest.approx(-0.1)


def test_an_interval_of_twenty_is_students() -> None:
    figures = [0.0, 1.0] * 10
    mean, half = interval(figures)
    assert mean == 0.5
    assert half == pytest.approx(2.093 * math.sqrt(20 / 19 * 0.25) / math.sqrt(20))
    assert words([1.0]) == "1.000 ± inf"


def test_every_part_is_a_policy_and_restarts_cost_in_the_hard_setting() -> None:
    assert {policy for policy, _ in PARTS.values()} <= set(POLICIES)
    made = hard(1, UtilityKind.SQRT)
    assert {job.restart_s for job in made.jobs} == {600.0}
    assert {job.utility.kind for job in made.jobs} == {UtilityKind.SQRT}
    found = simulated("case", 1, made, "drf", bound(made))
    assert 0 < found.fraction <= 1
