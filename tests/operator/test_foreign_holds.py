"""Scheduling gates and finalizers of other controllers: neither holds up more than it must, and both are said."""

from datetime import timedelta
from typing import Any

import pytest
from fake_cluster import FakeCluster
from hulk_operator.api import HulkJobStatus
from hulk_operator.planning.inventory import Reader
from hulk_operator.pods import WorkerPod, pods, worker_pod
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.types import Memory, View
from hulk_operator.status import condition
from hulk_operator.watched import Snapshot, Store
from views import NODES, NOW, ago, deploying, failure_of, full, gang, job, plan, pod, running, status, view

SWEPT = Memory(swept_to=1)
GATE = "example.com/quota"
FINALIZER = "example.com/export"


def said(found: HulkJobStatus, kind: Any) -> tuple[str, str, str]:
    known = condition(found, kind)
    assert known is not None, kind
    return known.status, known.reason, known.message


def unbound(worker: int, **fields: Any) -> WorkerPod:
    return pod(worker, phase="Pending", node="", **fields)


def gated(found: HulkJobStatus, *gated: int, memory: Memory = SWEPT, **fields: Any) -> View:
    """A gang of which these workers wait behind a gate, the others for a node."""
    pods = tuple(unbound(worker, gates=(GATE,) if worker in gated else ()) for worker in range(3))
    return view(found, memory=memory, pods=pods, full=full(), **fields)


def at(seen: View, seconds: float, found: HulkJobStatus) -> View:
    return View(
        seen.job.model_copy(update={"status": found}),
        found,
        NOW + timedelta(seconds=seconds),
        pods=seen.pods,
        nodes=seen.nodes,
        full=seen.full,
        memory=seen.memory,
    )


def test_time_behind_a_gate_is_no_start_timeout_and_the_gate_is_named() -> None:
    made = decide(gated(deploying(since_s=86_400), 1, 2))
    assert made.view.status.last_failure is None
    assert made.view.status.avoided_nodes == ()
    assert said(made.view.status, "Planned")[0] == "True"
    assert said(made.view.status, "Gated") == (
        "True",
        "SchedulingGates",
        f"2 of 3 pods wait behind scheduling gates: demo-1-1 for gate {GATE}; demo-1-2 for gate {GATE}",
    )


def test_when_the_gates_are_gone_the_start_timeout_begins_also_for_another_operator() -> None:
    waiting = decide(gated(deploying(since_s=86_400), 0, 1, 2)).view.status
    free = gated(waiting)
    begun = decide(free)
    assert said(begun.view.status, "Gated")[:2] == ("False", "GatesRemoved")
    limit_s = job().spec.run_policy.start_timeout_seconds
    restarted = at(gated(begun.view.status, memory=Memory(swept_to=1)), limit_s - 1, begun.view.status)
    assert decide(restarted).view.status.last_failure is None
    late = decide(at(free, limit_s + 1, begun.view.status)).view.status
    assert failure_of(late).reason == "StartTimeout"
    assert late.avoided_nodes == ()  # no scheduler has looked at the pods, so no node is to blame


def test_a_gate_that_comes_back_stops_the_time_again() -> None:
    again = status(
        1, since_s=10_000, Planned=(True, "Planned"), Deployed=(False, "Deploying"), Gated=(False, "GatesRemoved")
    )
    assert decide(gated(again, 2)).view.status.last_failure is None


def test_a_gated_pod_says_nothing_of_its_node() -> None:
    (raw,) = pods(job(), plan(), [0])
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked",
    }
    found = worker_pod(
        {
            **raw,
            "metadata": {**raw["metadata"], "uid": "p"},
            "spec": {**raw["spec"], "schedulingGates": [{"name": GATE}]},
            "status": {"phase": "Pending", "conditions": [refused]},
        }
    )
    assert (found.gates, found.unschedulable) == ((GATE,), "")


def kept(worker: int, seconds_ago: float = 1.0, **fields: Any) -> WorkerPod:
    """A pod that has ended and that a finalizer keeps."""
    given = {"phase": "Failed", "delete_by": ago(seconds_ago), "finalizers": (FINALIZER,), **fields}
    return pod(worker, **given)


def test_suspended_does_not_wait_for_a_finalizer_which_is_named() -> None:
    released = status(1, Planned=(False, "Suspended"), Deployed=(False, "Suspended"))
    one = job(suspend=True)
    made = decide(view(released, job=one, memory=Memory(swept_to=0), pods=(kept(1),))).view.status
    assert said(made, "Suspended") == ("True", "Suspended", "all pods have ended, finalizers hold 1 of them")
    message = f"pod demo-1-1 waits for finalizer {FINALIZER}: its accelerators stay reserved until then"
    assert said(made, "Held") == ("True", "Finalizers", message)
    gone = decide(view(made, job=one, memory=Memory(swept_to=0))).view.status
    assert said(gone, "Held")[:2] == ("False", "Gone")


@pytest.mark.parametrize(
    ("name", "left", "waits"),
    [
        ("still runs", kept(1, -20, phase="Running"), True),
        ("outlived its grace period", kept(1, 31, phase="Running"), False),
        ("never ran", kept(1, -20, phase="Pending", node=""), False),
        ("no finalizer", kept(1, finalizers=()), True),
    ],
)
def test_what_may_end_by_itself_is_waited_for(name: str, left: WorkerPod, waits: bool) -> None:
    released = status(1, Planned=(False, "Suspended"))
    made = decide(view(released, job=job(suspend=True), memory=Memory(swept_to=0), pods=(left,)))
    assert (condition(made.view.status, "Suspended") is None) is waits, name  # type: ignore[arg-type]
    assert (made.requeue_after_s is not None) is (waits and bool(left.finalizers)), f"{name}: no event tells of time"


def test_the_next_attempt_does_not_wait_for_a_finalizer() -> None:
    released = status(1, since_s=100, Planned=(False, "Resized"))
    made = decide(view(released, memory=Memory(swept_to=0), pods=(kept(1),)))
    assert any(step.name == "plan" for step, _ in made.actions)
    assert said(made.view.status, "Held")[0] == "True"


def test_a_job_waits_for_the_names_that_pods_of_a_deleted_one_have() -> None:
    """And says for which finalizer; once its own attempts are past theirs, it does not."""
    left = kept(0, job_uid="older")
    first = decide(view(memory=Memory(swept_to=0), leftovers=(left,)))
    assert first.actions == ()
    assert FINALIZER in said(first.view.status, "Held")[2]
    later = status(1, since_s=100, Planned=(False, "Resized"))
    made = decide(view(later, memory=Memory(swept_to=0), leftovers=(left,)))
    assert any(step.name == "plan" for step, _ in made.actions)


def test_many_pods_are_counted() -> None:
    many = tuple(kept(0, name=f"demo-1-{number}") for number in range(5))
    message = said(decide(view(running(), memory=SWEPT, pods=(*gang(), *many))).view.status, "Held")[2]
    assert message.endswith(
        "demo-1-2 waits for finalizer example.com/export; and 2 more: their accelerators stay reserved until then"
    )


def raw_pod(worker: int, version: int, **metadata: Any) -> dict[str, Any]:
    (made,) = pods(job(), plan(), [worker])
    return {
        **made,
        "metadata": {**made["metadata"], "uid": f"p{worker}", "resourceVersion": str(version), **metadata},
        "spec": {**made["spec"], "nodeName": NODES[worker]},
        "status": {"phase": "Failed"},
    }


async def test_accelerators_stay_reserved_until_the_pod_is_gone() -> None:
    """Also when its job is gone, and although Kubernetes counts them as free."""
    resource = job().spec.workers.resource_name
    nodes = [
        {"metadata": {"name": name, "resourceVersion": "1"}, "status": {"allocatable": {resource: "1", "pods": "10"}}}
        for name in NODES
    ]
    store = Store()
    for node in nodes:
        store.nodes.put(node)

    async def seen() -> Snapshot:
        return store.snapshot()

    async def unheld() -> dict[str, int]:
        return (await Reader(FakeCluster(), seen).inventory((), NOW)).unheld(resource)

    deletion = {"deletionTimestamp": "2026-05-04T12:00:00Z", "deletionGracePeriodSeconds": 0}
    store.pods.put(raw_pod(0, 1, **deletion, finalizers=[FINALIZER]))
    store.pods.put(raw_pod(1, 2))  # ended, and as such no matter
    assert await unheld() == {NODES[0]: 0, NODES[1]: 1, NODES[2]: 1}
    store.pods.delete(raw_pod(0, 3, **deletion))
    assert await unheld() == dict.fromkeys(NODES, 1)
