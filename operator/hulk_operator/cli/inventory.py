"""What the cluster offers, and the plan that a job runs by: read with the planner's own types, which load slowly."""

import base64
from datetime import UTC, datetime

from hulk_placement import wire
from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cli.output import note
from hulk_operator.cluster import CONFIG_MAPS, Cluster, Forbidden, NotFound
from hulk_operator.planning.inventory import Inventory, Reader


async def inventory(cluster: Cluster) -> Inventory:
    """What the cluster's nodes offer and what is known of their links, with what its pods take."""
    return await Reader(cluster, unseen=pods_unseen).inventory((), datetime.now(UTC))


def pods_unseen(error: Forbidden) -> None:
    """Who may see the topology need not see everyone's pods: what is free is then not known, the links are."""
    note(f"what pods hold is not known, every accelerator counts as free: {error.message}")


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
