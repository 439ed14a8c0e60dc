"""A solution -> answers for the reconciles: plans that hold together, refusals with their reason."""

import logging
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from hulk_placement import wire
from hulk_placement.basis import bases_of
from hulk_placement.files.basis import pack_bases
from hulk_placement.plan import Plan
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

from hulk_operator import names, version
from hulk_operator.api import HulkJob, PredictionSummary
from hulk_operator.cluster import Object
from hulk_operator.inputs import topology as inputs
from hulk_operator.inputs.topology import Room
from hulk_operator.inputs.unknown_model import as_measured, without_guesses
from hulk_operator.planning.nearest_stores import nearest_stores
from hulk_operator.planning.process import Search
from hulk_operator.planning.reservations import Held, new_claims
from hulk_operator.pods import free_run, is_on_host, network_interface
from hulk_operator.reconcile.plan_summary import Source, plan_summary, prediction_summary
from hulk_operator.reconcile.types import FullPlan, Planned, Share, Unplanned

HOST_PORTS: Final = f"{names.FIRST_HOST_PORT} to {names.LAST_HOST_PORT}"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compatible:
    """Plans that fit together into the room, and what they leave of it."""

    plans: Mapping[str, Plan]
    room: Room


def compatible(
    jobs: Mapping[str, HulkJob], plans: Iterable[Plan], room: Room, kept: Mapping[str, Mapping[str, int]]
) -> Compatible:
    """Take plans as long as the nodes hold them, beside the pods that stay for them (`kept`, by job and node).

    The planner counts accelerators for all jobs together, but cpu and memory for each alone: a plan that loses to
    another one of the same pass is made again in the next.
    """
    fitting: dict[str, Plan] = {}
    for plan in plans:
        rest = inputs.without(room, new_claims(Held(jobs[plan.key], plan), kept[plan.key], room.asked))
        if rest is not None:
            fitting[plan.key], room = plan, rest
    return Compatible(fitting, room)


def packed_bases(plans: Mapping[str, Plan], workloads: Mapping[str, Workload], topology: Topology) -> dict[str, bytes]:
    """What each plan of a pass is reviewed by, where its model is known: of others no plan is known to be better."""
    made_of = bases_of(plans, workloads, topology)
    return pack_bases({key: basis for key, basis in made_of.items() if workloads[key].model.is_counted})


async def planned(
    search: Search,
    job: HulkJob,
    plan: Plan,
    workload: Workload,
    topology: Topology,
    now: datetime,
    basis: bytes | None = None,
    share: Share | None = None,
    taken_ports: Collection[range] = (),
) -> Planned | Unplanned:
    """The answer for a job that has a plan, made of `basis`. One that is not calibrated gets its prediction later.

    `taken_ports`: of their nodes' own, by the pods of other jobs.
    """
    is_hosted = is_on_host(job)
    host_ports = free_run(job, plan, taken_ports) if is_hosted else None
    if is_hosted and host_ports is None:
        message = f"Its pods use their nodes' network, and other jobs have all ports of Hulk's ({HOST_PORTS})."
        return Unplanned(job.metadata.generation, "NoHostPorts", message)
    plan, prediction = await _promised(search, without_guesses(plan, workload), workload, topology, now)
    interface = network_interface(job)
    meta = wire.Meta.of(workload, operator_version=version(), steps=job.spec.training.num_steps, interface=interface)
    meta = replace(meta, nearest_stores=nearest_stores(job.spec.checkpoint, plan, topology))
    full = FullPlan(plan, wire.encode(plan, meta), wire.document(plan, meta)["digest"], meta.steps, basis)
    summary = plan_summary(job, plan, full.digest, topology, workload.model, host_ports, workload.sync.rounds)
    return Planned(job.metadata.generation, full, summary, prediction, share, workload.model.notes)


async def _promised(
    search: Search, plan: Plan, workload: Workload, topology: Topology, now: datetime
) -> tuple[Plan, PredictionSummary | None]:
    """The plan and what is promised of it: nothing before a preflight, or where nothing of the model was measured.

    What first steps of the template measured is told at once: a script without Hulk's runtime has no preflight.
    """
    is_awaited = workload.model.is_counted and not plan.prediction.calibrated
    if is_awaited or not workload.model.is_timed:
        return plan, None
    foreseen = await search.foresee(*as_measured(plan, workload), topology)
    source: Source = "profile"
    if not workload.model.is_counted:
        plan, source = replace(plan, prediction=foreseen.prediction), "template"
    return plan, prediction_summary(foreseen.prediction, plan, source, now, foreseen.transfer_s)


def read_full_plan(written: Object, digest: str) -> FullPlan | None:
    """The plan of that digest in a ConfigMap.

    None when it is not there: another version of the operator wrote it in another form, or somebody else something.
    """
    try:
        blob = b64decode((written.get("binaryData") or {}).get(names.PLAN_KEY, ""))
        plan, meta = wire.decode(blob, digest)
        basis = b64decode(packed) if (packed := (written.get("binaryData") or {}).get(names.PLAN_BASIS_KEY)) else None
    except ValueError as error:
        logger.warning("%s", error)
        return None
    return FullPlan(plan, blob, digest, meta.steps, basis)
