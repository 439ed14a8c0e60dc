"""What a step sends from region to region: activations and their gradients between stages, and what is
summed: gradients of all replicas, and of stages that share parameters.

It is what traffic is paid for, also over wires of two machines' own, and which links a plan uses how much. Bytes inside
one machine do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from hulk_placement.collective.plan import WIRE_SHARE
from hulk_placement.cost.groups import Group
from hulk_placement.cost.layer_sums import largest_sum
from hulk_placement.cost.nccl import nccl_edges
from hulk_placement.cost.ties import tied_layers, ties, trained_parameters
from hulk_placement.cost.wires import for_sums
from hulk_placement.model.layer import BYTES_PER_ACTIVATION, BYTES_PER_FP32
from hulk_placement.nccl import PROTOCOLS, Nccl
from hulk_placement.plan import Plan
from hulk_placement.topology import Link, Pair, Topology
from hulk_placement.workload import Workload

Bytes = dict[Pair, float]
Sent = Iterator[tuple[str, str, float]]
"""Bytes from one machine, or region, to another."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of a step by (source, target) region; (a, a) is between machines of region a.

    `stages`: activations and their gradients. `sync`: gradients of parameters, summed over replicas, or over the stages
    that share them.
    """

    stages: Bytes
    sync: Bytes

    def total(self) -> Bytes:
        """Both together."""
        return {pair: self.stages.get(pair, 0.0) + self.sync.get(pair, 0.0) for pair in self.stages | self.sync}


def traffic(plan: Plan, workload: Workload, topology: Topology, groups: Sequence[Group]) -> Traffic:
    """What the plan sends in a step; with local SGD a step bears its part of what replicas sum.

    Over n ranks and B bytes a ring sends 2 (n - 1) / n B over every edge. Two levels: inside a region half a ring, a
    gather and a broadcast, and a ring between the regions' first ranks. A server: B there and back for each other rank.
    NCCL: the edges of its ring, or of its trees, with its protocol's flags. Hulk's own: B times each flow's share over
    each of its hops; inside regions it is not counted. Two stages that share parameters sum them in a ring of the two:
    B each way.
    """
    region = _regions(plan, topology)
    sync = chain(_flows(plan, workload), _of_regions(_summing(plan, workload, topology, groups), region))
    return Traffic(_summed(_of_regions(_between_stages(plan, workload), region)), _summed(sync))


def link_traffic(
    plan: Plan, workload: Workload, topology: Topology, groups: Sequence[Group]
) -> tuple[Traffic, Traffic]:
    """The same by what carries it: regions' links, and by (source, target) machine the wires that two have alone."""
    region = _regions(plan, topology)
    stages, sync = list(_between_stages(plan, workload)), list(_summing(plan, workload, topology, groups))

    def over(sent: Iterable[tuple[str, str, float]], own_wire: bool) -> Sent:
        return (way for way in sent if topology.link(*way[:2]).own_wire is own_wire)

    shared = chain(_flows(plan, workload), _of_regions(over(sync, own_wire=False), region))
    return (
        Traffic(_summed(_of_regions(over(stages, own_wire=False), region)), _summed(shared)),
        Traffic(_summed(over(stages, own_wire=True)), _summed(over(sync, own_wire=True))),
    )


def links_used(plan: Plan, workload: Workload, topology: Topology, groups: Sequence[Group]) -> dict[Pair, Link]:
    """The links that the plan sends over in a step: of machines, and of regions what Hulk's own all-reduce sends."""
    sent = chain(_between_stages(plan, workload), _summing(plan, workload, topology, groups))
    found = {(a, b): topology.region_link(a, b) for a, b, num_bytes in _flows(plan, workload) if num_bytes}
    return found | {(a, b): topology.link(a, b) for a, b, num_bytes in sent if a != b and num_bytes}


def ring_traffic(machines: Sequence[str], num_bytes: int, topology: Topology) -> Bytes:
    """What one all-reduce in a ring over ranks on these machines sends, by (source, target) region."""
    region = {name: topology.machine(name).region for name in machines}
    return _summed(_of_regions(_ring(machines, 2 * num_bytes), region))


def _between_stages(plan: Plan, workload: Workload) -> Sent:
    """Activations on, and as many bytes of gradients back."""
    for replica, share in enumerate(plan.shares):
        homes = [plan.machine(replica, stage) for stage in range(plan.layout.pipeline)]
        for (source, target), first in zip(pairwise(homes), plan.stages[1:], strict=True):
            num_bytes = float(share * workload.model.layers[first - 1].output_bytes)
            yield source, target, num_bytes
            yield target, source, num_bytes


def _tied(plan: Plan, workload: Workload) -> Sent:
    """Gradients of parameters that two stages share, by all ranks of their cells."""
    for tie in ties(plan, workload):
        yield from _ring(tie.group.machines, 2 * tie.group.num_bytes * plan.layout.width)


def _regions(plan: Plan, topology: Topology) -> dict[str, str]:
    """The region of each of the plan's machines."""
    return {name: topology.machine(name).region for name in set(plan.rank_machines)}


def _summing(plan: Plan, workload: Workload, topology: Topology, groups: Sequence[Group]) -> Sent:
    """What machines send to sum gradients, of all groups and of stages that share parameters; and to shard them."""
    yield from _tied(plan, workload)
    yield from _sharding(plan, workload)
    if plan.algorithm == "nccl":
        reduced = _nccl(groups, for_sums(plan, groups, topology), workload.nccl)
    elif plan.collective is None:
        region = _regions(plan, topology)
        reduced = (way for group in groups for way in _reduced(plan.algorithm, group, region))
    else:
        return
    for source, target, num_bytes in reduced:
        yield source, target, num_bytes / (plan.inner_steps or 1)


def _sharding(plan: Plan, workload: Workload) -> Sent:
    """Parameters and gradients of shard groups on several machines, once round for each tensor-parallel rank."""
    layout, ends = plan.layout, [*plan.stages, len(workload.model.layers)]
    for replica, share in enumerate(plan.shares if layout.shard > 1 else ()):
        for stage, (first, last) in enumerate(pairwise(ends)):
            each = sharding_bytes(workload, first, last, layout.shard, layout.tensor)
            num_bytes = math.ceil(share / plan.cell_batch) * each * layout.tensor
            machines = plan.cell(replica, stage)
            yield from ((name, machines[number - 1], num_bytes) for number, name in enumerate(machines))


def _nccl(groups: Sequence[Group], seen: Topology, transport: Nccl) -> Sent:
    """Bucket after bucket over the edges of the algorithm that is in force."""
    for group in groups:
        bucket_bytes = math.ceil(group.num_bytes / group.num_buckets)
        edges = nccl_edges(replace(group, num_bytes=bucket_bytes, num_buckets=1), seen, transport)
        num_bytes = edges.num_bytes * PROTOCOLS[edges.transport.protocol or "Simple"].wire_share
        for (source, target), count in edges.counts.items():
            yield source, target, count * num_bytes * group.num_bytes / bucket_bytes


def _reduced(algorithm: str, group: Group, region: Mapping[str, str]) -> Sent:
    """One group's all-reduce."""
    if algorithm == "parameter-server":
        server, *others = group.machines
        for name in others:
            yield name, server, group.num_bytes
            yield server, name, group.num_bytes
    elif algorithm == "hierarchical":
        yield from _two_levels(group, region)
    else:
        yield from _ring(group.machines, 2 * group.num_bytes)


def _ring(machines: Sequence[str], num_bytes: float) -> Sent:
    """Every rank's part of the bytes goes to all ranks but one."""
    num = len(machines)
    for rank, name in enumerate(machines if num > 1 else ()):
        yield name, machines[rank - 1], (num - 1) / num * num_bytes


def _two_levels(group: Group, region: Mapping[str, str]) -> Sent:
    members: dict[str, list[str]] = {}
    for name in group.machines:
        members.setdefault(region[name], []).append(name)
    yield from _ring([names[0] for names in members.values()], 2 * group.num_bytes)
    for names in members.values():
        yield from _ring(names, group.num_bytes)
        for name in names[1:]:
            yield name, names[0], group.num_bytes / len(names)
            yield names[0], name, group.num_bytes


def _flows(plan: Plan, workload: Workload) -> Sent:
    """What Hulk's own all-reduce sends from region to region; nothing where another runs."""
    if plan.collective is None:
        return
    names, gradient_bytes = plan.collective.network.regions, workload.model.gradient_bytes
    sent_bytes = WIRE_SHARE[plan.collective.compression] * gradient_bytes / (plan.inner_steps or 1)
    for flow in plan.collective.of(largest_sum(plan, workload)).flows:
        pattern = flow.pattern
        hops = [(a, b) for a in pattern.exchange for b in pattern.exchange if a != b]
        hops += [*pattern.reduce, *((parent, child) for child, parent in pattern.broadcast)]
        for a, b in hops:
            yield names[a], names[b], flow.share * sent_bytes


def _of_regions(sent: Sent, region: Mapping[str, str]) -> Sent:
    """What goes from machine to machine, by their regions."""
    return ((region[source], region[target], num_bytes) for source, target, num_bytes in sent if source != target)


def _summed(sent: Sent) -> Bytes:
    found: Bytes = {}
    for source, target, num_bytes in sent:
        found[source, target] = found.get((source, target), 0.0) + num_bytes
    return {pair: num_bytes for pair, num_bytes in found.items() if num_bytes}


def sharding_bytes(workload: Workload, first: int, last: int, shard: int, tensor: int) -> float:
    """Bytes that a rank sends on for one micro-batch of layers `first` to `last`: gathered twice, reduced once.

    As `cost.sharding` times it.

    >>> from hulk_placement.model import Model
    >>> job = Workload("a/b", Model.of_totals(1000, 1.0), 4, {"m": 1})
    >>> sharding_bytes(job, 0, 1, 4, 1)
    9000.0
    """
    layers, short = workload.model.layers, BYTES_PER_ACTIVATION[workload.precision]
    own = sum(layer.num_parameters for layer in layers[first:last])
    twice = 2 * short * (own + sum(layer.tied_parameters for layer in tied_layers(layers, first, last)))
    once = BYTES_PER_FP32 * trained_parameters(layers, first, last)
    return (shard - 1) / shard * (twice + once) / tensor
