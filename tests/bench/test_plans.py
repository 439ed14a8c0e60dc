"""Recorded plans: what is written is read, and the price of a plan does not depend on when it was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hulk_placement.cost.money import judged
from hulk_placement.solve import solve

from bench.plans.cases import questions
from bench.plans.table import answered, priced, read, row_of, write

SMALL = next(question for question in questions() if question.group.startswith("small"))


def test_a_plan_that_was_written_is_priced_as_it_was_found(tmp_path: Path) -> None:
    asked = SMALL.draw()
    (job,) = asked.jobs
    plan = solve(asked.jobs, [], asked.topology, asked.budget).plans[job.key]
    row = row_of(SMALL, asked, [plan], 0.5)
    write([row], "abc", tmp_path / "rows.json")
    commit, rows = read(tmp_path / "rows.json")
    assert (commit, rows) == ("abc", {f"{SMALL.group}: {SMALL.name}": row})
    found = priced(row, asked)
    assert found.cost == pytest.approx(judged(plan, job), rel=1e-9)
    assert found.fits


def test_a_plan_that_lacks_memory_today_is_told_apart() -> None:
    asked = SMALL.draw()
    row = answered(SMALL, asked)
    tight = tuple(replace(machine, memory_bytes=1) for machine in asked.topology.machines)
    assert priced(row, asked).fits
    assert not priced(row, replace(asked, topology=replace(asked.topology, machines=tight))).fits


def test_every_case_is_recorded() -> None:
    _, rows = read()
    assert {f"{question.group}: {question.name}" for question in questions()} == rows.keys()
