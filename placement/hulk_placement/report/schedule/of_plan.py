"""A plan with stages -> the schedule of its pipeline that takes longest, as `hulk schedule` shows one."""

from __future__ import annotations

import math

import numpy as np

from hulk_placement.cost.pipelines import arrays_of, time_pipelines
from hulk_placement.cost.simulation.outcome import simulate_step
from hulk_placement.cost.simulation.replicas import replica_of
from hulk_placement.cost.simulation.step import Replica, Resource, Step
from hulk_placement.cost.simulation.ways import Ways
from hulk_placement.layouts.ordering import placement_of
from hulk_placement.plan import Plan
from hulk_placement.report.schedule.rows import ScheduleView
from hulk_placement.report.schedule.view import Titled, schedule_view
from hulk_placement.schedule.bounds import least_makespan
from hulk_placement.schedule.found import Found
from hulk_placement.schedule.operations import Operations, operations_of
from hulk_placement.schedule.timing import Schedule, Starts
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MOST_BLOCKS = 20_000
"""Of all stages and micro-batches together: of a longer schedule nothing is shown."""


def plan_schedule(plan: Plan, workload: Workload, topology: Topology) -> ScheduleView | None:
    """The blocks of one step, alone on its links: device n is stage n.

    None without stages, where stages do not compute while they send, and where there are too many blocks.
    """
    num_blocks = 2 * plan.layout.pipeline * math.ceil(max(plan.shares) / plan.cell_batch)
    if plan.layout.pipeline == 1 or not plan.overlap or num_blocks > MOST_BLOCKS:
        return None
    setting, layout = arrays_of(plan, workload, topology)
    slowest = int(time_pipelines(plan, workload, topology).ends_DP.max(axis=1).argmax())
    ways = Ways(topology)
    replica = replica_of(plan, slowest, setting, layout, ways)
    placement, num = placement_of(replica, ways.resources), replica.schedule.num_micro_batches
    operations = operations_of(placement)
    schedule = Schedule(operations, _starts(replica, ways.resources, operations))
    found = Found(schedule, least_makespan(operations, num), seconds=0.0)
    return schedule_view(Titled(plan.key, plan.schedule, time_unit="s"), placement, found)


def _starts(replica: Replica, resources: tuple[Resource, ...], operations: Operations) -> Starts:
    """When each block and transfer starts, by the simulation: it knows how windows grow. (operations, M)."""
    blocks = simulate_step(Step(resources, (replica,))).blocks
    starts = np.zeros((len(operations), replica.schedule.num_micro_batches))
    for number, one in enumerate(operations.operations):
        source, *target = one.name.split(" > ")
        kind, stage = "FB".index(source[0]), int(source[1:])
        if target:
            starts[number] = blocks.sent_HM[2 * stage + kind] - one.span
        else:
            turns = [turn for turn, (k, _) in enumerate(replica.schedule.orders[stage]) if k == kind]
            batches = [m for k, m in replica.schedule.orders[stage] if k == kind]
            starts[number, batches] = blocks.start_CI[stage, turns]
    return starts
