"""The ways in which a layout's replicas may sum their gradients, as plans with their predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hulk_placement.cost import predict
from hulk_placement.plan import Plan
from hulk_placement.search.flows import flows_of
from hulk_placement.search.transport import NUM_BUCKETS
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

RING_BUCKETS = (1, 2)

GoOn = Callable[[], bool]


def ways(plan: Plan, workload: Workload, topology: Topology, go_on: GoOn, *, is_best: bool = True) -> Iterator[Plan]:
    """The plan with each algorithm and number of buckets that the workload allows, predicted.

    Hulk's own all-reduce joins replicas in several regions that have neither stages nor tensor parallelism; its flows
    are planned for these buckets only, as far as `go_on` lets them be searched. That takes longest: where there
    is no time left it is done for the best layout (`is_best`) and few buckets, and where there is no other way.
    """
    sync, layout = workload.sync, plan.layout
    plan = replace(plan, inner_steps=sync.inner_steps if sync.mode == "local" else None)
    if layout.data == 1:
        yield _predicted(plan, workload, topology)
        return
    is_apart = _is_apart(plan, topology)
    num_sums = RING_BUCKETS if layout.pipeline == 1 else RING_BUCKETS[:1]  # a stage's gradients are summed as a whole
    for algorithm in (
        () if sync.mode == "wan" and is_apart else ("ring",) if sync.mode == "ring" else ("ring", "hierarchical")
    ):
        for num_buckets in num_sums:
            yield _predicted(replace(plan, algorithm=algorithm, num_buckets=num_buckets), workload, topology)
    is_worth_it = is_best or sync.mode == "wan" or go_on()
    if is_apart and sync.mode in ("auto", "wan") and layout.pipeline == layout.tensor == 1 and is_worth_it:
        buckets = NUM_BUCKETS if go_on() else RING_BUCKETS
        flows = flows_of(workload, topology, plan.rank_machines, buckets, go_on, whole=False)
        for num_buckets in buckets:
            wan = replace(plan, algorithm="wan", collective=flows, num_buckets=num_buckets, rings=())
            yield _predicted(wan, workload, topology)


def with_all_flows(plan: Plan, workload: Workload, topology: Topology, go_on: GoOn) -> Plan:
    """A plan of Hulk's own all-reduce with flows for small vectors too, and ways round a region that is lost."""
    if plan.collective is None:
        return plan
    flows = flows_of(workload, topology, plan.rank_machines, NUM_BUCKETS, go_on, whole=True)
    return _predicted(replace(plan, collective=flows), workload, topology)


def _predicted(plan: Plan, workload: Workload, topology: Topology) -> Plan:
    return replace(plan, prediction=predict(plan, workload, topology))


def _is_apart(plan: Plan, topology: Topology) -> bool:
    """Whether some stage has replicas in several regions."""
    region = {machine.name: machine.region for machine in topology.machines}
    replicas, stages = range(plan.layout.data), range(plan.layout.pipeline)
    return any(len({region[plan.machine(replica, stage)] for replica in replicas}) > 1 for stage in stages)
