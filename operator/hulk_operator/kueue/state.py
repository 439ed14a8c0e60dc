"""A Workload as it is watched, trimmed to what the reconcile decides by."""

from dataclasses import dataclass

from hulk_operator import names
from hulk_operator.cluster import Object
from hulk_operator.kueue.admission import Admission, admission


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """One Workload. `conditions` are as the API server has them: who writes one writes all of them.

    `job`: the name of the one that owns it. `digest`: of the pod sets that it was made of. `executed_s`: how long it
    was admitted before. `num_asked`: workers of its pod set; of them `reclaimed` need no quota any more.
    """

    namespace: str
    name: str
    uid: str
    version: str
    job: str
    digest: str
    queue: str
    priority_class: tuple[str, str] | None
    is_active: bool
    max_execution_s: int | None
    conditions: tuple[Object, ...]
    executed_s: int
    num_asked: int
    reclaimed: int
    admission: Admission | None

    def condition(self, kind: str) -> Object | None:
        """The condition of that type, None when it was never set."""
        return next((one for one in self.conditions if one["type"] == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether the condition is True."""
        found = self.condition(kind)
        return found is not None and found["status"] == "True"

    @property
    def num_workers(self) -> int:
        """Workers that quota is held for."""
        most = self.num_asked - self.reclaimed
        return most if self.admission is None else min(self.admission.num_workers, most)

    @property
    def is_reserved(self) -> bool:
        """Whether quota is held for it."""
        return self.holds("QuotaReserved")

    @property
    def is_evicted(self) -> bool:
        """Whether it is to give its quota back, or has given it back since it ran last."""
        return self.holds("Evicted")

    @property
    def may_run(self) -> bool:
        """Whether its pods may be there."""
        return self.holds("Admitted") and not self.is_evicted and not self.holds("Finished") and self.is_active


def workload_state(body: Object) -> WorkloadState:
    """What is read of a Workload. ValueError where it is not one of Hulk's."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    if owner is None or owner["kind"] != names.JOB_KIND:
        raise ValueError("a Workload that no HulkJob controls")
    known = spec.get("priorityClassRef")
    return WorkloadState(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        job=owner["name"],
        digest=(metadata.get("annotations") or {}).get(names.ANNOTATION_POD_SETS_DIGEST, ""),
        queue=spec.get("queueName") or "",
        priority_class=(known["kind"], known["name"]) if known else None,
        is_active=spec.get("active", True),
        max_execution_s=spec.get("maximumExecutionTimeSeconds"),
        conditions=tuple(status.get("conditions") or ()),
        executed_s=status.get("accumulatedPastExecutionTimeSeconds") or 0,
        num_asked=spec["podSets"][0]["count"],
        reclaimed=sum(one["count"] for one in status.get("reclaimablePods") or ()),
        admission=admission(spec, status),
    )
