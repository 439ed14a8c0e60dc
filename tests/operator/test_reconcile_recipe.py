"""The recipe: what a whole pass decides, for every step, from a view."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hulk_operator.api import (
    CheckpointStatus,
    ConditionType,
    HulkJob,
    HulkJobStatus,
    Observed,
    PredictionSummary,
    RegionShare,
    RoundsSummary,
    Startup,
)
from hulk_operator.cluster import CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES, Forbidden, QuotaExceeded
from hulk_operator.observation import Observation, ObservedAllReduce, ObservedRegionLink, ObservedStage, Preflight
from hulk_operator.pods import Reason, metrics_readers
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.reconcile.liveness import Hearing
from hulk_operator.reconcile.recipe import RECIPE, Decision, decide, writes
from hulk_operator.reconcile.spec_digest import spec_digest
from hulk_operator.reconcile.steps.start_failures import refused
from hulk_operator.reconcile.types import (
    Calibrate,
    Create,
    DeleteJob,
    KeepSpeeds,
    Memory,
    NodeState,
    Poll,
    RecordSpeeds,
    Remember,
    RequestPlan,
    Sighting,
    Start,
    Sweep,
    Timing,
    Unplanned,
    View,
)
from hulk_operator.status import condition, finished, holds, phase, transitions, with_condition
from hulk_placement.plan import Layout, Plan
from views import (
    CALIBRATION,
    NODES,
    NOW,
    PREDICTION,
    ago,
    decision,
    deploying,
    failed,
    full,
    gang,
    job,
    pod,
    running,
    status,
    view,
)

SWEPT = Memory(swept_to=1)


def actions(made: Decision, kind: type) -> list[object]:
    return [action for _, action in made.actions if isinstance(action, kind)]


def why(found: HulkJobStatus, kind: str) -> tuple[str, str]:
    known = condition(found, ConditionType(kind))
    assert known is not None
    return known.status, known.reason


def test_a_foreign_job_is_not_touched() -> None:
    made = decide(view(job=job(managedBy="kueue.x-k8s.io/multikueue")))
    assert made.actions == ()
    assert made.view.status == HulkJobStatus()


def test_a_deleted_job_is_left_to_its_owner_references() -> None:
    one = job()
    gone = one.model_copy(update={"metadata": one.metadata.model_copy(update={"deletion_timestamp": NOW})})
    assert decide(view(deploying(), job=gone, pods=gang())).actions == ()


def test_a_new_job_asks_for_a_plan_and_writes_nothing_else() -> None:
    made = decide(view())
    assert [action for _, action in made.actions] == [RequestPlan()]
    assert made.view.status == HulkJobStatus()


def test_the_checkpoint_of_a_suspended_jobs_last_moment_is_written_down() -> None:
    saving = job(suspend=True, checkpoint={"storage": {"url": "s3://b/x"}, "everySteps": 10})
    over = status(2, Planned=(False, "Suspended"), Suspended=(True, "Suspended"))
    before = over.model_copy(update={"checkpoint": CheckpointStatus(step=30, where="s3://b/x", bytes=1)})
    told = decide(view(before, job=saving, farewell=Farewell(2, 34, "1.5", 5))).view.status
    assert told.checkpoint == CheckpointStatus(step=34, where="s3://b/x", bytes=5)
    assert told.observed == Observed(step=34, loss="1.5", updated_at=NOW)
    assert decide(view(told, job=saving, farewell=Farewell(2, 34, "1.5", 5))).view.status is told
    moved = decide(view(before, job=saving, farewell=Farewell(2, 34, "1.5", 5, where="s3://eu/u"))).view.status
    assert moved.checkpoint == CheckpointStatus(step=34, where="s3://eu/u", bytes=5)
    assert decide(view(before, job=saving, farewell=Farewell(1, 20, "1.5", 5))).view.status is before
    silent = decide(view(before, job=saving, farewell=Farewell(2, 34, "", 0))).view.status
    assert silent.observed is not None
    assert silent.observed.step == 34
    unsaved = decide(view(before, job=job(suspend=True), farewell=Farewell(2, 34, "1.5", 0))).view.status
    assert unsaved.checkpoint == before.checkpoint


def test_the_last_poll_does_not_take_back_the_last_step_and_checkpoint() -> None:
    saving = job(checkpoint={"storage": {"url": "s3://b/x"}, "everySteps": 10})
    seen = Observation(attempt=1, step=9, step_s=1.0, loss=3.0, checkpoint_step=5, checkpoint_bytes=1)
    polled, said = Sighting(1, NOW, seen), Farewell(1, 10, "2.8791", 5)
    done = tuple(pod(worker, phase="Succeeded") for worker in range(3))
    found = decide(
        view(running(), job=saving, pods=done, memory=Memory(swept_to=1, sighting=polled), farewell=said)
    ).view.status
    assert holds(found, ConditionType.SUCCEEDED)
    assert found.observed is not None
    assert (found.observed.step, found.observed.loss) == (10, "2.8791")
    assert found.observed.step_microseconds == 1_000_000
    assert found.checkpoint is not None
    assert found.checkpoint.step == 10


def test_a_refused_job_says_why_and_waits() -> None:
    made = decide(view(decision=Unplanned(3, "NotEnoughAccelerators", "Needs 3, has 2.")))
    assert why(made.view.status, "Planned") == ("False", "NotEnoughAccelerators")
    assert actions(made, RequestPlan)
    assert made.requeue_after_s is None


@pytest.mark.parametrize("answer", [decision(attempt=2), decision(generation=2), Unplanned(2, "NoRoom", "")])
def test_an_answer_for_another_attempt_or_generation_is_asked_again(answer: object) -> None:
    made = decide(view(decision=answer))
    assert [action for _, action in made.actions] == [RequestPlan()]
    assert made.view.status == HulkJobStatus()


def test_a_plan_is_committed_before_anything_is_created() -> None:
    made = decide(view(decision=decision()))
    assert not actions(made, Create)
    assert made.view.status.attempt == 1
    assert made.view.status.plan == decision().summary
    assert made.view.status.start_time == NOW
    assert why(made.view.status, "Planned") == ("True", "Planned")
    assert made.requeue_after_s == 0


def test_a_committed_plan_is_created_pods_last() -> None:
    made = decide(view(deploying(), full=full(), memory=SWEPT))
    created = [action for _, action in made.actions if isinstance(action, Create)]
    assert [action.resource for action in created] == [CONFIG_MAPS, SERVICES, NETWORK_POLICIES, PODS]
    assert [body["metadata"]["name"] for body in created[-1].bodies] == ["demo-1-0", "demo-1-1", "demo-1-2"]


def test_a_job_without_a_network_policy_gets_none() -> None:
    made = decide(view(deploying(), job=job(networkPolicy={"enabled": False}), full=full(), memory=SWEPT))
    created = [action for _, action in made.actions if isinstance(action, Create)]
    assert [action.resource for action in created] == [CONFIG_MAPS, SERVICES, PODS]


def test_the_network_policy_lets_in_whom_the_operator_was_told() -> None:
    readers = metrics_readers("system", ("monitoring",))
    made = decide(view(deploying(), full=full(), memory=SWEPT, metrics_readers=readers))
    (policy,) = (action.bodies[0] for _, action in made.actions if getattr(action, "resource", 0) is NETWORK_POLICIES)
    assert policy["spec"]["ingress"][1]["from"] == list(readers)


def test_only_missing_pods_are_created() -> None:
    made = decide(view(deploying(), full=full(), memory=SWEPT, pods=(pod(0), pod(2))))
    created = [action for _, action in made.actions if isinstance(action, Create)]
    assert [body["metadata"]["name"] for body in created[-1].bodies] == ["demo-1-1"]


def test_a_plan_that_was_never_written_is_made_again_under_the_next_number() -> None:
    made = decide(view(deploying(), memory=SWEPT))
    assert why(made.view.status, "Planned") == ("False", "PlanLost")
    again = decide(view(made.view.status, decision=decision(2), memory=Memory(swept_to=0, unstable=1)))
    assert again.view.status.attempt == 2
    assert again.view.status.restarts == 1


def test_a_gang_is_up_when_every_worker_runs() -> None:
    partly = (*gang()[:2], pod(2, phase="Pending"))
    assert not holds(decide(view(deploying(), full=full(), memory=SWEPT, pods=partly)).view.status, "Deployed")
    made = decide(view(deploying(), full=full(), memory=SWEPT, pods=gang()))
    assert holds(made.view.status, "Deployed")
    assert holds(made.view.status, "Running")
    assert phase(made.view.status) == "Running"


def test_a_job_succeeds_when_every_worker_ended_well() -> None:
    made = decide(view(running(), memory=SWEPT, pods=gang(phase="Succeeded")))
    assert holds(made.view.status, "Succeeded")
    assert not holds(made.view.status, "Running")
    assert made.view.status.completion_time == NOW
    kept = decide(view(made.view.status, memory=SWEPT, pods=gang(phase="Succeeded")))
    assert kept.actions == ()  # the pods stay for their logs


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        ({"storage": {"url": "s3://b/x"}, "everySteps": 10}, "the next one resumes from the checkpoint"),
        (None, "the next one begins at step 1, without spec.checkpoint"),
    ],
)
def test_an_attempt_that_made_fewer_steps_than_are_asked_for_is_followed_by_another(
    checkpoint: dict[str, object] | None, words: str
) -> None:
    raised = job(training={"globalBatch": 6, "steps": 60}, checkpoint=checkpoint)
    done = gang(phase="Succeeded")
    goes_on = decide(view(running(), job=raised, full=full(num_steps=30), memory=SWEPT, pods=gang()))
    assert holds(goes_on.view.status, "Planned")  # until its own last step
    found = decide(view(running(), job=raised, full=full(num_steps=30), memory=SWEPT, pods=done)).view.status
    assert not finished(found)
    assert why(found, "Planned") == ("False", "Extended")
    assert (found.failures, found.disruptions, found.last_failure) == (0, 0, None)
    (told,) = transitions(running(), found)
    assert (told.type, told.reason) == ("Normal", "Extended")
    assert told.message == f"attempt 1 ended with step 30, spec.training.steps asks for 60: {words}"
    again = decide(view(found, job=raised, memory=Memory(swept_to=0), decision=decision(2))).view.status
    assert (again.attempt, again.restarts) == (2, 1)
    enough = decide(
        view(running(2), job=raised, full=full(2, num_steps=60), memory=SWEPT, pods=gang(2, phase="Succeeded"))
    )
    assert holds(enough.view.status, "Succeeded")


@pytest.mark.parametrize(
    ("name", "pods", "settled", "failures"),
    [
        ("everyone ended", (failed(0, 1), failed(1, 69), failed(2, 69)), True, 1),
        ("peers still run, for now", (failed(0, 1), pod(1), pod(2)), False, 0),
        ("peers hang", (failed(0, 1, seconds_ago=61), pod(1), pod(2)), True, 1),
        ("peers never started", (failed(0, 1), pod(1, phase="Pending"), pod(2, phase="Pending")), True, 1),
    ],
)
def test_a_crash_counts_when_the_gang_has_settled(
    name: str, pods: tuple[object, ...], settled: bool, failures: int
) -> None:
    made = decide(view(running(), memory=SWEPT, pods=pods))
    assert made.view.status.failures == failures, name
    assert holds(made.view.status, "Planned") is not settled


def test_the_cause_is_the_first_that_did_not_only_lose_a_peer() -> None:
    pods = (failed(0, 69, 5), failed(1, 3, 4, "CUDA error"), failed(2, 1, 2))
    last = decide(view(running(), memory=SWEPT, pods=pods)).view.status.last_failure
    assert last is not None
    assert (last.pod, last.node, last.exit_code, last.message) == ("demo-1-1", "node-1", 3, "CUDA error")


def test_a_configuration_that_cannot_be_is_never_retried() -> None:
    message = "ConfigurationError: globalBatch 3 on 4 ranks"
    made = decide(view(running(), memory=SWEPT, pods=(failed(0, 65, message=message), pod(1), pod(2))))
    assert why(made.view.status, "Failed") == ("True", "UserError")
    assert made.view.status.last_failure is not None
    assert made.view.status.last_failure.exit_code == 65


def test_an_image_that_does_not_read_the_plan_waits_for_another_one() -> None:
    message = "PlanError: the plan has wire version 2, this runtime reads 1"
    made_of = {"made_of": spec_digest(view(running()).job)}
    runs = running().model_copy(update={"plan": running().plan.model_copy(update=made_of)})
    found = decide(view(runs, memory=SWEPT, pods=(failed(0, 64, message=message), pod(1), pod(2)))).view.status
    assert why(found, "Planned") == ("False", "WireVersionMismatch")
    assert (finished(found), found.failures, found.disruptions) == (False, 0, 0)
    assert found.last_failure is not None
    assert (found.last_failure.exit_code, found.last_failure.message) == (64, message)
    later = view(found, memory=SWEPT)
    assert not any(isinstance(action, RequestPlan) for _, action in decide(later).actions)
    assert decide(later).requeue_after_s is None

    body = later.job.wire()
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "hulk:new"
    changed = replace(later, job=HulkJob.model_validate(body))
    assert any(isinstance(action, RequestPlan) for _, action in decide(changed).actions)

    suspended = with_condition(found, ConditionType.SUSPENDED, True, "Suspended", "", NOW, 1)
    resumed = with_condition(suspended, ConditionType.SUSPENDED, False, "Resumed", "", NOW, 1)
    assert any(isinstance(action, RequestPlan) for _, action in decide(view(resumed, memory=SWEPT)).actions)


@pytest.mark.parametrize("code", [64, 65])
def test_a_plain_scripts_exit_codes_are_its_own(code: int) -> None:
    made = decide(view(running(), memory=SWEPT, pods=tuple(failed(worker, code) for worker in range(3))))
    assert not finished(made.view.status)
    assert why(made.view.status, "Planned") == ("False", "AttemptFailed")


def trained() -> HulkJobStatus:
    """A gang that is up and has made a step."""
    return running().model_copy(update={"startup": Startup(attempt=1, seconds=60)})


@pytest.mark.parametrize("codes", [(143, 143, 143), (75, 75, 75), (69, 143, 69), (69, 69, 75)])
def test_workers_that_were_stopped_are_a_disruption(codes: tuple[int, ...]) -> None:
    pods = tuple(failed(worker, code) for worker, code in enumerate(codes))
    found = decide(view(trained(), memory=SWEPT, pods=pods)).view.status
    assert (found.failures, found.disruptions) == (0, 1)
    assert why(found, "Planned") == ("False", "Stopped")
    assert found.last_failure is not None
    assert found.last_failure.exit_code in {143, 75}


HEALTHY = {node: NodeState() for node in NODES}


@pytest.mark.parametrize(
    ("name", "changes", "failures"),
    [
        ("nobody knows by whom", {}, 1),
        ("a poll told a step", {"memory": Memory(swept_to=1, hearing=Hearing(1, NOW, step=3))}, 0),
        ("a step of the attempt before", {"memory": Memory(swept_to=1, hearing=Hearing(0, NOW, step=3))}, 1),
        ("it told a step as its last words", {"farewell": Farewell(1, 3, "", 0)}, 0),
        ("its node is cordoned", {"nodes": HEALTHY | {"node-1": NodeState(cordoned=True)}}, 0),
        ("its node is not ready", {"nodes": HEALTHY | {"node-1": NodeState("False", ago(1))}}, 0),
    ],
)
def test_workers_that_something_stops_before_every_first_step_count(
    name: str, changes: dict[str, Any], failures: int
) -> None:
    pods = tuple(failed(worker, 143) for worker in range(3))
    found = decide(view(running(), **{"memory": SWEPT, "pods": pods, **changes})).view.status
    assert (found.failures, found.disruptions) == (failures, 1 - failures), name
    assert found.last_failure is not None
    assert (found.last_failure.reason, found.last_failure.exit_code) == ("Stopped", 143)
    said = condition(found, ConditionType.PLANNED)
    assert said is not None
    assert ("SIGTERM may come from a livenessProbe" in said.message) == bool(failures)


@pytest.mark.parametrize("codes", [(143, 1, 143), (69, 69, 69), (75, 137, 69)])
def test_workers_that_broke_are_a_failure_whoever_else_was_stopped(codes: tuple[int, ...]) -> None:
    pods = tuple(failed(worker, code) for worker, code in enumerate(codes))
    found = decide(view(running(), memory=SWEPT, pods=pods)).view.status
    assert (found.failures, found.disruptions) == (1, 0)


def test_a_gang_that_is_stopped_again_and_again_backs_off_also_under_another_operator() -> None:
    found, waits_s = trained(), []
    for _ in range(8):
        stopped = decide(view(found, memory=Memory(swept_to=1), pods=tuple(failed(worker, 143) for worker in range(3))))
        assert not finished(stopped.view.status)
        waits_s.append(decide(view(stopped.view.status, memory=Memory(swept_to=0))).requeue_after_s)
        found = trained().model_copy(update={"disruptions": stopped.view.status.disruptions})
    assert waits_s == [10, 20, 40, 80, 160, 320, 360, 360]


def test_more_failures_than_the_limit_end_the_job() -> None:
    before = running().model_copy(update={"failures": 3})
    made = decide(view(before, memory=SWEPT, pods=(failed(0, 1), failed(1, 69), failed(2, 69))))
    assert why(made.view.status, "Failed") == ("True", "BackoffLimitExceeded")
    assert finished(made.view.status)
    after = decide(view(made.view.status, memory=SWEPT, pods=gang()))
    assert [action for _, action in after.actions] == [Sweep(0)]


LOST = {**{node: NodeState() for node in NODES}, "node-1": NodeState("Unknown", ago(1))}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("node silent", {"nodes": LOST, "pods": gang()}, "NodeLost"),
        ("node deleted", {"nodes": {"node-0": NodeState(), "node-2": NodeState()}, "pods": gang()}, "NodeLost"),
        (
            "node not ready for long",
            {"nodes": {**LOST, "node-1": NodeState("False", ago(31))}, "pods": gang()},
            "NodeLost",
        ),
        ("peers broke first", {"nodes": LOST, "pods": (failed(0, 1), pod(1), failed(2, 69))}, "NodeLost"),
        ("evicted", {"pods": (pod(0), failed(1, 137, disruption=Reason("Evicted", "disk")), pod(2))}, "Evicted"),
        ("deleted", {"pods": (pod(0), pod(1, delete_by=NOW), pod(2))}, "PodDeleted"),
        ("vanished", {"pods": (pod(0), pod(2))}, "PodDeleted"),
    ],
)
def test_a_disruption_does_not_count_as_a_failure(name: str, changes: dict[str, object], reason: str) -> None:
    made = decide(view(running(), memory=SWEPT, **changes))
    assert (made.view.status.disruptions, made.view.status.failures) == (1, 0), name
    assert why(made.view.status, "Planned") == ("False", "Disrupted")
    assert made.view.status.last_failure is not None
    assert made.view.status.last_failure.reason == reason


UNBOUND = {"phase": "Pending", "node": "", "unschedulable": "0/3 nodes are available"}
TAINT = {"key": "mine", "value": "yes", "effect": "NoSchedule"}
TOLERATING = {"tolerations": [{"key": "mine", "operator": "Exists"}], "containers": [{"name": "w", "image": "i"}]}


@pytest.mark.parametrize(
    ("name", "state", "reason", "words"),
    [
        ("deleted", None, "NodeLost", "node node-1 was deleted"),
        ("silent", NodeState("Unknown", ago(1)), "NodeLost", "node node-1 does not answer"),
        ("cordoned", NodeState(cordoned=True), "NodeUnschedulable", "does not admit worker 1: it is cordoned"),
        ("tainted", NodeState(taints=(TAINT,)), "NodeUnschedulable", "it has the taint mine=yes:NoSchedule"),
    ],
)
def test_a_pod_whose_planned_node_no_longer_takes_it_is_a_disruption(
    name: str, state: NodeState | None, reason: str, words: str
) -> None:
    nodes = {node: known for node in NODES if (known := state if node == "node-1" else NodeState())}
    found = decide(
        view(deploying(), nodes=nodes, full=full(), memory=SWEPT, pods=(pod(0), pod(1, **UNBOUND), pod(2)))
    ).view.status
    assert why(found, "Planned") == ("False", "Disrupted"), name
    assert (found.disruptions, found.failures, found.avoided_nodes) == (1, 0, ())
    last = found.last_failure or pytest.fail("no failure")
    assert last.reason == reason
    assert words in last.message


@pytest.mark.parametrize(
    ("name", "state", "fields", "template"),
    [
        ("it is only full", NodeState(), UNBOUND, {}),
        ("tolerated", NodeState(taints=(TAINT,)), UNBOUND, {"template": {"spec": TOLERATING}}),
        ("a soft taint", NodeState(taints=({**TAINT, "effect": "PreferNoSchedule"},)), UNBOUND, {}),
        ("kube-scheduler has yet to try", NodeState(cordoned=True), {**UNBOUND, "unschedulable": ""}, {}),
        ("bound already", NodeState(cordoned=True, taints=(TAINT,)), {}, {}),
    ],
)
def test_a_pod_that_its_node_may_still_take_is_waited_for(
    name: str, state: NodeState, fields: dict[str, Any], template: dict[str, Any]
) -> None:
    nodes = {**{node: NodeState() for node in NODES}, "node-1": state}
    starting = (pod(0, phase="Pending"), pod(1, **fields), pod(2))
    made = decide(view(deploying(), job=job(**template), nodes=nodes, full=full(), memory=SWEPT, pods=starting))
    assert holds(made.view.status, "Planned"), name


def test_a_node_that_is_briefly_not_ready_is_borne() -> None:
    nodes = {**LOST, "node-1": NodeState("False", ago(5))}
    assert holds(decide(view(running(), nodes=nodes, memory=SWEPT, pods=gang(), full=full())).view.status, "Planned")


def test_pods_of_an_attempt_that_is_over_are_swept_and_waited_for() -> None:
    over = status(1, Planned=(False, "Disrupted"))
    made = decide(view(over, pods=gang(), memory=SWEPT))
    assert [action for _, action in made.actions] == [Sweep(0)]
    assert made.requeue_after_s == 30
    ending = gang(delete_by=NOW + timedelta(seconds=10))
    waiting = decide(view(over, pods=ending, memory=Memory(swept_to=0)))
    assert waiting.actions == ()
    assert waiting.requeue_after_s == 40


def test_a_pod_on_a_dead_node_is_not_waited_for() -> None:
    over = status(1, Planned=(False, "Disrupted"))
    ending = (pod(1, delete_by=NOW + timedelta(seconds=10)),)
    made = decide(view(over, pods=ending, nodes=LOST, memory=Memory(swept_to=0)))
    assert [action for _, action in made.actions] == [RequestPlan()]


def test_a_predecessors_pods_are_waited_for() -> None:
    made = decide(view(leftovers=(pod(0, job_uid="older", delete_by=NOW),)))
    assert made.actions == ()
    assert made.requeue_after_s == 30


@pytest.mark.parametrize(
    ("reason", "failures", "unstable", "waits"),
    [
        ("AttemptFailed", 1, 0, True),
        ("AttemptFailed", 2, 0, True),
        ("StartFailed", 0, 1, True),
        ("Disrupted", 0, 0, False),
        ("Disrupted", 0, 1, True),
        ("Suspended", 0, 0, False),
    ],
)
def test_back_off(reason: str, failures: int, unstable: int, waits: bool) -> None:
    over = status(1, since_s=2, Planned=(False, reason)).model_copy(update={"failures": failures})
    made = decide(view(over, memory=Memory(swept_to=0, unstable=unstable)))
    if waits:
        assert made.actions == ()
        assert made.requeue_after_s == 10 * 2 ** (max(failures, unstable) - 1) - 2
    else:
        assert [action for _, action in made.actions] == [RequestPlan()]


@pytest.mark.parametrize(
    ("reason", "words", "avoided"),
    [
        ("ErrImageNeverPull", "image is not present", ["node-1"]),
        ("CreateContainerConfigError", 'secret "s3" not found', []),
    ],
)
def test_a_gang_with_a_container_that_cannot_start_is_released(reason: str, words: str, avoided: list[str]) -> None:
    stuck = (pod(0), pod(1, phase="Pending", waiting=Reason(reason, words)), pod(2))
    made = decide(view(deploying(), full=full(), memory=SWEPT, pods=stuck))
    assert why(made.view.status, "Deployed") == ("False", reason)
    assert words in (condition(made.view.status, ConditionType.DEPLOYED) or pytest.fail("no condition")).message
    assert (made.view.status.failures, made.view.status.disruptions) == (0 if avoided else 1, 0)
    assert [node.name for node in made.view.status.avoided_nodes] == avoided  # on the others it runs
    everywhere = gang(phase="Pending", waiting=Reason(reason, words))
    assert decide(view(deploying(), full=full(), memory=SWEPT, pods=everywhere)).view.status.avoided_nodes == ()


def test_a_gang_that_is_not_up_in_time_is_released_and_its_nodes_avoided() -> None:
    late = (pod(0), pod(1, phase="Pending", node="", unschedulable="0/3 nodes are available"), pod(2))
    made = decide(view(deploying(since_s=300), full=full(), memory=SWEPT, pods=late))
    assert why(made.view.status, "Deployed") == ("False", "StartTimeout")
    assert [node.name for node in made.view.status.avoided_nodes] == ["node-1"]
    assert "0/3 nodes are available" in (made.view.status.last_failure or pytest.fail("no failure")).message
    assert "2 of 3" in made.view.status.last_failure.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (QuotaExceeded(403, "Forbidden", "exceeded quota: team"), "QuotaExceeded"),
        (Forbidden(403, "Forbidden", 'violates PodSecurity "restricted:latest"'), "PodSecurity"),
        (Forbidden(403, "Forbidden", 'serviceaccount "x" not found'), "Forbidden"),
    ],
)
def test_a_refused_pod_releases_the_gang_with_the_servers_words(error: Forbidden, reason: str) -> None:
    outcome = refused(view(deploying(), full=full(), memory=SWEPT), [error])
    assert outcome.status is not None
    assert why(outcome.status, "Deployed") == ("False", reason)
    assert why(outcome.status, "Planned") == ("False", "StartFailed")
    assert error.message in (condition(outcome.status, ConditionType.DEPLOYED) or pytest.fail("none")).message


def test_suspend_releases_and_resume_plans_again() -> None:
    suspended = job(suspend=True)
    made = decide(view(running(), job=suspended, memory=SWEPT, pods=gang()))
    assert why(made.view.status, "Planned") == ("False", "Suspended")
    ending = decide(view(made.view.status, job=suspended, memory=SWEPT, pods=gang()))
    assert [action for _, action in ending.actions] == [Sweep(0)]
    assert not holds(ending.view.status, "Suspended")
    gone = decide(view(made.view.status, job=suspended, memory=Memory(swept_to=0)))
    assert holds(gone.view.status, "Suspended")
    resumed = decide(view(gone.view.status, memory=Memory(swept_to=0)))
    assert why(resumed.view.status, "Suspended") == ("False", "Resumed")
    assert resumed.view.status.start_time is None
    assert actions(resumed, RequestPlan)


def test_the_deadline_counts_from_the_first_plan() -> None:
    limited = job(runPolicy={"activeDeadlineSeconds": 60})
    assert decide(view(running(since_s=50), job=limited, memory=SWEPT, pods=gang())).requeue_after_s is not None
    made = decide(view(running(since_s=60), job=limited, memory=SWEPT, pods=gang()))
    assert why(made.view.status, "Failed") == ("True", "DeadlineExceeded")


def test_ttl_deletes_the_finished_job() -> None:
    done = status(1, Planned=(True, "Planned"), Succeeded=(True, "Succeeded")).model_copy(
        update={"completion_time": ago(30)}
    )
    kept = job(runPolicy={"ttlSecondsAfterFinished": 31})
    assert decide(view(done, job=kept, memory=SWEPT)).requeue_after_s == 1
    over = job(runPolicy={"ttlSecondsAfterFinished": 30})
    assert [action for _, action in decide(view(done, job=over, memory=SWEPT)).actions] == [DeleteJob("u1")]


def preflight_view(memory: Memory, found: HulkJobStatus | None = None) -> View:
    return view(
        found or running(since_s=10), full=full(calibrated=False), memory=replace(memory, swept_to=1), pods=gang()
    )


def test_a_job_ends_with_the_last_thing_that_rank_0_said() -> None:
    memory = replace(SWEPT, sighting=Sighting(1, ago(1), Observation(attempt=1, step=10, step_s=0.5)))
    for pods in (gang(phase="Succeeded"), (failed(0, 1), failed(1, 69), failed(2, 69))):
        seen = decide(view(running(), memory=memory, pods=pods)).view.status.observed
        assert seen is not None
        assert seen.step == 10


def test_a_worker_that_ended_well_may_be_deleted() -> None:
    first = decide(view(running(), memory=SWEPT, pods=(*gang()[:2], pod(2, phase="Succeeded")), full=full()))
    ended = next(action.fields["ended"] for _, action in first.actions if isinstance(action, Remember))
    assert ended == {(1, 2)}
    memory = replace(SWEPT, ended=ended)
    goes_on = decide(view(running(), memory=memory, pods=gang()[:2], full=full()))
    assert (goes_on.view.status.disruptions, holds(goes_on.view.status, "Planned")) == (0, True)
    leaving = decide(view(running(), memory=memory, pods=(*gang()[:2], pod(2, phase="Succeeded", delete_by=NOW))))
    assert leaving.view.status.disruptions == 0
    over = decide(view(running(), memory=memory, pods=gang(phase="Succeeded")[:2]))
    assert holds(over.view.status, "Succeeded")
    other = decide(view(running(), memory=replace(SWEPT, ended=frozenset({(2, 2)})), pods=gang()[:2]))
    assert other.view.status.disruptions == 1


def test_a_node_that_is_not_ready_degrades_the_job_until_it_is() -> None:
    nodes = {**LOST, "node-1": NodeState("False", ago(5))}
    made = decide(view(running(), nodes=nodes, memory=SWEPT, pods=gang(), full=full()))
    assert why(made.view.status, "Degraded") == ("True", "NodeNotReady")
    again = decide(view(made.view.status, memory=SWEPT, pods=gang(), full=full()))
    assert why(again.view.status, "Degraded") == ("False", "Recovered")
    lost = decide(view(made.view.status, nodes=LOST, memory=SWEPT, pods=gang(), full=full()))
    assert why(lost.view.status, "Degraded") == ("False", "Recovered")
    assert not holds(decide(view(running(), memory=SWEPT, pods=gang(), full=full())).view.status, "Degraded")


def test_a_kubelet_that_is_full_after_all_is_a_disruption() -> None:
    refused_pod = pod(1, phase="Failed", disruption=Reason("OutOfResource", "OutOfnvidia.com/gpu"))
    made = decide(view(deploying(), full=full(), memory=SWEPT, pods=(pod(0), refused_pod, pod(2))))
    assert (made.view.status.last_failure or pytest.fail("none")).reason == "OutOfResource"
    assert made.view.status.disruptions == 1


def test_the_preflight_is_asked_for_turned_into_a_prediction_written_and_then_answered() -> None:
    asked = decide(preflight_view(Memory()))
    assert actions(asked, Poll) == [Poll("10.0.0.1:9400", 1, preflight=True)]
    seen = Preflight(1, (0.5, 0.5, 0.5))
    turned = decide(preflight_view(Memory(sighting=Sighting(1, NOW, preflight=seen))))
    assert actions(turned, Calibrate) == [Calibrate(seen)]
    asked_again = decide(preflight_view(Memory(calibration=CALIBRATION, sighting=Sighting(1, ago(6), preflight=seen))))
    assert actions(asked_again, Poll)
    assert asked_again.view.status.prediction is None
    written = decide(preflight_view(Memory(calibration=CALIBRATION, sighting=Sighting(1, ago(1), preflight=seen))))
    assert written.view.status.prediction == PREDICTION
    assert actions(written, RecordSpeeds) == [RecordSpeeds(CALIBRATION)]
    assert not actions(written, Start)  # the prediction is in the API server first
    begun = decide(preflight_view(Memory(calibration=CALIBRATION), written.view.status))
    assert actions(begun, Start) == [Start("10.0.0.1:9400", 1)]
    told = decide(preflight_view(Memory(calibration=CALIBRATION, started=1), written.view.status))
    assert not actions(told, Start)


def test_no_prediction_is_written_once_the_job_trains() -> None:
    seen = Sighting(1, NOW, observation=Observation(step=1), preflight=Preflight(1, (0.5, 0.5, 0.5)))
    for memory in (Memory(sighting=seen), Memory(sighting=seen, calibration=CALIBRATION)):
        made = decide(preflight_view(memory))
        assert made.view.status.prediction is None
        assert not actions(made, Calibrate)


def test_an_old_preflight_is_asked_for_again() -> None:
    made = decide(preflight_view(Memory(sighting=Sighting(1, ago(900), preflight=Preflight(1, (0.5, 0.5, 0.5))))))
    assert actions(made, Poll) == [Poll("10.0.0.1:9400", 1, preflight=True)]
    assert not actions(made, Calibrate)


def test_a_script_without_preflight_gets_the_assumed_prediction() -> None:
    made = decide(preflight_view(Memory(sighting=Sighting(1, NOW, error="refused")), running(since_s=300)))
    assert made.view.status.prediction is not None
    assert made.view.status.prediction.source == "assumed"


FIRST = [
    Observation(attempt=1, step=step, compute_s={0: s, 1: 0.5, 2: 0.1}) for step, s in ((3, 0.2), (5, 0.9), (9, 0.3))
]


def first_steps(
    seen: Observation, calibrated: bool = True, prediction: object = None, stages: Plan | None = None, **memory: object
) -> Decision:
    found = running().model_copy(update={"prediction": prediction})
    known = replace(SWEPT, sighting=Sighting(1, NOW, seen), **memory)  # type: ignore[arg-type]
    whole = full(calibrated=calibrated)
    return decide(view(found, full=replace(whole, plan=stages or whole.plan), memory=known, pods=gang()))


@pytest.mark.parametrize("source", [None, "profile", "assumed"])
def test_where_no_preflight_measured_the_first_steps_do(source: str | None) -> None:
    prediction = PREDICTION.model_copy(update={"source": source}) if source else None
    made = [
        first_steps(seen, source == "profile", prediction, first_steps=tuple(FIRST[:n])) for n, seen in enumerate(FIRST)
    ]
    remembered = [action.fields["first_steps"] for one in made for action in actions(one, Remember)]
    assert remembered == [tuple(FIRST[:1]), tuple(FIRST[:2])]
    kept = [actions(one, KeepSpeeds) for one in made]
    assert kept == [[], [], [KeepSpeeds(Preflight(1, (0.3, 0.5, 0.1), slowest_s=0.5))]]


@pytest.mark.parametrize(
    ("name", "seen", "prediction", "memory"),
    [
        ("it warms up", replace(FIRST[0], step=2), None, {}),
        ("a step that was looked at", FIRST[0], None, {"first_steps": (FIRST[0],)}),
        ("a rank says nothing", replace(FIRST[0], compute_s={0: 0.2, 1: 0.5}), None, {}),
        ("a region was left out", replace(FIRST[0], epoch=1), None, {}),
        ("another attempt", replace(FIRST[0], attempt=2), None, {}),
        ("it is done", FIRST[0], None, {"kept": 1}),
        ("a preflight measured", FIRST[0], PREDICTION, {}),
    ],
)
def test_steps_that_measure_nothing(
    name: str, seen: Observation, prediction: PredictionSummary | None, memory: dict[str, object]
) -> None:
    made = first_steps(seen, prediction=prediction, **memory)
    assert not [action for action in actions(made, Remember) if "first_steps" in action.fields], name
    assert not actions(made, KeepSpeeds), name


def test_first_steps_of_an_earlier_attempt_do_not_count() -> None:
    earlier = tuple(replace(seen, attempt=7) for seen in FIRST[:2])
    made = first_steps(FIRST[2], first_steps=earlier)
    assert [action.fields["first_steps"] for action in actions(made, Remember)] == [(FIRST[2],)]


def test_progress_is_written_down_with_its_error() -> None:
    before = running().model_copy(update={"prediction": PREDICTION})
    saved = {"checkpoint_step": 2, "checkpoint_bytes": 9, "checkpoint_where": "s3://eu/u", "checkpoint_refused": 3}
    seen = Observation(attempt=1, step=4, step_s=0.0004, loss=2.5, compute_s={0: 0.0003, 1: 0.00035}, **saved)
    checkpointed = job(checkpoint={"storage": {"url": "s3://bucket/x"}})
    made = decide(
        view(
            before,
            job=checkpointed,
            full=full(),
            memory=replace(SWEPT, started=1, sighting=Sighting(1, ago(1), seen)),
            pods=gang(),
        )
    )
    observed = made.view.status.observed
    assert observed is not None
    assert (observed.step, observed.step_microseconds, observed.compute_microseconds) == (4, 400, 350)
    assert (observed.loss, observed.relative_error, observed.wan) == ("2.5", "0.2500", None)
    assert observed.refused_checkpoints == 3
    assert made.view.status.checkpoint == CheckpointStatus(step=2, where="s3://eu/u", bytes=9)


@pytest.mark.parametrize(("step", "error"), [(200, None), (210, None), (211, "0.2500")])
def test_no_step_of_the_warm_up_is_compared_with_the_prediction(step: int, error: str | None) -> None:
    """The prediction is of the steps after it; what is observed is the median of 20."""
    before = running()
    assert before.plan is not None
    rounds = RoundsSummary(inner_steps=50, fragments=1, delay_steps=0, compression="none", warmup_steps=200)
    plan = before.plan.model_copy(update={"rounds": rounds})
    status = before.model_copy(update={"prediction": PREDICTION, "plan": plan})
    sighting = Sighting(1, ago(1), Observation(attempt=1, step=step, step_s=0.0004))
    made = decide(view(status, full=full(), memory=replace(SWEPT, started=1, sighting=sighting), pods=gang()))
    assert made.view.status.observed is not None
    assert (made.view.status.observed.step, made.view.status.observed.relative_error) == (step, error)
    assert [poll.after_s for poll in actions(made, Poll)] == [Timing().poll_s - 1]


def test_what_all_reduces_and_links_do_is_written_down_as_far_as_it_can_be() -> None:
    """Regions that the plan does not have are not believed; the status keeps what is used most, or furthest off."""
    regions = tuple(RegionShare(name=f"r{number}", workers=1, accelerators=1) for number in range(6))
    before = running()
    assert before.plan is not None
    before = before.model_copy(update={"plan": before.plan.model_copy(update={"regions": regions})})
    sizes = tuple(ObservedAllReduce(size, size, 0.5, 0.4, None) for size in range(1, 11))
    links = [
        ObservedRegionLink(f"r{a}", f"r{b}", 1e6, 0.5e6 if a == 5 else 0.97e6)
        for a, b in itertools.permutations(range(6), 2)
    ]
    unknown = ObservedRegionLink("r0", "elsewhere", 1e6, 1.0)
    seen = Observation(attempt=1, step=4, all_reduces=sizes, region_links=(*links, unknown))
    made = decide(view(before, full=full(), memory=replace(SWEPT, sighting=Sighting(1, ago(1), seen)), pods=gang()))
    observed = made.view.status.observed
    assert observed is not None
    assert observed.wan is not None
    assert [size.max_bytes for size in observed.wan.all_reduces] == [7, 8, 9, 10]
    first = observed.wan.all_reduces[0]
    assert (first.observed_microseconds, first.predicted_microseconds) == (500_000, 400_000)
    assert first.bound_microseconds is None
    pairs = [(link.source, link.target) for link in observed.wan.region_links]
    assert len(pairs) == 6
    assert pairs == sorted(pairs)
    assert {("r5", f"r{number}") for number in range(5)} <= set(pairs)
    assert observed.wan.region_links[-1].observed_bytes_per_second == 500_000


def test_the_stage_that_computes_longest_tells_what_pipelines_wait() -> None:
    stages = (
        ObservedStage(0, 0.3, 0.0, 0.5, 0.0),
        ObservedStage(1, 0.4, 0.1, 0.2, 0.05),
        ObservedStage(2, 0.1, 0, 0, 0),
    )
    seen = Observation(attempt=1, step=4, stages=stages)
    made = decide(view(running(), full=full(), memory=replace(SWEPT, sighting=Sighting(1, ago(1), seen)), pods=gang()))
    observed = made.view.status.observed
    assert observed is not None
    assert observed.pipeline is not None
    found = observed.pipeline
    assert (found.stage, found.bubble_microseconds, found.transfer_microseconds) == (1, 300_000, 100_000)


def test_the_first_steps_of_stages_tell_of_all_ranks() -> None:
    """Three stages of one replica: three ranks and one share."""
    stages = replace(full().plan, shares=(6,), layout=Layout(1, 3), stages=(0, 1, 2))
    made = first_steps(FIRST[2], stages=stages, first_steps=tuple(FIRST[:2]))
    assert actions(made, KeepSpeeds) == [KeepSpeeds(Preflight(1, (0.3, 0.5, 0.1), slowest_s=0.5))]


def test_an_observation_of_another_attempt_is_not_taken_over() -> None:
    seen = Observation(attempt=2, step=4)
    made = decide(view(running(), full=full(), memory=replace(SWEPT, sighting=Sighting(1, NOW, seen)), pods=gang()))
    assert made.view.status.observed is None


def test_a_running_job_whose_plan_cannot_be_read_goes_on() -> None:
    made = decide(view(running(), memory=SWEPT, pods=gang()))
    assert holds(made.view.status, "Planned")
    assert actions(made, Poll)


def test_a_job_without_attempts_left_fails() -> None:
    last = status(99_999, Planned=(False, "Disrupted"))
    made = decide(view(last, memory=Memory(swept_to=0)))
    assert why(made.view.status, "Failed") == ("True", "TooManyAttempts")


def test_every_step_has_its_own_name_and_writes_are_enumerable() -> None:
    step_names = [step.name for step in RECIPE]
    assert len(step_names) == len(set(step_names))
    assert len(writes()) == len(set(writes()))
    assert all(step.decide.__doc__ for step in RECIPE)


def test_a_failed_pod_without_an_exit_is_not_waited_with() -> None:
    untold = pod(0, phase="Failed")
    assert decide(view(running(), memory=SWEPT, pods=(untold, pod(1), pod(2)))).view.status.failures == 1
