"""A plan as the step that the simulation runs: its pipelines, its all-reduces, and what all of them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hulk_placement.collective.network import build_network
from hulk_placement.cost.closed_form.arrays import Layout, Setting
from hulk_placement.cost.closed_form.sync import holds_tie, slack_seconds
from hulk_placement.cost.gloo import AT_A_TIME
from hulk_placement.cost.groups import Group
from hulk_placement.cost.layer_sums import layer_sums
from hulk_placement.cost.overhead import overhead_s
from hulk_placement.cost.pipelines import arrays_of, stage_ways, time_pipelines
from hulk_placement.cost.predict import layer_group, predict, stage_groups, transport_of
from hulk_placement.cost.simulation.reducing import buckets_of, own_buckets, sending
from hulk_placement.cost.simulation.replicas import replica_of
from hulk_placement.cost.simulation.step import AllReduce, Bucket, Step
from hulk_placement.cost.simulation.ways import Ways
from hulk_placement.cost.ties import ties
from hulk_placement.cost.wires import for_sums, for_ties
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

NUM_AT_A_TIME = {"ring": AT_A_TIME}
"""Buckets of a group that are reduced at the same time: gloo has its threads, others go bucket after bucket."""


def step_of(plan: Plan, workload: Workload, topology: Topology) -> Step:
    """One step of the plan; KeyError when it names a machine that the topology lacks."""
    setting, layout = arrays_of(plan, workload, topology)
    ways = stage_ways(plan, workload, topology)
    replicas = tuple(replica_of(plan, number, setting, layout, ways) for number in range(plan.layout.data))
    ready = [ready_parts(setting, layout, stage, plan.num_buckets) for stage in range(plan.layout.pipeline)]
    sums = replace(  # draws on the same resources
        ways,
        topology=for_sums(plan, stage_groups(plan, workload), topology),
        nccl=workload.nccl if plan.algorithm == "nccl" else None,
    )
    tied = replace(ways, topology=for_ties(plan, workload, topology))
    reduces = (*_reduces(plan, workload, ready, sums), *_ties(plan, workload, setting, layout, tied))
    is_early = plan.overlap and plan.inner_steps is None
    blocks = plan.layout.pipeline > 1 and not plan.overlap
    return Step(
        ways.resources,
        replicas,
        reduces,
        plan.overlap,
        is_early,
        num_steps_apart=plan.inner_steps or 1,
        waited_s=_waited_s(plan, workload, topology),
        after_s=overhead_s(plan, workload, topology),
        held_s=time_pipelines(plan, workload, topology).held_s if blocks else 0.0,
    )


def _waited_s(plan: Plan, workload: Workload, topology: Topology) -> float | None:
    """Of a step whose sums go on while others compute; None where they do not."""
    if not plan.delay_steps and plan.fragments == 1:
        return None
    found = predict(plan, workload, topology)
    return found.communication_s - found.tied_s


def ready_parts(setting: Setting, layout: Layout, stage: int, num_buckets: int) -> list[float]:
    """How much of a stage's last backward pass is done when each of its equal buckets has its last gradient.

    Layers have theirs from the last one to the first, each evenly while its pass lasts.
    """
    first, last = layout.first_P[stage], layout.first_P[stage + 1]
    backward_J = setting.backward_KJ[setting.kind_M[layout.machine_DP[0, stage]]]
    gradient_J = setting.gradient_J.copy()
    for number, (layer, _) in enumerate(setting.ties_T2):
        if holds_tie(setting, first, last, number):
            gradient_J[layer + 1 :] += setting.tied_gradient_T[number]
    there_J, done_J = (sums_J[last] - sums_J[first : last + 1][::-1] for sums_J in (gradient_J, backward_J))
    ends = there_J[-1] * np.arange(1, num_buckets) / num_buckets
    return [*(np.interp(ends, there_J, done_J) / (done_J[-1] or 1.0)).tolist(), 1.0]


def _reduces(plan: Plan, workload: Workload, ready: Sequence[Sequence[float]], ways: Ways) -> Iterator[AllReduce]:
    """Of each stage."""
    if plan.layout.data == 1:
        return
    sums = layer_sums(plan, workload)
    for stage, group in enumerate(stage_groups(plan, workload)[:: plan.layout.width]):
        members = tuple((replica, stage) for replica in range(plan.layout.data))
        if sums:
            yield AllReduce(members, _by_layer(plan, workload, group, sums[stage], ways, stage))
        elif plan.collective is None:
            buckets = buckets_of(transport_of(plan, workload), group, ready[stage], plan.layout.width, ways, stage)
            yield AllReduce(members, buckets, NUM_AT_A_TIME.get(plan.algorithm, 1))
        else:
            yield AllReduce(members, _own(plan, workload, ways), plan.num_buckets)


def _by_layer(
    plan: Plan, workload: Workload, group: Group, sizes: Sequence[int], ways: Ways, connection: object
) -> tuple[Bucket, ...]:
    """Sums of one stage's layers, of which the backward pass waits for each: as long as if all came behind it."""

    def of(num_bytes: int) -> Bucket:
        if plan.collective is not None:
            network = build_network(ways.topology, plan.summing, allow_unknown=True)
            return own_buckets(plan.collective, network, num_bytes, 1, ways)[0]
        one = layer_group(group, num_bytes, plan.layout.width)
        return buckets_of(transport_of(plan, workload), one, [1.0], plan.layout.width, ways, connection)[0]

    found = {num_bytes: of(num_bytes) for num_bytes in dict.fromkeys(sizes)}
    return tuple(found[num_bytes] for num_bytes in sizes)


def _own(plan: Plan, workload: Workload, ways: Ways) -> tuple[Bucket, ...]:
    assert plan.collective is not None
    network = build_network(ways.topology, plan.summing, allow_unknown=True)
    return own_buckets(plan.collective, network, workload.model.gradient_bytes, plan.num_buckets, ways)


def _ties(plan: Plan, workload: Workload, setting: Setting, layout: Layout, ways: Ways) -> Iterator[AllReduce]:
    """Of each layer that uses another stage's parameters: the two send each other their gradients, in each replica."""
    for tie in ties(plan, workload):
        slacks_s = slack_seconds(setting, layout, tie.replica, *tie.stages)
        members = tuple((tie.replica, stage) for stage in tie.stages)
        for way, slack_s in zip((1, -1), slacks_s, strict=True):
            group = replace(tie.group, machines=tie.group.machines[::way])
            bucket = sending(group, plan.layout.width, ways)
            yield AllReduce(members[::way], (bucket,), after_all=True, slack_s=slack_s)
