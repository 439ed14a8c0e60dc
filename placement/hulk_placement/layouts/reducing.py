"""The ways in which a layout's replicas may sum their gradients, as plans with their predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts.trials import Trial
from hulk_placement.plan import Plan
from hulk_placement.search.flows import NUM_BUCKETS, flows_of
from hulk_placement.search.streaming import predicted
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

RING_BUCKETS = (1, 2)

FLOWS_S, ALL_FLOWS_S = 0.015, 0.015
"""For each region, about, where there are 8 to 20: to plan flows for gradients alone, and then for all sizes, without
any search for better ones, and to predict what they take."""

Left = Callable[[], float]
"""Seconds that are left."""


def flows_s(trial: Trial, ground: Ground) -> float:
    """About how many seconds it takes to plan Hulk's own all-reduce of a layout; 0 where it is none for that."""
    regions = set(ground.region_M[trial.layout.machine_DP[:, 0]].tolist())
    takes = _takes_flows(ground.workload, trial.shape.pipeline)
    return (FLOWS_S + ALL_FLOWS_S) * len(regions) if takes and len(regions) > 1 else 0.0


def ways(plan: Plan, workload: Workload, topology: Topology, left_s: Left, *, is_best: bool = True) -> Iterator[Plan]:
    """The plan with each algorithm and number of buckets that the workload allows, predicted.

    Hulk's own all-reduce joins replicas in several regions that have no stages, each rank of a cell its own; its flows
    are planned for these buckets only, as far as the time lets them be searched. That takes longest: where none is
    left it is done for the best layout (`is_best`) and few buckets, and where there is no other way. Replicas that
    train apart sum by nothing else there, as what crosses regions is compressed and encrypted by it alone.
    """
    sync, layout = workload.sync, plan.layout
    plan = replace(plan, inner_steps=sync.planned_inner_steps, fragments=1, delay_steps=0)
    if layout.data == 1:
        yield predicted(plan, workload, topology)
        return
    takes_flows = _is_apart(plan, topology) and _takes_flows(workload, layout.pipeline)
    is_flows_only = takes_flows and sync.mode in ("wan", "local")
    num_sums = RING_BUCKETS if layout.pipeline == 1 else RING_BUCKETS[:1]  # a stage's gradients are summed as a whole
    for algorithm in () if is_flows_only else ("ring",) if sync.mode == "ring" else ("ring", "hierarchical"):
        for num_buckets in num_sums:
            yield predicted(replace(plan, algorithm=algorithm, num_buckets=num_buckets), workload, topology)
    if takes_flows and (is_best or is_flows_only or left_s() > 0):
        after_s = (FLOWS_S + ALL_FLOWS_S) * _num_regions(plan)
        buckets = _flow_buckets(workload) if left_s() > after_s else _flow_buckets(workload)[:2]
        flows = flows_of(
            workload, topology, plan.summing, buckets, lambda: left_s() > after_s, whole=False, width=layout.width
        )
        for num_buckets in buckets:
            wan = replace(plan, algorithm="wan", collective=flows, num_buckets=num_buckets, rings=())
            yield predicted(wan, workload, topology)


def with_all_flows(plan: Plan, workload: Workload, topology: Topology, left_s: Left) -> Plan:
    """A plan of Hulk's own all-reduce with flows for small vectors too, and ways round a region that is lost."""
    if plan.collective is None:
        return plan
    after_s = ALL_FLOWS_S * _num_regions(plan)
    buckets, width = _flow_buckets(workload), plan.layout.width
    flows = flows_of(workload, topology, plan.summing, buckets, lambda: left_s() > after_s, whole=True, width=width)
    return predicted(replace(plan, collective=flows), workload, topology)


def _takes_flows(workload: Workload, pipeline: int) -> bool:
    """Whether replicas of so many stages may sum by Hulk's own all-reduce, where they are apart."""
    return workload.sync.may_use_wan and pipeline == 1


def _flow_buckets(workload: Workload) -> tuple[int, ...]:
    """Numbers of buckets: local SGD sums whole vectors."""
    return (1,) if workload.sync.is_local else NUM_BUCKETS


def _num_regions(plan: Plan) -> int:
    return len({worker.region for worker in plan.workers})


def _is_apart(plan: Plan, topology: Topology) -> bool:
    """Whether some stage has replicas in several regions."""
    region = {machine.name: machine.region for machine in topology.machines}
    replicas, stages = range(plan.layout.data), range(plan.layout.pipeline)
    return any(len({region[plan.machine(replica, stage)] for replica in replicas}) > 1 for stage in stages)
