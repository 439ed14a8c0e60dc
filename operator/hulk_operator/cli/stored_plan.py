"""The plan that a job runs by, as its ConfigMap has it."""

import base64

from hulk_placement import wire
from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import CONFIG_MAPS, Cluster, NotFound


async def full_plan(cluster: Cluster, found: HulkJob) -> tuple[Plan, tuple[str, ...]] | None:
    """The plan of the job's last attempt and its reasons; None without one, or when it is gone already."""
    if found.status.plan is None:
        return None
    try:
        stored = await cluster.get(CONFIG_MAPS, found.status.plan.name, found.metadata.namespace)
    except NotFound:
        return None
    plan, _ = wire.decode(base64.b64decode(stored["binaryData"][names.PLAN_KEY]))
    return plan, tuple((stored.get("data") or {}).get(names.PLAN_WHY_KEY, "").splitlines())
