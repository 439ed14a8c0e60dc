"""The part of a plan's wire form that only pipelines have: stages, their rings, and the order of each stage's blocks.

One schedule is for all replicas, for as many micro-batches as the largest share has; a replica with a smaller share has
smaller ones. Where it has fewer sequences than that, there are as many micro-batches as it has sequences.
"""

from __future__ import annotations

import math
from typing import Any

from hulk_placement.cost.simulation.schedule import FORWARD, schedule
from hulk_placement.plan import Block, Plan
from hulk_placement.schedule.wire import chain_document, chain_orders


def to_wire(plan: Plan) -> dict[str, Any]:
    """The key `pipeline`, where a plan has one."""
    if plan.layout.pipeline == 1:
        return {}
    return {
        "pipeline": {
            "stages": list(plan.stages),
            "rings": [list(ring) for ring in plan.rings],
            "overlap": plan.overlap,
            "recompute": plan.recompute,
            "name": plan.schedule,
            "schedule": chain_document(orders_of(plan)),
        }
    }


def from_wire(body: dict[str, Any]) -> dict[str, Any]:
    """What of a plan the key `pipeline` says, by the names of its fields."""
    if "pipeline" not in body:
        return {}
    told = body["pipeline"]
    return {
        "stages": tuple(told["stages"]),
        "rings": tuple(tuple(ring) for ring in told["rings"]),
        "overlap": told["overlap"],
        "recompute": told["recompute"],
        "schedule": told["name"],
        "blocks": chain_orders(told["schedule"]) if told["name"] == "explicit" else (),
    }


def orders_of(plan: Plan) -> tuple[tuple[Block, ...], ...]:
    """The order of each stage's blocks, of a named schedule too."""
    if plan.schedule == "explicit":
        return plan.blocks
    num_batches = min(math.ceil(max(plan.shares) / plan.cell_batch), *plan.shares)
    named = schedule(plan.schedule, plan.layout.pipeline, num_batches)
    return tuple(tuple(("F" if kind == FORWARD else "B", m) for kind, m in order) for order in named.orders)
