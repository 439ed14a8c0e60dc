"""What the cluster offers, read with the planner's own types."""

from datetime import UTC, datetime
from functools import partial

from hulk_operator.cli.output import note
from hulk_operator.cluster import Cluster, Forbidden
from hulk_operator.planning.inventory import Inventory, Reader
from hulk_operator.watched.informers import read


async def inventory(cluster: Cluster) -> Inventory:
    """What the cluster's nodes offer and what is known of their links, with what its pods take."""
    return await Reader(cluster, partial(read, cluster, unseen=pods_unseen)).inventory((), datetime.now(UTC))


def pods_unseen(error: Forbidden) -> None:
    """Who may see the topology need not see everyone's pods: what is free is then not known, the links are."""
    note(f"what pods hold is not known, every accelerator counts as free: {error.message}")
