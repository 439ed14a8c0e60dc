"""The search that looks at every layout: it ends in time, and what it proves is true of layouts that are possible."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.layouts.compare import Comparison, compare
from hulk_placement.layouts.searches import SEARCHES
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.model import Layer, Model
from hulk_placement.report.searches import outcome_words, search_rows
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from split_cases import model, topology, workload


def test_looking_at_every_layout_ends_with_the_time_where_no_machine_has_the_memory() -> None:
    """Nothing is evaluated there: no cells hold the model's state."""
    world = topology({"a0": 1e12, "a1": 2e12, "a2": 3e12}, memory_bytes=1)
    trials = Trials(Ground.of(workload(world, trained=model(1), global_batch=24), world, world.machines))
    asked = iter(range(20))
    SEARCHES["exact"](trials, Space((Option(1),), (1,), data=2), lambda: next(asked) < 1, 0)
    assert next(asked) == 2
    assert (trials.num_evaluations, trials.is_proven) == (0, False)


@pytest.mark.parametrize("search", ["exact", "portfolio"])
def test_searches_end_in_time_with_the_largest_batch_that_files_allow(search: str) -> None:
    """1,048,576 micro-batches on unequal machines, each second of the clock asked for."""
    world = topology({"a0": 1e12, "a1": 2e12, "b0": 3e12}, num_accelerators=2)
    trials = Trials(Ground.of(workload(world, trained=model(4), global_batch=1 << 20), world, world.machines))
    end_s = time.monotonic() + 0.5
    SEARCHES[search](trials, space_of(trials.ground), lambda: time.monotonic() < end_s, 0)
    assert time.monotonic() < end_s + 30
    assert trials.best_cost < math.inf


TIGHT = Machine("a0", "a", flops_per_s=1e13, memory_bytes=2_900_000_000), Machine("b0", "a", flops_per_s=1e12)
"""The model holds 2.8 GB, a micro-batch 0.2; the faster machine has a little less, the other as much as it takes."""


def tight(*machines: Machine) -> tuple[Workload, Topology]:
    world = Topology(machines, region_links={("a", "a"): Link(1e-4, 1e9)})
    trained = Model((Layer("only", 140_000_000, 1e12, 2e12, 0, 200_000_000),))
    return workload(world, trained=trained, max_workers=1), world


def test_what_is_proven_is_proven_of_layouts_that_are_possible() -> None:
    """Ten times as fast and 3 % too small: cheaper, with what it lacks counted, and no plan."""
    job, world = tight(*TIGHT)
    found = compare(job, world, 100.0, lambda: 0.0, ["exact"])
    assert isinstance(found, Comparison)
    assert found.rows[0].is_proven
    assert found.rows[0].step_s == pytest.approx(4 * 3e12 / 1e12)


def test_impossible_is_said_only_where_everything_was_looked_at() -> None:
    job, world = tight(TIGHT[0], replace(TIGHT[0], name="a1", flops_per_s=2e13))
    found = compare(job, world, 100.0, lambda: 0.0, ["exact", "greedy"])
    assert isinstance(found, Comparison)
    words = [outcome_words(row) for row in search_rows(found, job, 100.0).rows]
    assert words == ["impossible: it has looked at everything", "no plan found in what it tries"]
    ticks = iter(range(1_000))
    found = compare(job, world, 1.0, lambda: float(next(ticks)), ["exact"])
    assert isinstance(found, Comparison)
    (row,) = search_rows(found, job, 1.0).rows
    assert outcome_words(row) == f"no plan found when the time ended, after {row.seconds:.2f} s"
    assert row.seconds >= 1.0
