"""Objects that a sweep owns: created once, whoever was cut off in between; and whose an object is."""

from hulk_operator import names
from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.cluster import AlreadyExists, ApiResource, Cluster, Conflict, NameTaken, Object


async def create(cluster: Cluster, resource: ApiResource, body: Object, sweep: HulkSweep) -> Object:
    """The object as it is in the cluster; one that is there already must be the sweep's own, of an earlier pass.

    `Conflict` while it is of a deleted sweep of the same name, `NameTaken` when it is someone else's.
    """
    name = body["metadata"]["name"]
    try:
        return await cluster.create(resource, body)
    except AlreadyExists:
        found = await cluster.get(resource, name, sweep.namespace)
    owners = found["metadata"].get("ownerReferences") or ()
    if any(owner["uid"] == sweep.metadata.uid for owner in owners):
        return found
    message = f"{resource.kind} {name} exists and belongs to another object"
    if any(owner["kind"] == names.SWEEP_KIND and owner["name"] == sweep.metadata.name for owner in owners):
        raise Conflict(409, "Conflict", message)  # it goes with its sweep
    raise NameTaken(409, "NameTaken", message)


def owned_by(job: HulkJob, sweep: HulkSweep) -> bool:
    """Whether a HulkJob belongs to this very sweep."""
    return any(owner.uid == sweep.metadata.uid for owner in job.metadata.owner_references)


def sweep_key_of(job: Object) -> str | None:
    """The sweep that a HulkJob is labelled with."""
    name = (job["metadata"].get("labels") or {}).get(names.LABEL_SWEEP)
    return names.key(job["metadata"].get("namespace") or "", name) if name else None
