"""The plan of replicas that all train alike, one in each region, as the planner writes one."""

from __future__ import annotations

from typing import Literal

from hulk_runtime.plan import wire


def equal_plan(
    job: str,
    model: wire.Model,
    num_ranks: int,
    share: int,
    *,
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
    steps: int = 1,
    sync: wire.Sync | None = None,
) -> wire.Plan:
    """Every rank trains `share` sequences of each step."""
    return wire.Plan(
        version=wire.VERSION,
        operator_version=wire.runtime_version(),
        job=job,
        attempt=1,
        layout=wire.Layout(data=num_ranks, pipeline=1, tensor=1),
        algorithm="ring",
        workers=tuple(wire.Worker(node=f"n{r}", region=f"r{r}", accelerators=1) for r in range(num_ranks)),
        shares=(share,) * num_ranks,
        training=wire.Training(global_batch=share * num_ranks, precision=precision, optimizer="adamw", steps=steps),
        model=model,
        num_buckets=1,
        sync=sync,
        preflight=False,
        digest="",
    )
