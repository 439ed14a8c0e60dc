"""What one accelerator of each cell holds at its peak, by component: why a plan fits its machines, or does not.

The same figures that searches and `predict` go by, taken apart; they sum to `Pipelines.memory_DP`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from hulk_placement.cost.closed_form.setting import COPIES
from hulk_placement.cost.ties import held_bytes, trained_parameters
from hulk_placement.model import optimizer_bytes_per_parameter
from hulk_placement.model.layer import BYTES_PER_FP32, Layer
from hulk_placement.plan import Block, Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one accelerator of a cell.

    `activations` are kept for the backward passes of `in_flight` micro-batches; with recomputation they are the layers'
    inputs, and `recompute` is the one layer whose activations are made again. `buffers`: what the all-reduce works on.
    `optimizer`: its state, with local SGD also the outer one's.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    recompute: float
    buffers: float

    @property
    def total(self) -> float:
        """All of them."""
        return math.fsum(getattr(self, field.name) for field in fields(self))


def cell_memory(plan: Plan, workload: Workload, replica: int, stage: int) -> Memory:
    """What an accelerator of one stage of one replica holds.

    A model of one layer of 1,000 parameters that keeps 500 bytes a sequence, in micro-batches of two:

    >>> from hulk_placement.model import Model
    >>> from hulk_placement.plan import NOT_PREDICTED, Layout, WorkerSlot
    >>> job = Workload("a/b", Model.of_totals(1000, 1.0, 500), 4, {"m": 1}, optimizer="adamw")
    >>> plan = Plan("a/b", 1, (WorkerSlot("m", "r", 1),), (4,), 2, 1, NOT_PREDICTED, Layout(1))
    >>> cell_memory(plan, job, 0, 0)
    Memory(parameters=4000.0, gradients=4000.0, optimizer=8000.0, activations=1000.0, recompute=0.0, buffers=4000.0)
    """
    layers, tensor = workload.model.layers, plan.layout.tensor
    first, last = plan.stages[stage], [*plan.stages, len(layers)][stage + 1]
    trained = trained_parameters(layers, first, last) / tensor
    kept = [_kept_bytes(layer, tensor) * plan.micro_batch for layer in layers[first:last]]
    num_flying = in_flight(plan, replica, stage)
    inputs = sum(layer.output_bytes for layer in layers[max(0, first - 1) : last - 1]) * plan.micro_batch
    return Memory(
        parameters=held_bytes(layers, first, last, BYTES_PER_FP32) / tensor,
        gradients=trained * BYTES_PER_FP32,
        optimizer=trained * optimizer_bytes_per_parameter(workload.optimizer, plan.inner_steps is not None),
        activations=float(num_flying * (inputs if plan.recompute else sum(kept))),
        recompute=max(kept) if plan.recompute else 0.0,
        buffers=trained * BYTES_PER_FP32 * (COPIES - 2),
    )


def cells_memory(plan: Plan, workload: Workload) -> Iterator[tuple[int, int, Memory]]:
    """Every (replica, stage) and what an accelerator there holds; of each stage's cells most are alike."""
    known: dict[tuple[int, int], Memory] = {}
    for replica in range(plan.layout.data):
        for stage in range(plan.layout.pipeline):
            alike = stage, in_flight(plan, replica, stage)
            if alike not in known:
                known[alike] = cell_memory(plan, workload, replica, stage)
            yield replica, stage, known[alike]


def fits(plan: Plan, workload: Workload, topology: Topology) -> bool:
    """Whether every cell fits its machine, as far as that is known."""
    return all(
        memory.total <= (topology.machine(plan.machine(replica, stage)).memory_bytes or math.inf)
        for replica, stage, memory in cells_memory(plan, workload)
    )


def in_flight(plan: Plan, replica: int, stage: int) -> int:
    """Micro-batches of which a stage keeps activations at the same time, at most."""
    if plan.schedule == "explicit":
        return _most_kept(plan.blocks[stage])
    num_batches = math.ceil(plan.shares[replica] / plan.micro_batch)
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


def _kept_bytes(layer: Layer, tensor: int) -> float:
    """Per sequence, of one tensor-parallel rank."""
    whole = layer.replicated_activation_bytes
    return whole + (layer.activation_bytes - whole) / tensor
