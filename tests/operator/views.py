"""Jobs, pods and views for the tests of the recipe, all at one moment `NOW`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hulk_operator import names
from hulk_operator.api import (
    ConditionType,
    HulkJob,
    HulkJobStatus,
    LastFailure,
    Layout,
    PlanSummary,
    PredictionSummary,
    RegionShare,
)
from hulk_operator.pods import Exit, WorkerPod
from hulk_operator.reconcile.types import Admission, Calibration, FullPlan, Memory, Planned, View
from hulk_operator.reconcile.worker_calls import WorkerCalls
from hulk_operator.status import with_condition
from hulk_operator.watched import NodeState
from hulk_placement.plan import Layout as PlanLayout
from hulk_placement.plan import Plan, Prediction, WorkerSlot

LAUNCHED = {
    "template": {"spec": {"containers": [{"name": "w", "image": "i", "command": ["/opt/hulk/bin/hulk-launch"]}]}}
}
NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
NODES = ("node-0", "node-1", "node-2")
GENERATION = 3

PREDICTION = PredictionSummary(
    attempt=1,
    step_microseconds=500,
    compute_microseconds=400,
    communication_microseconds=100,
    calibrated=True,
    source="preflight",
    written_at=NOW,
)
CALIBRATION = Calibration(1, PREDICTION, "digest", {"node-0": 1e9}, {"node-0": "lab-cpu"})


def ago(seconds: float) -> datetime:
    """That long before NOW."""
    return NOW - timedelta(seconds=seconds)


def job(**spec: Any) -> HulkJob:
    """A job of three workers; `spec` replaces camelCase fields."""
    return HulkJob.model_validate(
        {
            "metadata": {
                "name": "demo",
                "namespace": "lab",
                "uid": "u1",
                "resourceVersion": "7",
                "generation": GENERATION,
            },
            "spec": {
                "workers": {"min": 3, "max": 3},
                "model": {"transformer": {"layers": 1, "hidden": 8, "heads": 1, "sequenceLength": 4, "vocabulary": 16}},
                "training": {"globalBatch": 6, "steps": 10},
                "template": {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0"}]}},
                **spec,
            },
        }
    )


def plan(attempt: int = 1, *, calibrated: bool = True, accelerators: int = 1, nodes: tuple[str, ...] = NODES) -> Plan:
    """One worker on each node."""
    workers = tuple(WorkerSlot(node, "eu", accelerators) for node in nodes)
    num_ranks = len(nodes) * accelerators
    return Plan(
        key="lab/demo",
        attempt=attempt,
        workers=workers,
        shares=(2,) * num_ranks,
        micro_batch=1,
        num_buckets=1,
        prediction=Prediction(0.5, 0.4, 0.1, None, (0.4,) * num_ranks, 1000, calibrated),
        layout=PlanLayout(num_ranks),
        why=("because",),
    )


def full(attempt: int = 1, *, calibrated: bool = True, num_steps: int = 10) -> FullPlan:
    """The full plan of an attempt."""
    return FullPlan(plan(attempt, calibrated=calibrated), b"blob", f"digest-{attempt}", num_steps)


def summary(attempt: int = 1) -> PlanSummary:
    """The plan in the status."""
    return PlanSummary(
        name=names.plan_config_map("demo", attempt),
        digest=f"digest-{attempt}",
        attempt=attempt,
        algorithm="ring",
        num_workers=3,
        num_accelerators=3,
        layout=Layout(data=3),
        regions=(RegionShare(name="eu", workers=3, accelerators=3),),
    )


def decision(attempt: int = 1, generation: int = GENERATION) -> Planned:
    """The planning pass's answer."""
    return Planned(generation, full(attempt), summary(attempt), None)


def status(attempt: int = 0, *, since_s: float = 10.0, **conditions: tuple[bool, str]) -> HulkJobStatus:
    """A status with conditions (`Planned=(True, "Planned")`) that took their value `since_s` ago."""
    found = HulkJobStatus(
        attempt=attempt, plan=summary(attempt) if attempt else None, start_time=ago(since_s) if attempt else None
    )
    for kind, (value, reason) in conditions.items():
        found = with_condition(found, ConditionType(kind), value, reason, "", ago(since_s), GENERATION)
    return found


def deploying(attempt: int = 1, *, since_s: float = 10.0) -> HulkJobStatus:
    """A committed plan whose gang is not up."""
    return status(attempt, since_s=since_s, Planned=(True, "Planned"), Deployed=(False, "Deploying"))


def running(attempt: int = 1, *, since_s: float = 100.0) -> HulkJobStatus:
    """A gang that is up."""
    return status(
        attempt, since_s=since_s, Planned=(True, "Planned"), Deployed=(True, "Deployed"), Running=(True, "Running")
    )


def pod(worker: int, attempt: int = 1, **fields: Any) -> WorkerPod:
    """A running pod on its planned node."""
    known = WorkerPod(
        name=names.pod("demo", attempt, worker),
        uid=f"p{attempt}-{worker}",
        job_uid="u1",
        attempt=attempt,
        worker=worker,
        node=NODES[worker],
        ip=f"10.0.0.{worker + 1}",
        phase="Running",
    )
    return replace(known, **fields)


def failed(worker: int, code: int, seconds_ago: float = 1.0, message: str = "boom", **fields: Any) -> WorkerPod:
    """A pod whose worker ended badly."""
    return pod(worker, phase="Failed", exit=Exit(code, "Error", message, ago(seconds_ago)), **fields)


def gang(attempt: int = 1, **fields: Any) -> tuple[WorkerPod, ...]:
    """All three pods."""
    return tuple(pod(worker, attempt, **fields) for worker in range(3))


def failure_of(found: HulkJobStatus) -> LastFailure:
    """The last failure, which there is."""
    assert found.last_failure is not None
    return found.last_failure


def view(found: HulkJobStatus | None = None, **fields: Any) -> View:
    """A view of `job()` with this status and three healthy nodes, of a job whose pods the API server takes."""
    known = found or HulkJobStatus()
    given = {"job": job(), "nodes": {node: NodeState() for node in NODES}, "memory": Memory(), **fields}
    one = given.pop("job")
    if given["memory"].admission is None:
        given["memory"] = replace(given["memory"], admission=Admission(GENERATION, NOW))
    return View(job=one.model_copy(update={"status": known}), status=known, now=NOW, **given)


async def carry_out(calls: WorkerCalls) -> float | None:
    """What a pass asked of workers, as far as it is due at once; in how many seconds the next of it is due."""
    waits = {name: getattr(asked.call, "after_s", 0.0) for name, asked in calls.asked.items()}
    for name in [name for name, after_s in waits.items() if not after_s]:
        await calls.carry_out(name)
    for name in list(calls.seen):
        await calls.tell(name)
    return min(filter(None, waits.values()), default=None)
