"""Parameters that two stages share, such as an embedding and a head: who sums their gradients with whom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hulk_placement.cost.groups import Group
from hulk_placement.model.layer import BYTES_PER_FP32, Layer
from hulk_placement.plan import Plan
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Tie:
    """Two stages of one replica that have the same parameters.

    `group`: one rank of either, and the gradients that they sum; each rank of a cell has its own.
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
            most[tied] = max(layer.trained_tied_parameters, most.get(tied, 0))
    for (tied_to, stage), num_parameters in most.items():
        num_bytes = math.ceil(BYTES_PER_FP32 * num_parameters / plan.layout.width)
        ends = stages[tied_to], stage
        for replica in range(plan.layout.data):
            machines = plan.machine(replica, ends[0]), plan.machine(replica, ends[1])
            yield Tie(replica, ends, Group(machines, max(1, num_bytes)))


def held_bytes(layers: Sequence[Layer], first: int, last: int, per_trained: float) -> float:
    """What parameters of a stage's layers take, and those of earlier layers that layers here use.

    So many bytes each that is trained, its value alone each that is frozen.
    """
    own = sum(layer.held_bytes(per_trained) for layer in layers[first:last])
    return own + sum(layer.tied_held_bytes(per_trained) for layer in tied_layers(layers, first, last))


def trained_parameters(layers: Sequence[Layer], first: int, last: int) -> int:
    """Those that have a gradient of a stage's layers, and of earlier layers that layers here use.

    Its replicas sum the gradients of all of them, before the two stages sum what they share.
    """
    own = sum(layer.trained_parameters for layer in layers[first:last])
    return own + sum(layer.trained_tied_parameters for layer in tied_layers(layers, first, last))


def tied_layers(layers: Sequence[Layer], first: int, last: int) -> Iterable[Layer]:
    """Of the layers of a stage that use parameters of an earlier stage, one for each layer there: that with most."""
    found: dict[int, Layer] = {}
    for layer in layers[first:last]:
        if layer.tied_to is not None and layer.tied_to < first:
            known = found.get(layer.tied_to)
            if known is None or layer.tied_parameters > known.tied_parameters:
                found[layer.tied_to] = layer
    return found.values()
