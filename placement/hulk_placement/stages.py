"""Jobs of one stage that may have more where no machine has the memory for a whole model: as they are planned then."""

from __future__ import annotations

from dataclasses import replace

from hulk_placement.plan import Plan
from hulk_placement.sync import Sync
from hulk_placement.workload import Workload


def staged(workload: Workload) -> Workload:
    """The workload with as many stages as are best, as a runtime carries them out that sums by gloo's ring alone."""
    asked = replace(workload, stages_if_needed=False, shards_if_needed=False)
    return replace(asked, pipeline=None, recompute=False, sync=Sync("ring"))


def as_planned(workload: Workload, plan: Plan) -> Workload:
    """The workload whose best plan was looked for: with stages, or shards, that the plan has and nobody asked for."""
    if plan.layout.shard > 1 and workload.shard == 1:
        return replace(workload, shard=None, shards_if_needed=False)
    return staged(workload) if plan.layout.pipeline > 1 and workload.pipeline == 1 else workload
