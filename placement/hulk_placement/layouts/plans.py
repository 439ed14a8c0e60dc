"""From the best layout found to a plan: ranks, ring orders, shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.layouts.trials import Trial, Trials
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot


def plan_of(trials: Trials, trial: Trial) -> Plan:
    """The plan of a layout, not predicted: replicas in the ring order of the first stage, gloo's rings by the tour."""
    ground, layout, shape = trials.ground, trial.layout, trial.shape
    workload, option = ground.workload, shape.option
    region_DP = ground.region_M[layout.machine_DP]
    tour = layout.tour_W.tolist()
    rings = [ring_of(region_DP[:, s], layout.machine_DP[:, s], tour) for s in range(shape.pipeline)]
    order = rings[0]
    number = {replica: rank for rank, replica in enumerate(order)}
    renamed = tuple(tuple(number[replica] for replica in ring) for ring in rings)
    machines = [ground.machines[m] for replica in order for m in layout.machine_DP[replica]]
    return Plan(
        key=workload.key,
        attempt=workload.attempt,
        workers=tuple(WorkerSlot(m.name, m.region, option.width) for m in machines),
        shares=tuple(layout.shares_D[list(order)].tolist()),
        micro_batch=option.micro_batch,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=Layout(shape.data, shape.pipeline, option.tensor, option.shard),
        stages=tuple(int(first) for first in layout.first_P[:-1]),
        schedule=option.schedule,
        rings=() if all(ring == renamed[0] for ring in renamed) else renamed,
        overlap=option.overlap,
        recompute=option.recompute,
    )


def ring_of(region_D: Ints, machine_D: Ints, tour: Sequence[int]) -> tuple[int, ...]:
    """Replicas in ring order along a tour: data flows along it, and from each replica of the ring to the one before.

    Every visit of a region but its last takes one replica, the last takes the rest; those of one machine follow each
    other, so that no pair of machines carries the ring twice.

    >>> ring_of(np.array([0, 0, 0, 1]), np.array([5, 4, 5, 9]), [0, 1])
    (3, 2, 0, 1)
    """
    order = np.argsort(machine_D, kind="stable")
    left = {int(region): order[region_D[order] == region].tolist() for region in np.unique(region_D)}
    visits = [region for region in tour if region in left]
    flow: list[int] = []
    for number, region in enumerate(visits):
        is_last = region not in visits[number + 1 :]
        flow += left[region] if is_last else left[region][:1]
        left[region] = [] if is_last else left[region][1:]
    return tuple(flow[::-1])
