"""Where regions without a store of their own write checkpoints to."""

from hulk_operator.api import Checkpoint, RegionalStore, Storage
from hulk_operator.planning.nearest_stores import nearest_stores
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.topology import Link, Topology

SLOTS = tuple(WorkerSlot(f"node-{region}", region, 1) for region in ("ap", "uk", "us"))
PLAN = Plan("a/b", 1, SLOTS, (1, 1, 1), 1, 1, NOT_PREDICTED, Layout(3))
OWN = tuple(RegionalStore(region=region, url=f"s3://{region}") for region in ("eu", "us"))


def test_the_best_link_decides_where_one_is_known() -> None:
    """Nothing is known of ap, us has its own."""
    links = {("uk", "eu"): Link(0.01, 1e8), ("uk", "us"): Link(0.07, 2e7)}
    topology = Topology((), region_links=links)
    job = Checkpoint(storage=Storage(url="s3://all", regional=OWN))
    assert nearest_stores(job, PLAN, topology) == (("uk", "eu"),)
    assert nearest_stores(Checkpoint(storage=Storage(url="s3://all")), PLAN, topology) == ()
    assert nearest_stores(None, PLAN, topology) == ()
