"""The search chooses the schedule too: GPipe where links between stages are slow and memory holds all micro-batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.layouts.place import place
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.model import Layer, Model
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import SCHEDULES, Workload

from bench.layout_searches import SEARCHES

ACTIVATIONS = 2_000_000


def world(memory_bytes: int = 1 << 40, keeps_windows: bool = True) -> Topology:
    """Two machines of 1 TFLOP/s, two seconds apart one way; 1 MB takes 0.02 s there and 0.01 s back."""
    machines = tuple(
        Machine(f"{r}0", r, flops_per_s=1e12, memory_bytes=memory_bytes, keeps_windows=keeps_windows) for r in "ab"
    )
    links = {("a", "a"): Link(1e-4, 1e9), ("b", "b"): Link(1e-4, 1e9)}
    return Topology(machines, region_links={**links, ("a", "b"): Link(4.0, 5e7), ("b", "a"): Link(4.0, 1e8)})


def job() -> Workload:
    """A forward pass of a stage takes a second, a backward pass two; four micro-batches."""
    layers = tuple(Layer(f"layer.{n}", 1, 1e12, 2e12, 1_000_000, ACTIVATIONS) for n in range(2))
    return Workload(
        "team/job", Model(layers), 4, {"a0": 1, "b0": 1}, max_workers=2, pipeline=2, tensor=1, micro_batch=1,
        recompute=False,
    )  # fmt: skip


def test_gpipe_is_chosen_where_the_link_is_slow() -> None:
    """By hand: the second stage goes forward 3.02 .. 7.02 and back to 15.02; its last gradient is there at 17.03."""
    plan = place(job(), world(), Budget(1_000))
    assert isinstance(plan, Plan)
    assert (plan.schedule, plan.prediction.step_s) == ("gpipe", pytest.approx(19.03))


def test_windows_of_silent_connections_make_a_step_longer_whatever_the_order() -> None:
    """1 MB is 88 packets on each of eight connections: it leaves three round trips of 4 s after it began, 4 MB five."""
    asked = replace(job(), schedule="gpipe")
    opened, closed = (place(asked, world(keeps_windows=keeps), Budget(1_000)) for keeps in (True, False))
    assert isinstance(opened, Plan)
    assert isinstance(closed, Plan)
    assert opened.prediction.step_s == pytest.approx(19.03)
    assert closed.prediction.step_s == pytest.approx(1 + 20 + 2 + 1 + 2 + 20 + 2 + 2)


def test_1f1b_is_chosen_where_memory_holds_no_more_than_that() -> None:
    """Of two micro-batches at a time; with room for a third an order of its own waits less than either."""
    two, three = (place(job(), world(num * ACTIVATIONS + 1000), Budget(1_000)) for num in (2, 3))
    assert isinstance(two, Plan)
    assert isinstance(three, Plan)
    assert (two.schedule, three.schedule) == ("1f1b", "explicit")
    assert two.prediction.step_s > three.prediction.step_s > 19.04
    for num, plan in ((2, two), (3, three)):
        assert plan.prediction.memory_bytes <= num * ACTIVATIONS + 1000


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_that_is_asked_for_is_kept_whatever_is_better(schedule: str) -> None:
    """GPipe needs memory for all four micro-batches. Without a wish another order would be best."""
    asked = replace(job(), schedule=schedule)
    plan = place(asked, world(), Budget(1_000))
    assert isinstance(plan, Plan)
    assert plan.schedule == schedule
    small = place(asked, world(3 * ACTIVATIONS + 1000), Budget(1_000))
    assert isinstance(small, Plan) == (schedule == "1f1b")


def test_the_optimum_is_that_of_the_better_schedule() -> None:
    found = {}
    for schedules in (SCHEDULES, *((schedule,) for schedule in SCHEDULES)):
        trials = Trials(Ground.of(job(), world(), world().machines))
        space = Space(tuple(Option(1, schedule=schedule) for schedule in schedules), (2,))
        SEARCHES["exact"](trials, space, lambda: True, 0)
        assert trials.is_proven
        found[schedules] = trials.best(1)[0].cost
    both = found.pop(SCHEDULES)
    assert both == min(found.values())
    assert len(set(found.values())) == 2


def test_one_stage_is_not_planned_twice() -> None:
    space = space_of(Ground.of(job(), world(), world().machines))
    assert {option.schedule for option in space.options} == set(SCHEDULES)
    trials = Trials(Ground.of(job(), world(), world().machines))
    SEARCHES["exact"](trials, Space(space.options, (1,)), lambda: True, 0)
    assert {trial.shape.option.schedule for trial in trials.best(8)} == {SCHEDULES[0]}
