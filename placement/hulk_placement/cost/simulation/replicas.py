"""A plan's pipelines as the simulation runs them: the seconds that the closed form takes, over ways that are shared."""

from __future__ import annotations

from itertools import pairwise

from hulk_placement.cost.closed_form.arrays import Layout, Setting
from hulk_placement.cost.closed_form.shares import filled, num_batches
from hulk_placement.cost.simulation.schedule import BACKWARD, FORWARD, Schedule, schedule
from hulk_placement.cost.simulation.step import Replica
from hulk_placement.cost.simulation.ways import Ways
from hulk_placement.plan import Plan


def replica_of(plan: Plan, number: int, setting: Setting, layout: Layout, ways: Ways) -> Replica:
    """One replica's blocks and the ways between them; its micro-batches are alike, its share over their number."""
    first_P, kind_P = layout.first_P, setting.kind_M[layout.machine_DP[number]]
    size = filled(setting, layout, number)
    forward_P = size * (setting.forward_KJ[kind_P, first_P[1:]] - setting.forward_KJ[kind_P, first_P[:-1]])
    backward_P = size * (setting.backward_KJ[kind_P, first_P[1:]] - setting.backward_KJ[kind_P, first_P[:-1]])
    machines = [plan.machine(number, stage) for stage in range(plan.layout.pipeline)]
    return Replica.alike(
        schedule_of(plan, int(num_batches(setting, layout, number))),
        forward_P.tolist(),
        (backward_P + forward_P * setting.recompute).tolist(),
        (size * setting.output_L[first_P[1:-1] - 1]).tolist(),
        [(ways.between(a, b), ways.between(b, a)) for a, b in pairwise(machines)],
    )


def schedule_of(plan: Plan, num: int) -> Schedule:
    """The plan's order of blocks; ValueError where its own one has another number of micro-batches than a replica."""
    if plan.schedule != "explicit":
        return schedule(plan.schedule, plan.layout.pipeline, num)
    kinds = {"F": FORWARD, "B": BACKWARD}
    found = Schedule(tuple(tuple((kinds[kind], batch) for kind, batch in order) for order in plan.blocks))
    if found.num_micro_batches != num:
        raise ValueError(
            f"{plan.key}: the schedule has {found.num_micro_batches} micro-batches, a replica's share {num}"
        )
    return found
