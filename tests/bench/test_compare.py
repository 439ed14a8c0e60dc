"""`python -m bench.compare`: every search on a user's files, with gaps to what nothing can beat."""

import math
import sys
from pathlib import Path

import pytest
from hulk_placement.files.topology_reading import read_topology
from hulk_placement.files.workload_reading import read_workload

from bench.compare.__main__ import main, outcome_words
from bench.divisions import SEARCHES as DIVISIONS
from bench.divisions import compare as division
from bench.layout_searches import SEARCHES
from bench.layout_searches import compare as layouts

EXAMPLES = Path(__file__).parents[2] / "examples" / "planner"
FILES = ("-t", EXAMPLES / "topology.yaml", "-w", EXAMPLES / "workload.yaml")


def test_searches_are_compared_at_equal_time_with_the_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", *map(str, FILES), "--seconds", "0.1"])
    main()
    printed = capsys.readouterr().out
    for name in SEARCHES:
        assert f" {name} " in printed
    assert "Nothing costs less than" in printed


def test_divisions_of_two_jobs_are_no_better_than_their_bound() -> None:
    topology = read_topology(EXAMPLES / "topology.yaml").topology
    job = read_workload(EXAMPLES / "workload.yaml", topology).workload
    found = division.compare([job, job], topology, 0.1, iter(range(10**9)).__next__, ["portfolio", "greedy"])
    assert {row.search for row in found.rows} <= set(DIVISIONS)
    assert all(row.cost >= found.least > 0 for row in found.rows)


def test_a_search_without_a_plan_says_whether_its_time_ended() -> None:
    ended = layouts.Row("exact", math.inf, None, 9, 1.0, is_proven=False, is_time_over=True)
    assert outcome_words(ended) == "no plan found when the time ended, after 1.00 s"
    proven = layouts.Row("local", math.inf, None, 9, 0.25, is_proven=True)
    assert outcome_words(proven) == "impossible: it has looked at everything"
    assert outcome_words(layouts.Row("greedy", math.inf, None, 9, 0.25, False)) == "no plan found in what it tries"
