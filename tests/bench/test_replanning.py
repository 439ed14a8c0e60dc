"""What is concluded from lost nodes, and that a plan without a machine is one."""

from __future__ import annotations

import random
from dataclasses import replace

from bench.bench_solve import planned, workload, world
from bench.replanning.loss import Loss
from bench.replanning.planning import next_plan
from bench.replanning.question import verdicts

LOSS = Loss(
    node="us-0",
    with_rank_0=True,
    detected_s=6.0,
    planned_s=6.5,
    deployed_s=8.0,
    first_step_s=20.0,
    last_step=39,
    resumed_after=30,
    message="node us-0 has not answered for 3 s, and no step was made after step 39",
)


def test_the_worst_fault_decides() -> None:
    late = replace(LOSS, detected_s=10.5, planned_s=13.0, first_step_s=44.0, last_step=41)
    assert verdicts([LOSS, LOSS, late]) == [
        "fault detected s, median 6, worst: 10.5, aim at most 10: missed",
        "plan s, median 0.5, worst: 2.5, aim at most 2: missed",
        "first new step s, median 20, worst: 44, aim at most 45: met",
        "lost steps, median 9, worst: 11, aim at most 10: missed",
    ]


def test_the_next_plan_does_without_the_machine_and_keeps_the_others() -> None:
    topology = world(6, 3, random.Random(1))
    first, _ = planned(workload(topology), topology)
    lost = first.workers[0].machine
    after, _ = next_plan(first, topology, lost)
    before = {worker.machine for worker in first.workers}
    assert {worker.machine for worker in after.workers} == before - {lost}
