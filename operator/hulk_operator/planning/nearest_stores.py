"""The stores that a job names by region, and what is known of links -> where the plan's other regions write to.

To the store of the region to which the link is best, so that ranks of both write one copy there. Links of which nothing
is known decide nothing: then it is the store for all.
"""

from hulk_placement.plan import Plan
from hulk_placement.topology import LinkKind, Topology

from hulk_operator.api import Checkpoint


def nearest_stores(checkpoint: Checkpoint | None, plan: Plan, topology: Topology) -> tuple[tuple[str, str], ...]:
    """Regions of the plan that have no store of their own, and the region whose store is nearest; sorted."""
    own = sorted(store.region for store in checkpoint.storage.regional) if checkpoint else []
    found = []
    for region in sorted({worker.region for worker in plan.workers} - set(own)):
        links = {other: topology.region_link(region, other) for other in own}
        known = [other for other, link in links.items() if link.kind is not LinkKind.UNKNOWN]
        if known:
            found.append((region, max(known, key=lambda other: links[other].bandwidth_bytes_per_s)))
    return tuple(found)
