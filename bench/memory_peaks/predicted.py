"""A published peak -> what the planner predicts for the same run: as stated, unstated, and as it was before."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from hulk_placement.accelerators.framework_memory import NO_FRAMEWORK, framework_memory
from hulk_placement.cost.memory import cell_memory
from hulk_placement.model.architecture import AS_COUNTED
from hulk_placement.nccl import Nccl
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.training_memory import TrainingMemory
from hulk_placement.workload import Workload

from bench.memory_peaks.published import ALLOCATED, Peak

BEFORE = TrainingMemory(weight_bytes=4, gradient_bytes=4, bucket_bytes=4, framework_bytes=0, reserve_share=0)
"""What the planner counted until November 2026: four bytes each, whatever the precision, and no framework."""


def stated(peak: Peak) -> float:
    """Bytes, with what is known of the run stated in its workload."""
    job = workload(peak, stated_kept=True, memory=peak.memory)
    return _bytes(peak, job, has_framework=True)


def unstated(peak: Peak) -> float:
    """Bytes by optimizer, precision, recomputation and product alone."""
    return _bytes(peak, workload(peak, stated_kept=False, memory=TrainingMemory()), has_framework=True)


def before(peak: Peak) -> float:
    """Bytes as they were counted before; every optimizer but SGD was AdamW."""
    job = workload(peak, stated_kept=False, memory=BEFORE)
    return _bytes(peak, replace(job, optimizer="adamw"), has_framework=False)


def workload(peak: Peak, *, stated_kept: bool, memory: TrainingMemory) -> Workload:
    """The run as a workload."""
    num_ranks = peak.data * peak.pipeline * peak.tensor
    return Workload(
        key="bench/peak",
        model=peak.model(peak.kept if stated_kept else AS_COUNTED),
        global_batch=peak.micro_batch * peak.data * peak.pipeline,
        candidates={"m": num_ranks},
        max_workers=num_ranks,
        micro_batch=peak.micro_batch,
        precision=peak.precision,
        optimizer=peak.optimizer,
        pipeline=peak.pipeline,
        tensor=peak.tensor,
        data=peak.data,
        recompute=peak.recompute,
        memory=memory,
        nccl=Nccl(num_channels=max(1, framework_memory(peak.product).inside_channels)),
    )


def _bytes(peak: Peak, job: Workload, has_framework: bool) -> float:
    """Of the last stage, which is what the source measures; only a tensor's part of it where that is measured."""
    framework = framework_memory(peak.product) if has_framework else NO_FRAMEWORK
    found = cell_memory(_plan(peak, job), job, 0, peak.pipeline - 1, framework)
    if peak.measured != ALLOCATED:
        return found.total
    return found.total - found.framework - found.reserve + framework.workspace_bytes


def _plan(peak: Peak, job: Workload) -> Plan:
    """Blocks in stages of as many each; the embedding is with the first, the head with the last."""
    num_blocks = job.model.num_layers - 2
    each = [num_blocks // peak.pipeline] * (peak.pipeline - 1)
    cells = peak.data * peak.pipeline
    return Plan(
        key=job.key,
        attempt=1,
        workers=tuple(WorkerSlot("m", "r", peak.tensor) for _ in range(cells)),
        shares=(peak.micro_batch * peak.pipeline,) * peak.data,
        micro_batch=peak.micro_batch,
        num_buckets=1,
        prediction=NOT_PREDICTED,
        layout=Layout(peak.data, peak.pipeline, peak.tensor),
        stages=(0, *(1 + first for first in accumulate(each))),
        recompute=peak.recompute,
        algorithm="nccl",
    )
