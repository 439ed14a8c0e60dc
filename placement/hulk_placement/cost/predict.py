"""The evaluator: a plan, its workload and the topology become a prediction of one step.

Each replica is a pipeline of stages; when a stage's last backward pass has ended on all replicas, its gradients are
summed over them:

    step = max over stages (last backward pass + all-reduce) + the sum of parameters that two stages share

All stages' all-reduces are taken to run at the same time, and to begin when all gradients of the stage are ready: DDP
starts a first bucket earlier, so with two buckets the prediction is an upper figure. Hulk's own all-reduce takes
buckets one after the other, while the last backward pass still runs; without overlap, from its end on. With local SGD
a step bears its part of what a round waits (`cost.streaming`), whose sums begin when all compute of a step is done;
parameters that stages share are summed in every step all the same. Where torch sums a sharded model's layers by itself
(`cost.layer_sums`), a step waits for each of these sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from hulk_placement.collective.network import Network, build_network
from hulk_placement.collective.patterns import Link
from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.cost.compute import is_calibrated
from hulk_placement.cost.fragments import fragment_shares
from hulk_placement.cost.gloo import Gloo
from hulk_placement.cost.gloo_rings import ring_times
from hulk_placement.cost.groups import Group, GroupTime
from hulk_placement.cost.hierarchical import Hierarchical
from hulk_placement.cost.layer_sums import layer_sums
from hulk_placement.cost.money import accelerators_per_s, egress
from hulk_placement.cost.overhead import overhead_s
from hulk_placement.cost.parameter_server import ParameterServer
from hulk_placement.cost.pipelines import Pipelines, time_pipelines
from hulk_placement.cost.streaming import waited_seconds
from hulk_placement.cost.ties import trained_parameters
from hulk_placement.cost.transports import Transport, allreduce_seconds
from hulk_placement.cost.wan import in_turn_seconds, simulated, wan_seconds
from hulk_placement.cost.wires import for_sums
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.nccl import Nccl
from hulk_placement.plan import Plan, Prediction
from hulk_placement.topology import Pair, Topology
from hulk_placement.workload import Workload

TRANSPORTS: dict[str, Transport] = {
    "ring": Gloo(),
    "hierarchical": Hierarchical(),
    "nccl": Nccl(),
    "parameter-server": ParameterServer(),
}
"""What runs each of a plan's algorithms but "wan"; NCCL with its default settings."""


def transport_of(plan: Plan, workload: Workload) -> Transport:
    """What runs a plan's sums, but of "wan", with the workload's settings."""
    return workload.nccl if plan.algorithm == "nccl" else TRANSPORTS[plan.algorithm]


def predict(plan: Plan, workload: Workload, topology: Topology) -> Prediction:
    """What one step of the plan takes; KeyError when the plan names a machine that the topology lacks."""
    step = _Step.of(plan, workload, topology)
    pipelines, compute_s = step.pipelines, float(step.pipelines.compute_DP.max())
    return Prediction(
        step_s=step.seconds,
        compute_s=compute_s,
        bubble_s=step.passed_s - compute_s,
        communication_s=step.communication_s,
        tied_s=pipelines.tied_s,
        bottleneck=step.last.worst,
        rank_compute_s=tuple(float(s) for s in pipelines.compute_DP.ravel().repeat(plan.layout.width)),
        memory_bytes=round(float(pipelines.memory_DP.max())) if workload.model.is_counted else 0,
        price=accelerators_per_s(plan, topology) * step.seconds + egress(plan, workload, topology, step.groups),
        calibrated=is_calibrated(workload, topology, sorted(set(plan.rank_machines)), plan.layout.tensor),
        overhead_s=step.overhead_s,
    )


def step_seconds(plan: Plan, workload: Workload, topology: Topology) -> float:
    """`predict`'s seconds of a step alone, for whoever weighs very many plans. KeyError as there."""
    return _Step.of(plan, workload, topology).seconds


@dataclass(frozen=True, slots=True)
class _Step:
    """A step in its parts; `last` is the all-reduce that ends last, `passed_s` how long all work before it takes."""

    pipelines: Pipelines
    groups: list[Group]
    last: GroupTime
    passed_s: float
    communication_s: float
    overhead_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.passed_s + self.communication_s + self.overhead_s

    @classmethod
    def of(cls, plan: Plan, workload: Workload, topology: Topology) -> _Step:
        """The plan's step."""
        pipelines, groups = time_pipelines(plan, workload, topology), stage_groups(plan, workload)
        after_s, computed_s = overhead_s(plan, workload, topology), float(pipelines.ends_DP.max())
        if plan.inner_steps:
            step_s = computed_s + pipelines.tied_s + after_s
            last, waited_s = _round(plan, workload, topology, groups, step_s)
            return cls(pipelines, groups, last, computed_s, waited_s + pipelines.tied_s, after_s)
        if plan.collective is None:
            times = _stage_times(plan, workload, topology, groups)
        else:
            times = [_wan(plan, plan.collective, workload, topology, pipelines)]
        ready_s = pipelines.ready_P if plan.overlap else pipelines.ready_P * 0 + computed_s
        ends_s = [float(ready) + time.seconds for ready, time in zip(ready_s, times, strict=True)]
        last_stage = max(range(len(ends_s)), key=ends_s.__getitem__)
        communication_s = max(0.0, ends_s[last_stage] - computed_s) + pipelines.tied_s
        return cls(pipelines, groups, times[last_stage], computed_s, communication_s, after_s)


def _round(
    plan: Plan, workload: Workload, topology: Topology, groups: list[Group], step_s: float
) -> tuple[GroupTime, float]:
    """The all-reduce of local SGD's largest fragment, and what a step of the round waits in the mean."""
    shares = fragment_shares(workload.model.trained_sizes, plan.fragments)
    sums = {share: fragment_sum(plan, workload, topology, groups, share) for share in dict.fromkeys(shares)}
    assert plan.inner_steps is not None
    last, _ = sums[max(shares)]
    timed = [(sums[share][0].seconds, sums[share][1]) for share in shares]
    return last, waited_seconds(step_s, plan.inner_steps, plan.delay_steps, timed) / plan.inner_steps


def fragment_sum(
    plan: Plan, workload: Workload, topology: Topology, groups: list[Group], share: float
) -> tuple[GroupTime, float]:
    """The all-reduce of a part of all parameters alone, and the seconds for which its busiest link is taken."""
    if plan.collective is None:
        parts = [replace(group, num_bytes=max(1, round(share * group.num_bytes))) for group in groups]
        slowest = max(_stage_times(plan, workload, topology, parts), key=lambda time: time.seconds)
        return slowest, slowest.seconds
    machines = plan.summing
    network = build_network(topology, machines, allow_unknown=True)
    if network.num_ranks < 2:
        return GroupTime(0.0, None), 0.0
    found = simulated(plan.collective, network, math.ceil(share * workload.model.gradient_bytes))
    return GroupTime(found.seconds, _ends(found.bottleneck, network, machines)), found.taken_s


def _stage_times(plan: Plan, workload: Workload, topology: Topology, groups: list[Group]) -> list[GroupTime]:
    """The slowest all-reduce of each stage's groups, by any other transport than Hulk's own."""
    seen, transport, num = for_sums(plan, groups, topology), transport_of(plan, workload), plan.layout.width
    sums = layer_sums(plan, workload)
    if not sums:
        return _slowest_of(allreduce_seconds(transport, groups, seen), num)
    found = [GroupTime(0.0, None)] * len(sums)
    for sizes, count in Counter(zip_longest(*sums, fillvalue=0)).items():
        stages = [stage for stage, size in enumerate(sizes) if size]
        some = [layer_group(g, sizes[stage], num) for stage in stages for g in groups[stage * num : (stage + 1) * num]]
        for stage, time in zip(stages, _slowest_of(allreduce_seconds(transport, some, seen), num), strict=True):
            found[stage] = GroupTime(found[stage].seconds + count * time.seconds, time.worst)
    return found


def _slowest_of(times: Sequence[GroupTime], num: int) -> list[GroupTime]:
    """Of each so many that follow each other."""
    return [max(times[n : n + num], key=lambda time: time.seconds) for n in range(0, len(times), num)]


def layer_group(group: Group, num_bytes: int, width: int) -> Group:
    """The same ranks, of so many, as torch has them sum their part of a layer of so many bytes."""
    return replace(group, num_bytes=max(1, num_bytes // width), num_buckets=1, is_exchange=False)


def stage_groups(plan: Plan, workload: Workload) -> list[Group]:
    """The ranks that sum gradients together, stage after stage; each rank of a cell is in a group of its own.

    Replicas sum their shards: S groups each sum 1/S over the same links at once (HSDP: Zhao et al. 2023, arXiv
    2304.11277, section 3.2.2).

    Over gloo two ranks of a stage send each other what they have. A server is the first replica's rank, whatever the
    order of rings.
    """
    layers, width = workload.model.layers, plan.layout.width
    is_exchange = plan.algorithm == "ring" and plan.layout.pipeline > 1 and plan.layout.data == 2
    groups = []
    for stage, (first, last) in enumerate(pairwise([*plan.stages, len(layers)])):
        num_bytes = BYTES_PER_FP32 * trained_parameters(layers, first, last) // width
        order = range(plan.layout.data) if plan.algorithm == "parameter-server" else plan.ring(stage)
        for rank in range(width):
            machines = tuple(plan.machine(replica, stage, rank) for replica in order)
            groups.append(Group(machines, max(1, num_bytes), plan.num_buckets, is_exchange))
    return groups


def _wan(
    plan: Plan, collective: CollectivePlan, workload: Workload, topology: Topology, pipelines: Pipelines
) -> GroupTime:
    """Seconds that a step waits for Hulk's own all-reduce, and the busiest link, by a machine of each end."""
    machines = plan.summing  # what all groups of their shards sum together goes over the same links
    network = build_network(topology, machines, allow_unknown=True)
    if sums := layer_sums(plan, workload):
        seconds, link = in_turn_seconds(collective, network, sums[0])
        return GroupTime(seconds, _ends(link, network, machines))
    backward_s = pipelines.common_backward_s if plan.overlap else 0.0
    seconds, link = wan_seconds(collective, network, workload.model.gradient_bytes, plan.num_buckets, backward_s)
    return GroupTime(seconds, _ends(link, network, machines))


def _ends(link: Link | None, network: Network, machines: Sequence[str]) -> Pair | None:
    """A link between regions by a machine of each end."""
    if link is None:
        return None
    source, target = (machines[network.ranks[region][0]] for region in link)
    return source, target


def allreduce(
    machines: Sequence[str], num_bytes: int, num_buckets: int, topology: Topology
) -> tuple[float, Pair | None]:
    """Seconds of the gradients' all-reduce over ranks on these machines in ring order, and the worst edge.

    One rank sends nothing: 0 seconds and no edge.
    """
    time = ring_times([Group(tuple(machines), num_bytes, num_buckets)], topology)[0]
    return time.seconds, time.worst
