"""Who holds what: plans that are decided or in force, and which of their workers no pod speaks for yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from hulk_placement.plan import Plan

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.cluster import Object
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.topology import Claim
from hulk_operator.pods import owner_uid


@dataclass(frozen=True, slots=True)
class Held:
    """A plan that holds its machines' resources, with the job it is for."""

    job: HulkJob
    plan: Plan


def claims(held: Held) -> tuple[Claim, ...]:
    """What each worker of a plan takes of its machine, in worker order."""
    workers = held.job.spec.workers
    spec = held.job.spec.template.pod_spec()
    need = inputs.worker_amounts(spec, workers.resource_name, workers.accelerators_per_worker)
    return tuple(Claim(slot.machine, need) for slot in held.plan.workers)


def unmet_claims(held: Iterable[Held], pods: Iterable[Object]) -> tuple[Claim, ...]:
    """The claims of all workers whose pod is not bound yet: a bound pod holds its node's resources itself."""
    bound = {
        (owner_uid(pod), pod["metadata"]["name"])
        for pod in pods
        if pod["spec"].get("nodeName") and names.LABEL_JOB in (pod["metadata"].get("labels") or {})
    }
    return tuple(claim for one in held for worker, claim in enumerate(claims(one)) if _pod(one, worker) not in bound)


def _pod(held: Held, worker: int) -> tuple[str, str]:
    meta = held.job.metadata
    return meta.uid or "", names.pod(meta.name, held.plan.attempt, worker)
