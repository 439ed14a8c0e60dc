"""What a step costs in money: accelerators by the second, traffic between regions by the byte."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hulk_placement.cost.groups import Group
from hulk_placement.plan import Plan
from hulk_placement.topology import Pair, Topology
from hulk_placement.workload import Workload

GB = 1e9


def accelerators_per_s(plan: Plan, topology: Topology) -> float:
    """Price of all of a plan's accelerators for a second."""
    return sum(topology.machine(w.machine).price_per_hour * w.num_accelerators for w in plan.workers) / 3600


def egress(plan: Plan, workload: Workload, topology: Topology, groups: list[Group]) -> float:
    """Price of what a step sends between regions: activations, their gradients, and the groups' all-reduces.

    An all-reduce of B bytes over n ranks sends 2 (n - 1) / n B over every edge of its ring; Hulk's own is taken to send
    as much. With local SGD a step bears its part.
    """
    sent: dict[Pair, float] = dict(_activations(plan, workload, topology))
    for group in groups:
        num = len(group.machines)
        for (source, target), count in group.edges().items():
            pair = topology.machine(source).region, topology.machine(target).region
            sent[pair] = sent.get(pair, 0.0) + count * 2 * (num - 1) / num * group.num_bytes / (plan.inner_steps or 1)
    return sum(num_bytes / GB * topology.egress_price_per_gb.get(pair, 0.0) for pair, num_bytes in sent.items())


def _activations(plan: Plan, workload: Workload, topology: Topology) -> Counter[Pair]:
    """Bytes of a step by (source, target) region, those that stay in a region among them."""
    sent: Counter[Pair] = Counter()
    last_layers = [first - 1 for first in plan.stages[1:]]
    for replica, share in enumerate(plan.shares):
        homes = [topology.machine(plan.machine(replica, stage)).region for stage in range(plan.layout.pipeline)]
        for (source, target), layer in zip(pairwise(homes), last_layers, strict=True):
            num_bytes = share * workload.model.layers[layer].output_bytes
            sent[source, target] += num_bytes
            sent[target, source] += num_bytes
    return sent
