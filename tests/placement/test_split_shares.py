"""A job's price for a share of the machines: good also where few shares are asked about often."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hulk_placement.files.topology_reading import read_topology
from hulk_placement.files.workload_reading import read_workload
from hulk_placement.solution import Budget
from hulk_placement.solve.together import divide, divisions_of, work_on
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from bench.divisions import SEARCHES

EXAMPLES = Path(__file__).parents[2] / "examples" / "planner"


def two_jobs() -> tuple[list[Workload], Topology]:
    """The example's job twice, of a model whose heads any tensor degree may divide: more shapes, a wider choice."""
    topology = read_topology(EXAMPLES / "topology.yaml").topology
    job = read_workload(EXAMPLES / "workload.yaml", topology).workload
    job = replace(job, model=replace(job.model, num_heads=None))
    return [job, replace(job, key="second")], topology


def mean_step_s(search: str, seed: int, iterations: int) -> float:
    jobs, topology = two_jobs()
    final = divide(work_on(divisions_of(jobs, topology), Budget(iterations), clock=lambda: 0.0), SEARCHES[search], seed)
    assert final is not None
    return math.exp(final.value / 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_does_not_lose_to_random_divisions(seed: int) -> None:
    """Annealing asks about 40 shares for thousands of times, most of them first while the shapes suited others."""
    default, random = (mean_step_s(search, seed, 200_000) for search in ("portfolio", "random"))
    assert default <= random * (1 + 1e-9)


def test_a_share_that_is_asked_about_often_gets_a_shape_that_it_has_room_for() -> None:
    """Two accelerators of one region, asked about when all shapes were of six."""
    jobs, topology = two_jobs()
    job = divisions_of(jobs, topology).jobs[0]
    job.value(np.array([6, 0]))
    job.menu = {draft: worse for draft, worse in job.menu.items() if draft.pipeline * draft.option.tensor == 6}
    few = np.array([2, 0])
    first = job.value(few)
    values = [job.value(few) for _ in range(63)]
    assert first > 100 > values[-1]
    assert values == sorted(values, reverse=True)
    num_before = job.num_evaluations
    assert job.value(few) <= values[-1]
    assert [job.value(few) for _ in range(60)][-1] <= values[-1]
    assert job.num_evaluations - num_before < 200  # the 64th time it is priced anew, and not for each of 60 more
