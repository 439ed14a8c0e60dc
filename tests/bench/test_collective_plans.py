"""The question how good planning an all-reduce is can be answered."""

from __future__ import annotations

import pytest

from bench import collective_plans


def test_a_row_per_number_of_regions(capsys: pytest.CaptureFixture[str]) -> None:
    collective_plans.run(num_regions=(3,))
    out = " ".join(capsys.readouterr().out.split())
    assert "predicted, not measured" in out
    assert "physical bound" in out
