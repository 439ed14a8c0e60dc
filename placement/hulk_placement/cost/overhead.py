"""What a step costs besides its micro-batches and its sums: the optimizer, what ends a step, and what is stated.

Optimizer: seconds as stated; else, where a plan goes over NCCL and so runs in a stock framework, from the bytes that an
update moves (`UPDATE_BYTES`) over the accelerator's memory bandwidth. Nothing for other plans, and where that bandwidth
is not known.

End of step: a pipeline over NCCL ends its step by small all-reduces over all of its ranks. Mixed precision asks whether
any gradient overflowed, clipping asks for the norm of all (Megatron-LM, DeepSpeed); DT-FM has a barrier behind the
backward passes and one behind the update. `Workload.end_collectives` of them are counted, 2 unless stated (assumption).
Over links of 50 ms each takes hundreds of milliseconds, whatever the number of micro-batches.
"""

from __future__ import annotations

from hulk_placement.accelerators import look_up
from hulk_placement.cost.groups import Group
from hulk_placement.cost.nccl import nccl_times
from hulk_placement.cost.ties import trained_parameters
from hulk_placement.cost.wires import is_nccl_between_stages, with_one_nic
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

UPDATE_BYTES = {
    "adamw": 80,
    "adam": 72,
    "sgd": 12,
    "sgd-momentum": 32,
    "adamw-bf16": 52,
    "adamw-8bit": 16,
    "adafactor": 40,
}
"""Bytes that an update reads and writes for each trained parameter, values of four bytes where nothing else is said.

torch's AdamW goes through lists of tensors operation by operation unless told otherwise (`foreach`): decay (8 bytes),
the first moment blended with the gradient (12), the second scaled (8) and given the gradient's square (12), its root
(8), correction (8) and epsilon (8), and the quotient taken from the parameter (16). SGD without momentum reads
parameter and gradient and writes the parameter.

The others are counted by the same operations, and were not measured (assumption): Adam without decay; momentum scaled
(8), given the gradient (12) and taken from the parameter (12); AdamW with moments of two bytes; in one kernel with
moments of one byte (parameter 8, gradient 4, moments 4); Adafactor's squares (8), their means by row and column (8),
the update (8), its norm (4) and the parameter (12).
"""

MEMORY_SHARE = 0.8
"""Of its memory's rate that an accelerator reaches with such operations: an assumption."""

COLLECTIVE_BYTES = 4
"""Of a small all-reduce: one value."""


def overhead_s(plan: Plan, workload: Workload, topology: Topology) -> float:
    """Seconds that every step takes after its gradients are summed."""
    return optimizer_s(plan, workload, topology) + end_s(plan, workload, topology) + workload.step_overhead_s


def optimizer_s(plan: Plan, workload: Workload, topology: Topology) -> float:
    """Seconds of the update: of the cell that takes longest, where they are not stated."""
    if workload.optimizer_s is not None:
        return workload.optimizer_s
    if not (plan.algorithm == "nccl" or is_nccl_between_stages(plan, workload)):
        return 0.0
    layers, worst_s = workload.model.layers, 0.0
    ends = [*plan.stages[1:], len(layers)]
    for stage, (first, last) in enumerate(zip(plan.stages, ends, strict=True)):
        moved = UPDATE_BYTES[workload.optimizer] * trained_parameters(layers, first, last) / plan.layout.width
        for replica in range(plan.layout.data):
            rate = _memory_bytes_per_s(plan.machine(replica, stage), topology)
            worst_s = max(worst_s, moved / (MEMORY_SHARE * rate) if rate else 0.0)
    return worst_s


def _memory_bytes_per_s(name: str, topology: Topology) -> float:
    """As stated, else by the product's data sheet; 0 where it is not known."""
    machine = topology.machine(name)
    known = look_up(machine.product)
    return machine.memory_bandwidth_bytes_per_s or (known.memory_bandwidth_bytes_per_s if known else 0.0)


def end_s(plan: Plan, workload: Workload, topology: Topology) -> float:
    """Seconds of the small all-reduces that end a step of pipelines over NCCL; the slowest replica's."""
    if plan.layout.pipeline == 1 or not workload.end_collectives or not is_nccl_between_stages(plan, workload):
        return 0.0
    stages, seen = range(plan.layout.pipeline), with_one_nic(topology)
    machines = {tuple(plan.machine(replica, stage) for stage in stages) for replica in range(plan.layout.data)}
    groups = [Group(names, COLLECTIVE_BYTES) for names in sorted(machines)]
    slowest_s = max(nccl_times([group], seen, workload.nccl)[0].seconds for group in groups)
    return workload.end_collectives * slowest_s
