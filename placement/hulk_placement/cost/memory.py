"""What one accelerator of each cell holds at its peak, by component: why a plan fits its machines, or does not.

The same figures that searches and `predict` go by, taken apart; they sum to `Pipelines.memory_DP`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from hulk_placement.accelerators.framework_memory import NO_FRAMEWORK, FrameworkMemory, framework_memory
from hulk_placement.cost.ties import held_bytes, trained_parameters
from hulk_placement.plan import Block, Plan
from hulk_placement.sync import Sync
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one accelerator of a cell.

    `activations` are kept for the backward passes of `in_flight` micro-batches; with recomputation they are the layers'
    inputs, and `recompute` is the one layer whose activations are made again. `buffers`: what the all-reduce works on.
    Of shards it is the layers that are whole for a while. `optimizer`: its state, with local SGD also the outer one's.
    `framework`: what the process takes besides its tensors, `reserve`: what torch's allocator holds besides them.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    recompute: float
    buffers: float
    framework: float = 0.0
    reserve: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return math.fsum(getattr(self, field.name) for field in fields(self))


def cell_memory(
    plan: Plan, workload: Workload, replica: int, stage: int, framework: FrameworkMemory = NO_FRAMEWORK
) -> Memory:
    """What an accelerator of one stage of one replica holds, of a product with so much framework memory.

    A model of one layer of 1,000 parameters that keeps 500 bytes a sequence, in micro-batches of two:

    >>> from hulk_placement.model import Model
    >>> from hulk_placement.plan import NOT_PREDICTED, Layout, WorkerSlot
    >>> job = Workload("a/b", Model.of_totals(1000, 1.0, 500), 4, {"m": 1}, optimizer="adamw")
    >>> plan = Plan("a/b", 1, (WorkerSlot("m", "r", 1),), (4,), 2, 1, NOT_PREDICTED, Layout(1))
    >>> found = cell_memory(plan, job, 0, 0)
    >>> found.parameters, found.gradients, found.optimizer, found.activations, found.buffers, found.total
    (4000.0, 4000.0, 8000.0, 1000.0, 4000.0, 21000.0)
    """
    layers, tensor, stated = workload.model.layers, plan.layout.tensor, workload.memory
    each = of_plan(plan, workload).bytes_per_parameter
    first, last = plan.stages[stage], [*plan.stages, len(layers)][stage + 1]
    trained = trained_parameters(layers, first, last) / plan.layout.width
    overhead = workload.overhead(framework, tensor, plan.algorithm, plan.layout.shard)
    kept = [stated.kept_bytes(layer, tensor) * plan.micro_batch for layer in layers[first:last]]
    num_flying = in_flight(plan, replica, stage)
    inputs = sum(stated.input_bytes(layer, tensor) for layer in layers[max(0, first - 1) : last - 1])
    found = Memory(
        parameters=held_bytes(layers, first, last, each.weights) / plan.layout.width,
        gradients=trained * each.gradients,
        optimizer=trained * each.optimizer,
        activations=float(num_flying * (inputs * plan.micro_batch if plan.recompute else sum(kept))),
        recompute=max(kept) if plan.recompute else 0.0,
        buffers=trained * each.buckets + overhead.gathered_bytes,
    )
    return replace(found, framework=overhead.fixed_bytes, reserve=overhead.reserve_share * found.total)


def of_plan(plan: Plan, workload: Workload) -> Workload:
    """The workload with what a plan has chosen of it: how gradients are synchronised, the number of replicas."""
    return replace(workload, sync=_sync_of(plan, workload), data=plan.layout.data, shard=plan.layout.shard)


def _sync_of(plan: Plan, workload: Workload) -> Sync:
    """The workload's, but local SGD where the plan has inner steps, and only there."""
    if plan.inner_steps is not None:
        rounds = replace(workload.sync.rounds, fragments=plan.fragments, delay_steps=plan.delay_steps)
        return replace(workload.sync, mode="local", inner_steps=plan.inner_steps, rounds=rounds)
    return replace(workload.sync, mode="auto") if workload.sync.is_local else workload.sync


def cells_memory(plan: Plan, workload: Workload, topology: Topology) -> Iterator[tuple[int, int, Memory]]:
    """Every (replica, stage) and what an accelerator there holds; of each stage's cells most are alike."""
    known: dict[tuple[int, int, FrameworkMemory], Memory] = {}
    for replica in range(plan.layout.data):
        for stage in range(plan.layout.pipeline):
            framework = framework_memory(topology.machine(plan.machine(replica, stage)).product)
            alike = stage, in_flight(plan, replica, stage), framework
            if alike not in known:
                known[alike] = cell_memory(plan, workload, replica, stage, framework)
            yield replica, stage, known[alike]


def fits(plan: Plan, workload: Workload, topology: Topology) -> bool:
    """Whether every cell fits its machine, as far as that is known."""
    return all(
        memory.total <= (topology.machine(plan.machine(replica, stage)).memory_bytes or math.inf)
        for replica, stage, memory in cells_memory(plan, workload, topology)
    )


def in_flight(plan: Plan, replica: int, stage: int) -> int:
    """Micro-batches of which a stage keeps activations at the same time, at most."""
    if plan.schedule == "explicit":
        return _most_kept(plan.blocks[stage])
    num_batches = math.ceil(plan.shares[replica] / plan.cell_batch)
    return num_batches if plan.schedule == "gpipe" else min(num_batches, plan.layout.pipeline - stage)


def _most_kept(blocks: Sequence[Block]) -> int:
    """
    >>> _most_kept((("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)))
    2
    """
    most = kept = 0
    for kind, _ in blocks:
        kept += 1 if kind == "F" else -1
        most = max(most, kept)
    return most
