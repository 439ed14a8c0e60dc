"""A running job and the cluster as it is now -> whether another plan pays, by `hulk_placement.replan`, and since when.

Only what a job gains from voluntarily is reviewed here: links that drifted, nodes that were added. A lost node is no
question: the attempt is over, and the next plan does without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from hulk_placement.basis import Basis
from hulk_placement.files.basis import unpack_basis
from hulk_placement.replan.answer import Replanned, Situation
from hulk_placement.replan.changes import Changes, changes
from hulk_placement.replan.decide import Policy
from hulk_placement.restart import Moving, Restart
from hulk_placement.topology import Link, LinkKind, Topology
from hulk_placement.workload import Workload

from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.planning.process import Question
from hulk_operator.reconcile.plan_summary import microseconds
from hulk_operator.reconcile.types import FullPlan, Review
from hulk_operator.status import condition, finished, holds

Change = tuple[str, ...]
"""What tells one change from another: a node's name, a link's ends, or an uplink's region."""


@dataclass(slots=True)
class Ages:
    """Since when each job's changes have been there, without a break; losing it costs time."""

    _since: dict[str, tuple[int, dict[Change, datetime]]] = field(default_factory=dict)

    def held_s(self, key: str, attempt: int, changed: Changes, drift_factor: float, now: datetime) -> float:
        """For how long the youngest of the changes has been there; 0 without any."""
        known_attempt, known = self._since.get(key, (0, {}))
        before = known if known_attempt == attempt else {}
        ids: list[Change] = [(node.name,) for node in changed.added]
        ids += [drift.key for drift in changed.beyond(drift_factor)]
        since = {change: before.get(change, now) for change in ids}
        self._since[key] = attempt, since
        return min(((now - first).total_seconds() for first in since.values()), default=0.0)

    def forget(self, key: str) -> None:
        """There is no such job."""
        self._since.pop(key, None)


def is_reviewed(job: HulkJob, full: FullPlan | None, hold_s: float, now: datetime) -> bool:
    """Whether a job may be moved: it trains, can resume where it was, and has been up for `hold_s`."""
    status = job.status
    trains = holds(status, ConditionType.DEPLOYED) and not finished(status) and status.membership is None
    if not trains or not job.spec.ours or job.spec.suspend or job.spec.checkpoint is None or status.observed is None:
        return False
    deployed = condition(status, ConditionType.DEPLOYED)
    assert deployed is not None
    is_old = (now - deployed.last_transition_time).total_seconds() >= hold_s
    return is_old and full is not None and full.basis is not None and full.plan.attempt == status.attempt


def given_back(topology: Topology, held: Mapping[str, int]) -> Topology:
    """The topology with so many accelerators more free on each machine; less where they are below 0."""
    free = ((m, max(0, m.num_accelerators + held.get(m.name, 0))) for m in topology.machines)
    return replace(topology, machines=tuple(replace(m, num_accelerators=num) for m, num in free))


def as_last_known(topology: Topology, basis: Basis) -> Topology:
    """With the links that the plan was made of, where nothing is known of them any more.

    Figures go with the profile of the node that took them, and come back when another one has measured: no measurement
    says nothing of a link that a job trains over.
    """
    names = {machine.name for machine in topology.machines}
    regions = {pair: link for pair, link in basis.region_links.items() if _is_unknown(topology.region_link(*pair))}
    known = replace(topology, region_links={**topology.region_links, **regions})
    own = {
        pair: link
        for pair, link in basis.machine_links.items()
        if names.issuperset(pair) and _is_unknown(topology.link(*pair))
    }
    return replace(known, node_links={**topology.node_links, **own})


def _is_unknown(link: Link) -> bool:
    return link.kind is LinkKind.UNKNOWN


def question(
    job: HulkJob, full: FullPlan, workload: Workload, topology: Topology, ages: Ages, policy: Policy, now: datetime
) -> Question | None:
    """What to ask of the search; None where nothing changed that moves a job. The topology lacks what the job holds.

    ValueError where what the plan was made of cannot be read.
    """
    assert full.basis is not None
    basis = unpack_basis(full.basis)
    free = as_last_known(given_back(topology, full.plan.accelerators()), basis)
    changed = changes(full.plan, basis, workload, free)
    held_s = ages.held_s(job.key, full.plan.attempt, changed, policy.drift_factor, now)
    if changed.lost or not (changed.added or changed.beyond(policy.drift_factor)):
        return None
    observed, kept = job.status.observed, job.status.checkpoint
    made = observed.step if observed else 0
    moving = Moving(restart_of(job), kept.bytes if kept and kept.bytes else None, is_stored=True)
    situation = Situation(max(0, job.spec.training.num_steps - made), held_s, made)
    return Question(full.plan, basis, replace(workload, kept={}), free, situation, moving, policy)


def restart_of(job: HulkJob) -> Restart:
    """What a restart of this job takes: as long as its last one, where that was seen."""
    seen = job.status.startup
    if seen is None:
        return Restart()
    return Restart(image_s=0.0, start_s=float(seen.seconds), rendezvous_s=0.0, first_step_s=0.0)


def review(job: HulkJob, found: Replanned) -> Review:
    """The answer for the job's reconcile."""
    return Review(
        generation=job.metadata.generation,
        attempt=job.status.attempt,
        verdict=found.verdict.value,
        reason=found.reason,
        step_us=microseconds(found.current.prediction.step_s) if found.current else None,
        new_step_us=microseconds(found.new.prediction.step_s) if found.new else None,
        gain_s=found.weighed.gain if found.weighed else None,
        cost_s=found.cost.seconds if found.cost else None,
    )
