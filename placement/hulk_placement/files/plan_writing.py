"""The planner's `Plan` -> the values of a plan document, which reads back to the very same one, not yet predicted.

Of Hulk's own all-reduce the flows come back as the wire form has them: rates rounded to a byte a second.
"""

from __future__ import annotations

from typing import Any

from hulk_placement.basis import Basis
from hulk_placement.collective.document import as_document
from hulk_placement.files.basis import basis_values
from hulk_placement.files.part import API_VERSION
from hulk_placement.files.schedule import write_blocks
from hulk_placement.plan import Plan


def plan_document(plan: Plan, basis: Basis | None = None) -> dict[str, Any]:
    """The document's values, with what the plan was made of where that is given."""
    layout = plan.layout
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "workload": plan.key,
        "layout": {
            "data": layout.data,
            "pipeline": layout.pipeline,
            "tensor": layout.tensor,
            **({"shard": layout.shard} if layout.shard > 1 else {}),
        },
        **({"firstLayers": list(plan.stages)} if layout.pipeline > 1 else {}),
        **_places(plan),
        "shares": list(plan.shares),
        "microBatch": plan.micro_batch,
        **({"blocks": write_blocks(plan.blocks)} if plan.blocks else {"schedule": plan.schedule}),
        **({"rings": [list(ring) for ring in plan.rings]} if plan.rings else {}),
        "sync": plan.algorithm,
        **({"innerSteps": plan.inner_steps} if plan.inner_steps is not None else {}),
        **({"fragments": plan.fragments} if plan.fragments > 1 else {}),
        **({"delaySteps": plan.delay_steps} if plan.delay_steps else {}),
        "buckets": plan.num_buckets,
        "overlap": plan.overlap,
        "recompute": plan.recompute,
        **({"attempt": plan.attempt} if plan.attempt > 1 else {}),
    }
    document |= {} if plan.collective is None else {"collective": as_document(plan.collective)}
    return document if basis is None else {**document, "madeOf": basis_values(basis)}


def _places(plan: Plan) -> dict[str, Any]:
    """The machines by cell where every worker is one cell."""
    layout, workers = plan.layout, plan.workers
    if any(worker.num_accelerators != layout.width for worker in workers):
        return {"workers": [{"machine": one.machine, "accelerators": one.num_accelerators} for one in workers]}
    cells = [worker.machine for worker in workers]
    if layout.pipeline == 1:
        return {"machines": cells}
    firsts = range(0, len(cells), layout.pipeline)
    return {"replicas": [cells[first : first + layout.pipeline] for first in firsts]}
