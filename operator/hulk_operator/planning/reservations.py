"""Who holds what: plans that are decided or in force, and which of their workers no pod speaks for yet.

The pods that stay of an attempt that is over hold their nodes' resources themselves, for every job but their own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hulk_placement.plan import Plan

from hulk_operator.api import HulkJob
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.devices import with_claims
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.inputs.topology import Claim
from hulk_operator.pods import WorkerPod
from hulk_operator.reconcile.retained_pods import taken_over, usable
from hulk_operator.watched import NodeState


@dataclass(frozen=True, slots=True)
class Held:
    """A plan that holds its machines' resources, with the job it is for."""

    job: HulkJob
    plan: Plan


Asked = Mapping[str, Amounts]
"""What a pod's claim of each template takes (see `Room`)."""


def claims(held: Held, asked: Asked) -> tuple[Claim, ...]:
    """What each worker of a plan takes of its machine, in worker order."""
    workers = held.job.spec.workers
    spec = with_claims(held.job.spec.template.pod_spec(), held.job.namespace, asked)
    need = inputs.worker_amounts(spec, workers.resource_name, workers.accelerators_per_worker)
    return tuple(Claim(slot.machine, need) for slot in held.plan.workers)


def new_claims(held: Held, kept: Mapping[str, int], asked: Asked) -> tuple[Claim, ...]:
    """The claims of the workers that get a new pod: on each machine all but those that stay there (`kept`)."""
    left = Counter(kept)
    new = []
    for claim in claims(held, asked):
        left[claim.node] -= 1
        if left[claim.node] < 0:
            new.append(claim)
    return tuple(new)


def unmet_claims(
    held: Iterable[Held], pods: Sequence[WorkerPod], nodes: Mapping[str, NodeState], now: datetime, asked: Asked
) -> dict[str, list[Claim]]:
    """By job, the claims of its workers that have no bound pod, and take over none: a bound pod holds its own."""
    bound: dict[str, list[WorkerPod]] = defaultdict(list)  # by the uid of their job
    for pod in pods:
        if pod.node:
            bound[pod.job_uid].append(pod)
    return {one.job.key: _unmet(one, bound.get(one.job.metadata.uid or "", []), nodes, now, asked) for one in held}


def _unmet(
    held: Held, mine: Sequence[WorkerPod], nodes: Mapping[str, NodeState], now: datetime, asked: Asked
) -> list[Claim]:
    met = {pod.worker for pod in mine if pod.attempt == held.plan.attempt}
    met |= taken_over(held.plan, mine, usable(held.job, mine, nodes, now)).keys()
    return [claim for worker, claim in enumerate(claims(held, asked)) if worker not in met]
