"""The table of link speeds agrees with what plans say."""

from __future__ import annotations

import pytest

from bench import crossover
from bench.allreduce.case import Case

CASE = Case("B", (2, 2, 2))


def test_a_synchronous_step_waits_for_a_tenth_where_the_table_says_so() -> None:
    factor = crossover.from_factor(CASE)
    assert factor is not None
    there = crossover.steps(CASE, factor)
    assert there.waits == pytest.approx(0.1, abs=0.03)
    assert there.local_s < there.synchronous_s
    assert crossover.steps(CASE, factor / 2).waits > 0.1


def test_a_row_per_profile(capsys: pytest.CaptureFixture[str]) -> None:
    crossover.run([CASE], (1.0,))
    out = " ".join(capsys.readouterr().out.split())
    assert "predicted, not measured" in out
    assert "B n=6" in out
