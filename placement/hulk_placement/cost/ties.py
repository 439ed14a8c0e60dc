"""Parameters that two stages share, such as an embedding and a head: who sums their gradients with whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hulk_placement.cost.groups import Group
from hulk_placement.model.layer import BYTES_PER_FP32, Layer
from hulk_placement.plan import Plan
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Tie:
    """Two stages of one replica that have the same parameters.

    `group`: one tensor-parallel rank of either, and the gradients that they sum; each rank has its own.
    """

    replica: int
    stages: tuple[int, int]
    group: Group


def ties(plan: Plan, workload: Workload) -> Iterator[Tie]:
    """Of each stage that uses parameters of a layer on another one, in each replica; it has them once."""
    layers = workload.model.layers
    stages = [sum(first <= layer for first in plan.stages) - 1 for layer in range(len(layers))]
    most: dict[tuple[int, int], int] = {}
    for number, layer in enumerate(layers):
        if layer.tied_to is not None and stages[layer.tied_to] != stages[number]:
            tied = layer.tied_to, stages[number]
            most[tied] = max(layer.tied_parameters, most.get(tied, 0))
    for (tied_to, stage), num_parameters in most.items():
        num_bytes = math.ceil(BYTES_PER_FP32 * num_parameters / plan.layout.tensor)
        ends = stages[tied_to], stage
        for replica in range(plan.layout.data):
            machines = plan.machine(replica, ends[0]), plan.machine(replica, ends[1])
            yield Tie(replica, ends, Group(machines, max(1, num_bytes)))


def held_parameters(layers: Sequence[Layer], first: int, last: int) -> int:
    """Those of a stage's layers, and those of earlier layers that it has once more because layers here use them.

    Its replicas sum the gradients of all of them, before the two stages sum what they share.
    """
    tied: dict[int, int] = {}
    for layer in layers[first:last]:
        if layer.tied_to is not None and layer.tied_to < first:
            tied[layer.tied_to] = max(layer.tied_parameters, tied.get(layer.tied_to, 0))
    return sum(layer.num_parameters for layer in layers[first:last]) + sum(tied.values())
