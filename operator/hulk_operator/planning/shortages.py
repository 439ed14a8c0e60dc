"""Which refusals more nodes would end, and what such a job lacks on the nodes that there are."""

from collections.abc import Collection
from typing import Final

from hulk_placement.fleet.quotas import Quotas

from hulk_operator.api import HulkJob
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.placement_constraints import allowed_regions
from hulk_operator.inputs.region_pins import CONTRADICTED, NOT_PINNED
from hulk_operator.inputs.shortage import Shortage
from hulk_operator.inputs.stage_constraints import num_workers
from hulk_operator.kueue import Placement, as_admitted
from hulk_operator.planning.inventory import UNUSABLE, Inventory
from hulk_operator.planning.queue_decision import CLUSTER_TOO_SMALL, NOT_ENOUGH, QUEUED

NOT_ENOUGH_ROOM: Final = "NotEnoughRoom"
LACKS_ROOM: Final[Collection[str]] = frozenset(
    {
        NOT_ENOUGH,
        NOT_ENOUGH_ROOM,
        CLUSTER_TOO_SMALL,
        QUEUED,
        "NoCandidates",
        "NotEnoughResources",
        CONTRADICTED,
        NOT_PINNED,
    }
)
"""Reasons of a job that may lack room. One that waits for others to give up theirs (MakingRoom), or for its quota, does
not; nor one whose links are not known, or whose model fits no accelerator."""


def shortage(job: HulkJob, seen: Inventory, quotas: Quotas, placed: Placement | None) -> Shortage | None:
    """What the job lacks; None where it finds room, its quota admits no more, or its numbers fit no layout.

    Room that others hold is none: who may ask for nodes need not wait for it.
    """
    job = as_admitted(job, placed)
    workers, kept = job.spec.workers, sum(seen.kept(job).values())
    resource, each = workers.resource_name, workers.accelerators_per_worker
    try:
        least = num_workers(job.spec)[0] - kept
        regions = allowed_regions(job, inputs.allowed_regions(seen.declared, job.namespace), seen.places(resource))
        avoided = tuple(node.name for node in job.status.avoided_nodes if node.until > seen.now)
        spec = seen.spec_of(job)
        untrusted = tuple(sorted(seen.untrusted().keys() & seen.candidates(spec, resource, each).keys()))
        num_fitting = seen.num_fitting(spec, resource, each, regions, avoided + untrusted)
    except UNUSABLE:
        return None
    if num_fitting >= least or (not job.queue and quotas.workers(job.namespace, each) < least):
        return None
    declared = job.spec.placement.regions or inputs.allowed_regions(seen.declared, job.namespace)
    return Shortage(least, num_fitting, regions if declared else (), untrusted)
