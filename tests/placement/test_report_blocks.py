"""What the page of a plan shows of its stages' blocks: the schedule that the plan's prediction is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.cost.pipelines import time_pipelines
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.report.schedule.of_plan import plan_schedule
from hulk_placement.topology import Link, Machine, Topology
from report_cases import job, shown, world

TOPOLOGY = world(["frankfurt", "tokyo"], flow=2e7)
WORKLOAD = job(TOPOLOGY)
NAMES = ("frankfurt-0", "tokyo-0", "frankfurt-1", "tokyo-1")
PLAN = Plan(
    WORKLOAD.key,
    1,
    tuple(WorkerSlot(name, name[:-2], 1) for name in NAMES),
    (16, 16),
    2,
    1,
    NOT_PREDICTED,
    Layout(2, 2),
    stages=(0, 5),
)
ORDER = tuple(("F", m) for m in range(8)), tuple((kind, m) for m in range(8) for kind in "FB")
EXPLICIT = (ORDER[0] + tuple(("B", m) for m in range(8)), ORDER[1])


@pytest.mark.parametrize(
    "plan",
    [PLAN, replace(PLAN, schedule="gpipe"), replace(PLAN, schedule="explicit", blocks=EXPLICIT)],
    ids=["1f1b", "gpipe", "explicit"],
)
def test_it_ends_when_the_prediction_says(plan: Plan) -> None:
    found = plan_schedule(plan, WORKLOAD, TOPOLOGY)
    assert found is not None
    assert (found.mode, found.devices, found.micro_batches, found.time_unit) == (plan.schedule, 2, 8, "s")
    assert found.makespan == pytest.approx(float(time_pipelines(plan, WORKLOAD, TOPOLOGY).ends_DP.max()))
    assert found.links
    for link in found.links:
        assert link.share == pytest.approx(link.busy / found.makespan)


def test_each_pair_of_machines_in_a_region_has_a_link_of_its_own() -> None:
    """Six stages one after the other on the machines of one region."""
    topology = Topology(
        tuple(Machine(f"m{n}", "paris", flops_per_s=1e13) for n in range(6)),
        region_links={("paris", "paris"): Link(1e-3, 1e8)},
    )
    workload = job(topology)
    slots = tuple(WorkerSlot(f"m{n}", "paris", 1) for n in range(6))
    plan = Plan(workload.key, 1, slots, (32,), 2, 1, NOT_PREDICTED, Layout(1, 6), stages=(0, 2, 4, 5, 6, 7))
    found = plan_schedule(plan, workload, topology)
    assert found is not None
    assert found.makespan == pytest.approx(float(time_pipelines(plan, workload, topology).ends_DP.max()))


def test_the_pipeline_that_takes_longest_is_shown() -> None:
    uneven = replace(PLAN, shares=(20, 12))
    found = plan_schedule(uneven, WORKLOAD, TOPOLOGY)
    assert found is not None
    assert found.micro_batches == 10


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, layout=Layout(4), stages=(0,), shares=(8,) * 4),
        replace(PLAN, overlap=False),
        replace(PLAN, shares=(6000, 6000), micro_batch=1),
    ],
    ids=["no stages", "stages wait while they send", "too many blocks"],
)
def test_what_is_not_shown(plan: Plan) -> None:
    assert plan_schedule(plan, WORKLOAD, TOPOLOGY) is None


def test_programs_are_told_what_they_were_told_before() -> None:
    found = shown(PLAN, WORKLOAD, TOPOLOGY)
    assert found.blocks is not None
    assert "blocks" not in found.model_dump(by_alias=True)
