"""Machines in an order to a plan with its prediction."""

from __future__ import annotations

from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.cost.compute import share_by_speed, share_out
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.search.evaluate import Order
from hulk_placement.search.problem import Problem
from hulk_placement.search.streaming import predicted


def make_plan(
    problem: Problem,
    order: Order,
    num_buckets: int,
    collective: CollectivePlan | None = None,
    inner_steps: int | None = None,
) -> Plan:
    """The plan of machines in rank order, by gloo's ring or by the flows of a collective; without gap or reasons."""
    workload, per_worker = problem.workload, problem.workload.accelerators_per_worker
    share = share_by_speed if problem.is_uneven else share_out
    shares = share(workload.global_batch, [problem.speed[m] for m in order for _ in range(per_worker)])
    plan = Plan(
        key=workload.key,
        attempt=workload.attempt,
        workers=tuple(WorkerSlot(problem.names[m], problem.regions[problem.region_of[m]], per_worker) for m in order),
        shares=shares,
        micro_batch=_micro_batch(problem, order, max(shares)),
        num_buckets=num_buckets if len(shares) > 1 else 1,
        prediction=NOT_PREDICTED,
        layout=Layout(data=len(shares)),
        algorithm="ring" if collective is None else "wan",
        collective=collective,
        inner_steps=inner_steps,
    )
    return predicted(plan, workload, problem.topology)


def _micro_batch(problem: Problem, order: Order, largest_share: int) -> int:
    """The asked micro-batch, else the largest that fits the accelerators; a share at most. Unknown memory fits all."""
    workload = problem.workload
    if workload.micro_batch is not None:
        return min(workload.micro_batch, largest_share)
    room = min(workload.room_bytes(problem.topology.machine(problem.names[a])) for a in order)
    fits = [n for n in range(1, largest_share + 1) if workload.replica_bytes(n) <= room]
    return max(fits)
