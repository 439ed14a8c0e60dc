"""The warm-up of replicas that train apart: its steps are in what is said of a plan, and in what a move would gain."""

from dataclasses import replace

import pytest
from hulk_placement.cost.predict import predict
from hulk_placement.cost.warm_up import predict_warm_up, steps_left
from hulk_placement.plan import Plan
from hulk_placement.replan.answer import Situation
from hulk_placement.replan.replan import replan
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.sync import Rounds, Sync
from hulk_placement.workload import Workload
from test_streaming import ANY, COMPUTE_S, job, world


def planned(mbit_per_s: float, rounds: Rounds) -> tuple[Workload, Plan]:
    asked = job(Sync("local", 50, rounds=rounds))
    return asked, solve([asked], [], world(mbit_per_s)).plans["team/job"]


@pytest.mark.parametrize(("mbit_per_s", "longer"), [(50, 4), (5, 30), (1.8, 90)])
def test_why_names_the_seconds_of_a_step_in_the_warm_up_and_after_it(mbit_per_s: float, longer: int) -> None:
    """A script sums exactly in the warm-up, also where its rounds send int8 or int4."""
    asked, plan = planned(mbit_per_s, replace(ANY, warmup_steps=200))
    found = predict_warm_up(plan, asked, world(mbit_per_s)).step_s
    assert plan.collective is not None
    exact = replace(plan.collective, compression="none")
    every = replace(plan, inner_steps=None, fragments=1, delay_steps=0, collective=exact)
    assert found == predict(every, job(Sync("wan")), world(mbit_per_s)).step_s > longer * COMPUTE_S
    (said,) = (sentence for sentence in plan.why if "warm-up" in sentence)
    assert said.startswith("The first 200 steps are the warm-up")
    assert f"{found:.3f} s a step, {plan.prediction.step_s:.3f} s after it" in said


def test_without_a_warm_up_nothing_is_said_of_it() -> None:
    asked, plan = planned(50, ANY)
    assert not [sentence for sentence in plan.why if "warm-up" in sentence]
    assert steps_left(plan, asked) == 0
    assert steps_left(replace(plan, inner_steps=None, fragments=1, delay_steps=0), asked) == 0


@pytest.mark.parametrize(("num_made", "num_together"), [(0, 200), (150, 50), (600, 0)])
def test_what_a_move_would_gain_counts_the_steps_of_the_warm_up_that_are_left(num_made: int, num_together: int) -> None:
    asked, plan = planned(50, replace(ANY, warmup_steps=200))
    left, now = 1000 - num_made, world(10)
    found = replan(plan, None, asked, now, Situation(left, num_made=num_made), budget=Budget(iterations=2_000))
    assert found.weighed is not None
    assert found.current is not None
    total_s = num_together * predict_warm_up(plan, asked, now).step_s
    total_s += (left - num_together) * found.current.prediction.step_s
    assert left * found.weighed.step == pytest.approx(total_s)
