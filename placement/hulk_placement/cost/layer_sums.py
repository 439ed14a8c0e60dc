"""What a program's own torch sums between replicas of several ranks: each layer by itself, one after another.

`fully_shard` over a mesh of replicas (HSDP) reduce-scatters a layer's gradients behind its backward pass, all-reduces
each rank's shard over the replicas, and the pass of the next layer waits for that: nothing is hidden. All shards of a
layer are summed at once over the same links. So are tensor ranks' parts of a layer, with or without shards: torch's DDP
does not go with them, `fully_shard` over replicas of one shard does (torchtitan). Over NCCL sums go on in a stream of
their own, in buckets as elsewhere.
"""

from __future__ import annotations

import math
from itertools import pairwise

from hulk_placement.cost.ties import trained_parameters
from hulk_placement.model.layer import BYTES_PER_FP32
from hulk_placement.plan import Plan
from hulk_placement.workload import Workload


def are_by_layer(workload: Workload, width: int, inner_steps: int | None) -> bool:
    """Whether replicas of so many ranks a stage sum in every step, and each layer by itself."""
    return workload.sums_by_layer and width > 1 and inner_steps is None and workload.model.is_counted


def layer_sums(plan: Plan, workload: Workload) -> tuple[tuple[int, ...], ...]:
    """Bytes of each sum of a stage, all ranks of a stage together, by stage; () where gradients go in buckets."""
    layout, layers = plan.layout, workload.model.layers
    if layout.data == 1 or plan.algorithm == "nccl" or not are_by_layer(workload, layout.width, plan.inner_steps):
        return ()
    found = []
    for first, last in pairwise([*plan.stages, len(layers)]):
        own = [layer.trained_parameters for layer in layers[first:last]]
        tied = trained_parameters(layers, first, last) - sum(own)
        found.append(tuple(BYTES_PER_FP32 * num for num in (*own, tied) if num))
    return tuple(found)


def largest_sum(plan: Plan, workload: Workload) -> int:
    """Bytes of the largest sum that a plan without stages makes in a step: a bucket's, or a layer's."""
    sums = layer_sums(plan, workload)
    return max(sums[0]) if sums else math.ceil(workload.model.gradient_bytes / plan.num_buckets)
