"""The evaluator: a plan, its workload and the topology become a prediction of one step.

A step is the slowest rank's computation followed by the all-reduce of all gradients. gloo reduces two buckets at the
same time, and both are taken to start when the last gradient is ready: DDP starts the first one earlier, so with two
buckets the prediction is an upper figure. Hulk's own all-reduce takes buckets one after the other, while the last
backward pass still runs. With local SGD a step bears its part of an outer one, which begins when all compute is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from hulk_placement.collective.classes import CollectivePlan
from hulk_placement.collective.network import build_network
from hulk_placement.cost.compute import is_calibrated, rank_seconds, speeds
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group
from hulk_placement.cost.wan import BACKWARD_SHARE, wan_seconds
from hulk_placement.plan import Plan, Prediction
from hulk_placement.topology import Pair, Topology
from hulk_placement.workload import Workload


def predict(plan: Plan, workload: Workload, topology: Topology) -> Prediction:
    """What one step of the plan takes; KeyError when the plan names a machine that the topology lacks."""
    machines = plan.rank_machines
    used = sorted(set(machines))
    compute_s = rank_seconds(workload, speeds(workload, topology, used), machines, plan.shares)
    if plan.collective is None:
        wait_s, bottleneck = allreduce(machines, workload.model.gradient_bytes, plan.num_buckets, topology)
    else:
        slowest = max(range(len(machines)), key=compute_s.__getitem__)
        last_pass = min(1.0, plan.micro_batch / plan.shares[slowest])
        wait_s, bottleneck = _wan(plan, plan.collective, workload, topology, compute_s[slowest] * last_pass)
    communication_s = wait_s / (plan.inner_steps or 1)
    return Prediction(
        step_s=max(compute_s) + communication_s,
        compute_s=max(compute_s),
        communication_s=communication_s,
        bottleneck=bottleneck,
        rank_compute_s=compute_s,
        memory_bytes=workload.model.memory_bytes(plan.micro_batch, workload.optimizer),
        calibrated=is_calibrated(workload, topology, used),
    )


def _wan(
    plan: Plan, collective: CollectivePlan, workload: Workload, topology: Topology, last_pass_s: float
) -> tuple[float, Pair | None]:
    """Seconds that a step waits for Hulk's own all-reduce, and the busiest link, by a machine of each end."""
    machines = plan.rank_machines
    network = build_network(topology, machines, allow_unknown=True)
    backward_s = 0.0 if plan.inner_steps else BACKWARD_SHARE * last_pass_s
    seconds, link = wan_seconds(collective, network, workload.model.gradient_bytes, plan.num_buckets, backward_s)
    if link is None:
        return seconds, None
    source, target = (machines[network.ranks[region][0]] for region in link)
    return seconds, (source, target)


def allreduce(
    machines: Sequence[str], num_bytes: int, num_buckets: int, topology: Topology
) -> tuple[float, Pair | None]:
    """Seconds of the gradients' all-reduce over ranks on these machines in ring order, and the worst edge.

    One rank sends nothing: 0 seconds and no edge.
    """
    time = ring_times([Group(tuple(machines), num_bytes, num_buckets)], topology)[0]
    return time.seconds, time.worst
