"""What stays when an attempt is over: pods that run Hulk's launcher, as far as the next plan has a worker for them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api import AvoidedNode, ConditionType, HulkJobStatus, Startup
from hulk_operator.cluster import CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES
from hulk_operator.pods import Reason, stays
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.retained_pods import taken_over
from hulk_operator.reconcile.types import (
    Create,
    FullPlan,
    MakeSecret,
    Memory,
    NodeState,
    Relabel,
    RequestPlan,
    Sweep,
    View,
    Write,
)
from hulk_operator.status import condition, holds
from hulk_placement.plan import Layout, WorkerSlot
from views import LAUNCHED, NODES, NOW, ago, decision, deploying, failed, full, gang, job, plan, pod, running, status
from views import view as any_view

SPARE = "node-3"
HEALTHY = {node: NodeState() for node in (*NODES, SPARE)}


def view(found: HulkJobStatus, **fields: Any) -> View:
    """A view of a job whose pods run the launcher."""
    spec = fields.pop("spec", {})
    return any_view(found, **{"job": job(**LAUNCHED, **spec), "nodes": HEALTHY, **fields})


def actions(made: Decision, kind: type) -> list[Any]:
    return [action for _, action in made.actions if isinstance(action, kind)]


def replanned(*machines: str, attempt: int = 2) -> FullPlan:
    """The plan of a later attempt, on these machines."""
    known = plan(attempt)
    slots = tuple(WorkerSlot(machine, "eu", 1) for machine in machines)
    changed = replace(known, workers=slots, shares=(2,) * len(slots), layout=Layout(len(slots)))
    return FullPlan(changed, b"blob", f"digest-{attempt}", 10)


def in_force(attempt: int, num_workers: int) -> HulkJobStatus:
    found = deploying(attempt)
    assert found.plan is not None
    return found.model_copy(update={"plan": found.plan.model_copy(update={"num_workers": num_workers})})


@pytest.mark.parametrize(
    ("command", "stay"),
    [
        (["/opt/hulk/bin/hulk-launch", "-m", "module"], True),
        (["hulk-launch"], True),
        (["/opt/hulk/bin/python", "-m", "hulk_runtime.examples.gpt"], False),
        (["sh", "-c", "hulk-launch train.py"], False),
        ([], False),
        (None, False),
        ("hulk-launch", False),
    ],
)
def test_pods_stay_that_run_the_launcher(command: object, stay: bool) -> None:
    container = {"name": "w", "image": "i", **({} if command is None else {"command": command})}
    assert stays(job(template={"spec": {"containers": [container]}})) is stay


TRAINED = running().model_copy(update={"startup": Startup(attempt=1, seconds=60)})
LOST = {**HEALTHY, "node-1": NodeState("Unknown", ago(1))}


@pytest.mark.parametrize(
    ("name", "before", "changes", "reason"),
    [
        ("node lost", running(), {"nodes": LOST, "pods": gang()}, "Disrupted"),
        ("pod deleted", running(), {"pods": (pod(0), pod(2))}, "Disrupted"),
        ("worker failed", running(), {"pods": (pod(0), failed(1, 1, 6), pod(2))}, "AttemptFailed"),
        ("worker stopped", TRAINED, {"pods": (pod(0), failed(1, 143, 6), pod(2))}, "Stopped"),
        ("shrunk", running(), {"pods": gang(), "spec": {"workers": {"min": 1, "max": 2}}}, "Resized"),
    ],
)
def test_a_released_attempts_other_pods_wait_for_the_next_plan(
    name: str, before: HulkJobStatus, changes: dict[str, Any], reason: str
) -> None:
    memory = Memory(swept_to=1)
    released = decide(view(before, memory=memory, **changes)).view.status
    planned = condition(released, ConditionType.PLANNED)
    assert planned is not None
    assert (planned.status, planned.reason) == ("False", reason), name
    later = NOW.replace(minute=NOW.minute + 1)  # after the back-off
    made = decide(replace(view(released, memory=memory, **changes), now=later))
    assert [action for _, action in made.actions] == [RequestPlan()], name


@pytest.mark.parametrize(
    ("name", "reason", "changes"),
    [
        ("no plan was found", "NotEnoughAccelerators", {}),
        ("it could not start", "StartFailed", {}),
        ("suspended", "Disrupted", {"spec": {"suspend": True}}),
        ("no pod is left that could", "Disrupted", {"pods": (failed(0, 69), failed(1, 1))}),
        ("another program", "Disrupted", {"job": job()}),
    ],
)
def test_otherwise_all_pods_go(name: str, reason: str, changes: dict[str, Any]) -> None:
    over = status(1, Planned=(False, reason))
    made = decide(view(over, memory=Memory(swept_to=1), **{"pods": gang(), **changes}))
    assert actions(made, Sweep) == [Sweep(0)], name


def test_a_job_that_failed_for_good_or_is_out_of_time_keeps_none() -> None:
    limit = {"runPolicy": {"backoffLimit": 0}}
    broken = (failed(0, 1, 6), pod(1), pod(2))
    made = decide(view(running(), memory=Memory(swept_to=1), pods=broken, spec=limit))
    assert holds(made.view.status, "Failed")
    assert actions(decide(view(made.view.status, memory=Memory(swept_to=1), pods=broken, spec=limit)), Sweep)
    late = {"runPolicy": {"activeDeadlineSeconds": 5}}
    over = decide(view(status(1, Planned=(False, "Resized")), pods=gang(), spec=late)).view.status
    assert holds(over, "Failed")


def test_a_pod_that_is_being_deleted_is_waited_for_and_the_others_are_not() -> None:
    over = status(1, Planned=(False, "Disrupted"))
    made = decide(view(over, pods=(pod(0), pod(1, delete_by=NOW), failed(2, 1)), memory=Memory(swept_to=1)))
    assert made.actions == ()
    assert made.requeue_after_s == 30


@pytest.mark.parametrize(
    ("name", "seconds", "changes", "waits"),
    [
        ("the eviction has said so, and not yet deleted", 1, {}, True),
        ("it was given up", 31, {}, False),
        ("the pod has ended by itself", 1, {"phase": "Failed"}, False),
    ],
)
def test_a_pod_that_will_be_deleted_is_waited_for(
    name: str, seconds: int, changes: dict[str, Any], waits: bool
) -> None:
    """Its room counts as taken until it is gone: planned before that, a job without a spare node would get no plan."""
    evicted = pod(1, disruption=Reason("EvictionByEvictionAPI", "Eviction API: evicting"), **changes)
    known: dict[str, Any] = {"pods": (pod(0), evicted, pod(2)), "memory": Memory(swept_to=1)}
    released = decide(view(running(), **known)).view.status
    made = decide(replace(view(released, **known), now=NOW + timedelta(seconds=seconds)))
    assert [action for _, action in made.actions] == ([] if waits else [RequestPlan()]), name


def test_the_next_plan_takes_over_what_it_can_and_makes_only_what_lacks() -> None:
    memory, pods = Memory(swept_to=1), (pod(0), failed(1, 1), pod(2))
    known = {"pods": pods, "memory": memory, "full": replanned("node-2", SPARE, "node-0")}
    made = decide(view(in_force(2, 3), **known))
    assert [type(action) for _, action in made.actions] == [Create, Create, Create, MakeSecret, Write, Relabel, Create]
    creates = actions(made, Create)
    assert [action.resource for action in creates] == [CONFIG_MAPS, SERVICES, NETWORK_POLICIES, PODS]
    assert [body["metadata"]["name"] for body in creates[-1].bodies] == ["demo-2-1"]
    assert actions(made, Relabel)[0].labels == {
        "demo-1-2": names.worker_labels("demo", 2, 0),
        "demo-1-0": names.worker_labels("demo", 2, 2),
    }
    (written,) = actions(made, Write)
    assert written.body["metadata"]["name"] == "demo-gang"


def test_labels_are_followed_by_a_pass_because_no_event_may_follow_them() -> None:
    memory = Memory(swept_to=1)
    assert decide(view(in_force(2, 3), pods=gang(), memory=memory, full=replanned(*NODES))).requeue_after_s == 0
    assert decide(view(in_force(2, 3), pods=(), memory=memory, full=replanned(*NODES))).requeue_after_s != 0


def test_what_the_plan_has_no_worker_for_is_swept_after_that() -> None:
    known = {"memory": Memory(swept_to=1), "full": replanned("node-2", "node-0")}
    shrunk = {"workers": {"min": 2, "max": 2}}
    first = decide(view(in_force(2, 2), pods=gang(), spec=shrunk, **known))
    assert not actions(first, Sweep)
    taken = (replace(pod(2), attempt=2, worker=0), replace(pod(0), attempt=2, worker=1), pod(1))
    made = decide(view(in_force(2, 2), pods=taken, spec=shrunk, **known))
    assert actions(made, Sweep) == [Sweep(2)]
    assert not actions(made, Relabel)
    assert holds(made.view.status, "Deployed")
    deployed = condition(made.view.status, ConditionType.DEPLOYED)
    assert deployed is not None
    assert "all 2 pods are up, 2 of them stayed" in deployed.message


@pytest.mark.parametrize(
    ("name", "changed", "taken"),
    [
        ("all as they were", {}, {0: "demo-1-0", 1: "demo-1-1", 2: "demo-1-2"}),
        ("failed", {"phase": "Failed"}, {0: "demo-1-0", 2: "demo-1-2"}),
        ("being deleted", {"delete_by": NOW}, {0: "demo-1-0", 2: "demo-1-2"}),
        ("preempted", {"disruption": Reason("PreemptionByScheduler", "")}, {0: "demo-1-0", 2: "demo-1-2"}),
        ("not bound", {"node": ""}, {0: "demo-1-0", 2: "demo-1-2"}),
        ("of a job of that name before", {"job_uid": "older"}, {0: "demo-1-0", 2: "demo-1-2"}),
        ("still starting", {"phase": "Pending"}, {0: "demo-1-0", 1: "demo-1-1", 2: "demo-1-2"}),
    ],
)
def test_a_pod_is_taken_over_only_as_long_as_it_lives(name: str, changed: dict[str, Any], taken: object) -> None:
    pods = (pod(0), pod(1, **changed), pod(2))
    made = decide(view(in_force(2, 3), full=replanned(*NODES), pods=pods, memory=Memory(swept_to=1)))
    names_of = {int(labels[names.LABEL_WORKER]): one for one, labels in actions(made, Relabel)[0].labels.items()}
    assert names_of == taken, name


@pytest.mark.parametrize(
    ("name", "nodes", "avoided"),
    [
        ("not ready", {**HEALTHY, "node-1": NodeState("False", ago(1))}, ()),
        ("deleted", {node: NodeState() for node in ("node-0", "node-2")}, ()),
        ("avoided", HEALTHY, (AvoidedNode(name="node-1", until=NOW.replace(year=2030)),)),
    ],
)
def test_a_pod_on_a_bad_node_is_not_taken_over(name: str, nodes: dict[str, NodeState], avoided: Any) -> None:
    before = in_force(2, 3).model_copy(update={"avoided_nodes": avoided})
    made = decide(view(before, full=replanned(*NODES), pods=gang(), nodes=nodes, memory=Memory(swept_to=1)))
    assert sorted(actions(made, Relabel)[0].labels) == ["demo-1-0", "demo-1-2"], name


def test_a_pod_that_was_taken_over_before_a_crash_keeps_its_worker() -> None:
    """Half of the labels were written; a second pod of that node must not become the same worker."""
    slots = ("node-0", "node-0", "node-1")
    pods = (replace(pod(0), attempt=2, worker=1), pod(2, node="node-0"), pod(1))
    taken = taken_over(replanned(*slots).plan, pods, pods)
    assert {worker: one.name for worker, one in taken.items()} == {0: "demo-1-2", 2: "demo-1-1"}


def test_a_plan_that_was_never_written_costs_no_pod() -> None:
    made = decide(view(deploying(2), pods=gang(), memory=Memory(swept_to=1)))
    assert not actions(made, Sweep)
    again = decide(view(made.view.status, pods=gang(), memory=Memory(swept_to=1, unstable=1)))
    assert [action for _, action in again.actions] == [RequestPlan()]


def test_nothing_is_swept_between_the_commit_and_the_labels() -> None:
    over = status(1, Planned=(False, "Disrupted"))
    pods = (pod(0), pod(2))
    made = decide(view(over, pods=pods, decision=decision(2), memory=Memory(swept_to=1)))
    assert made.view.status.attempt == 2
    after = decide(view(made.view.status, pods=pods, full=full(2), memory=Memory(swept_to=1)))
    assert not actions(after, Sweep)
    assert actions(after, Relabel)


@pytest.mark.parametrize(
    ("name", "pods", "failures"),
    [
        ("alone, for now", (failed(0, 1, 1), pod(1), pod(2)), 0),
        ("alone: its peers wait", (failed(0, 1, 6), pod(1), pod(2)), 1),
        ("with others: they are no peers that wait", (failed(0, 1, 6), failed(1, 1, 6), pod(2)), 0),
        ("with others, for long", (failed(0, 1, 61), failed(1, 1, 6), pod(2)), 1),
    ],
)
def test_a_worker_that_fails_alone_is_the_cause(name: str, pods: tuple[Any, ...], failures: int) -> None:
    assert decide(view(running(), memory=Memory(swept_to=1), pods=pods)).view.status.failures == failures, name


@pytest.mark.parametrize(
    ("workers", "resized"),
    [
        ({"min": 1, "max": 2}, True),
        ({"min": 4, "max": 5}, True),
        ({"min": 1, "max": 9}, False),
        ({"min": 3, "max": 3}, False),
    ],
)
@pytest.mark.parametrize("template", [LAUNCHED, {}], ids=["launcher", "other program"])
def test_a_job_of_a_number_that_is_not_asked_for_is_planned_again(
    workers: dict[str, int], resized: bool, template: dict[str, Any]
) -> None:
    batch = {"training": {"globalBatch": 12, "steps": 10}}
    made = decide(
        any_view(running(), job=job(workers=workers, **batch, **template), pods=gang(), memory=Memory(swept_to=1))
    ).view.status
    assert holds(made, "Planned") is not resized
    assert (made.failures, made.disruptions) == (0, 0)
    assert made.last_failure is None


def test_a_gang_is_resized_while_it_starts() -> None:
    """Its bound pods stay as well: they have not begun anything."""
    shrunk = {"workers": {"min": 2, "max": 2}}
    made = decide(view(deploying(), pods=gang(phase="Pending"), full=full(), memory=Memory(swept_to=1), spec=shrunk))
    planned = condition(made.view.status, ConditionType.PLANNED)
    assert planned is not None
    assert planned.reason == "Resized"
