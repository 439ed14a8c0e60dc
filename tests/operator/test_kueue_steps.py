"""A job in one of Kueue's queues, pass by pass: what it waits for, and what it does when its admission changes."""

from dataclasses import replace
from typing import Any

import pytest
from hulk_operator import names
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.cluster import Object
from hulk_operator.kueue import Domain, Placement
from hulk_operator.kueue.admission import PodUpdate
from hulk_operator.planning.fleet_jobs import is_contestant
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.steps.kueue import waits_for_kueue
from hulk_operator.reconcile.types import (
    Create,
    Dequeue,
    Enqueue,
    Memory,
    RequestPlan,
    Sweep,
    TellKueue,
    TryPod,
    Unqueued,
    View,
)
from hulk_operator.status import condition as found_condition
from hulk_operator.status import holds
from hulk_operator.watched import NOT_READ, NodeState, Standing
from test_kueue_workload import ADMITTED, REGION, UP, condition, queued, stored, told
from views import GENERATION, LAUNCHED, NODES, ago, decision, deploying, full, gang, job, running, status, view

PLACEMENT = Placement(3, PodUpdate({}, {}, {}, ()))
EVICTED = condition("Evicted", True, "Preempted")
SWEPT = Memory(swept_to=1)
CLEAN = Memory(swept_to=0)


def standing(
    *conditions: Object, of: HulkJob | None = None, placed: Placement | None = PLACEMENT, **spec: Any
) -> Standing:
    """The Workload of a job with these conditions; `spec` replaces fields of the Workload's."""
    admission = {"admission": ADMITTED} if any(one["type"] == "QuotaReserved" for one in conditions) else {}
    state = stored(of or queued(), {"conditions": list(conditions), **admission}, **spec)
    return Standing("", state, placed if admission else None)


ADMISSION = standing(*UP)


def of_queue(found: Any = None, **fields: Any) -> View:
    return view(found, **{"job": queued(), "kueue": ADMISSION, **fields})


def done(made: Decision) -> list[Any]:
    return [action for _, action in made.actions]


def why(made: Decision | View) -> tuple[str, str, str]:
    """Planned, its reason and message."""
    known = found_condition(made.view.status if isinstance(made, Decision) else made.status, ConditionType.PLANNED)
    assert known is not None
    return known.status, known.reason, known.message


def test_a_job_of_a_queue_is_put_into_it_and_waits() -> None:
    made = decide(of_queue(kueue=Standing()))
    (enqueue,) = done(made)
    assert isinstance(enqueue, Enqueue)
    assert enqueue.known is None
    assert why(made)[:2] == ("False", "QueuedByKueue")
    waiting = decide(of_queue(kueue=standing(condition("QuotaReserved", False, "Pending"), placed=None)))
    assert done(waiting) == []
    assert why(waiting)[:2] == ("False", "QueuedByKueue")
    assert "Pending: words" in why(waiting)[2]
    assert waits_for_kueue(waiting.view)


def test_an_admitted_job_is_planned() -> None:
    made = decide(of_queue())
    assert done(made) == [RequestPlan()]
    assert not waits_for_kueue(made.view)


@pytest.mark.parametrize(
    ("name", "lack", "reason"),
    [("at the start", NOT_READ, None), ("no Kueue", "the cluster does not serve it", "KueueUnavailable")],
)
def test_a_job_waits_where_nothing_is_known_of_kueue(name: str, lack: str, reason: str | None) -> None:
    made = decide(of_queue(kueue=Standing(lack)))
    assert done(made) == [], name
    known = found_condition(made.view.status, ConditionType.PLANNED)
    assert (known.reason if known else None) == reason
    goes_on = decide(of_queue(running(), kueue=Standing(lack), memory=SWEPT, pods=gang(), full=full()))
    assert holds(goes_on.view.status, ConditionType.PLANNED)


def test_a_template_that_is_refused_takes_no_place_in_a_queue() -> None:
    asked = decide(replace(of_queue(kueue=Standing()), memory=Memory()))
    assert [type(action) for action in done(asked)] == [TryPod]


def test_what_the_api_server_refuses_is_said_and_tried_again_after_a_while() -> None:
    refused = Unqueued(GENERATION, ago(4), "PriorityClassNotFound", "no class urgent")
    made = decide(of_queue(kueue=Standing(), memory=replace(CLEAN, unqueued=refused)))
    assert (done(made), made.requeue_after_s) == ([], 6)
    assert why(made) == ("False", "PriorityClassNotFound", "no class urgent")
    later = replace(CLEAN, unqueued=replace(refused, time=ago(10)))
    again = decide(of_queue(kueue=Standing(), memory=later))
    assert [type(action) for action in done(again)] == [Enqueue]
    assert why(again) == why(made)  # until that is known to be over
    assert done(decide(of_queue(memory=later))) == [RequestPlan()]  # what is admitted goes on


@pytest.mark.parametrize(
    ("name", "kueue", "reason"),
    [
        ("preempted", standing(*UP, EVICTED), "EvictedByKueue"),
        ("deactivated", standing(*UP, active=False), "DeactivatedByKueue"),
        ("its Workload was deleted", Standing(), "EvictedByKueue"),
        ("not admitted", standing(condition("QuotaReserved", True)), "EvictedByKueue"),
        ("asks for something else", standing(*UP, of=queued(workers={"min": 2, "max": 3})), "EvictedByKueue"),
        ("asks for another queue", standing(*UP, queueName="other"), "EvictedByKueue"),
    ],
)
def test_a_gang_gives_way_and_its_pods_save_and_end(name: str, kueue: Standing, reason: str) -> None:
    made = decide(of_queue(running(), kueue=kueue, memory=SWEPT, pods=gang(), full=full()))
    assert why(made)[:2] == ("False", reason), name
    assert (made.view.status.failures, made.view.status.disruptions) == (0, 0)
    assert made.view.status.start_time is None  # it is not active while it waits
    assert not holds(made.view.status, ConditionType.DEPLOYED)
    ending = decide(of_queue(made.view.status, kueue=kueue, memory=SWEPT, pods=gang()))
    assert done(ending) == [Sweep(0)]  # the quota is kept until they are gone


def test_quota_is_given_back_when_the_pods_are_gone() -> None:
    over = status(1, Planned=(False, "EvictedByKueue"))
    (tell,) = done(decide(of_queue(over, kueue=standing(*UP, EVICTED), memory=CLEAN)))
    assert isinstance(tell, TellKueue)
    assert tell.change["status"]["admission"] is None
    assert told(tell.change, "Requeued") == ("True", "Preempted")
    given_back = standing(condition("QuotaReserved", False, "Pending"), EVICTED, placed=None)
    made = decide(of_queue(over, kueue=given_back, memory=CLEAN))
    assert done(made) == []
    assert why(made)[1] == "QueuedByKueue"


def test_pods_that_wait_for_the_next_attempt_end_as_well() -> None:
    """A worker crashed, the others stay for the next attempt: the admission ends before there is one."""
    one, kueue = queued(**LAUNCHED), standing(*UP, EVICTED, of=queued(**LAUNCHED))
    between = status(1, Planned=(False, "AttemptFailed"))
    made = decide(of_queue(between, job=one, kueue=kueue, memory=SWEPT, pods=gang()))
    assert done(made) == []
    assert why(made)[1] == "EvictedByKueue"
    assert done(decide(of_queue(made.view.status, job=one, kueue=kueue, memory=SWEPT, pods=gang()))) == [Sweep(0)]


def test_kueue_is_told_when_the_gang_is_up_and_when_the_job_is_over() -> None:
    up = decide(of_queue(running(), memory=SWEPT, pods=gang(), full=full()))
    (tell,) = (action for action in done(up) if isinstance(action, TellKueue))
    assert told(tell.change, "PodsReady") == ("True", "Started")
    starting = decide(of_queue(deploying(), memory=SWEPT, pods=gang(), full=full()))
    assert not any(isinstance(action, TellKueue) for action in done(starting))
    over = status(1, Planned=(True, "Planned"), Succeeded=(True, "Succeeded"))
    (tell,) = done(decide(of_queue(over, memory=SWEPT)))
    assert told(tell.change, "Finished") == ("True", "Succeeded")
    failed = status(1, Planned=(False, "AttemptFailed"), Failed=(True, "BackoffLimitExceeded"))
    (tell,) = done(decide(of_queue(failed, memory=CLEAN)))
    assert told(tell.change, "Finished") == ("True", "Failed")


def test_a_job_that_its_user_suspends_is_in_no_queue() -> None:
    suspended = queued(suspend=True)
    made = decide(of_queue(running(), job=suspended, memory=SWEPT, pods=gang(), full=full()))
    assert why(made)[1] == "Suspended"
    ending = decide(of_queue(made.view.status, job=suspended, memory=SWEPT, pods=gang()))
    assert done(ending) == [Sweep(0)]
    gone = decide(of_queue(made.view.status, job=suspended, memory=CLEAN))
    assert [type(action) for action in done(gone)] == [Dequeue]
    assert done(decide(of_queue(gone.view.status, job=suspended, memory=CLEAN, kueue=Standing()))) == []


def test_a_job_that_is_suspended_while_it_waits_says_that_it_does_not_wait() -> None:
    waiting = status(1, Planned=(False, "QueuedByKueue"))
    made = decide(of_queue(waiting, job=queued(suspend=True), memory=CLEAN, kueue=Standing()))
    assert why(made)[1] == "Suspended"


def test_a_job_that_leaves_its_queue_goes_on_without() -> None:
    made = decide(of_queue(running(), job=job(), memory=SWEPT, pods=gang(), full=full()))
    assert type(done(made)[0]) is Dequeue
    assert holds(made.view.status, ConditionType.PLANNED)


def test_a_job_that_changes_while_it_waits_keeps_its_place() -> None:
    waiting = condition("QuotaReserved", False, "Pending")
    changed = queued(workers={"min": 2, "max": 3})
    (patch,) = done(decide(of_queue(job=changed, kueue=standing(waiting, placed=None))))
    assert isinstance(patch, Enqueue)
    assert patch.known is not None
    assert patch.body["spec"]["podSets"][0]["minCount"] == 2
    over = status(1, Planned=(False, "EvictedByKueue"))
    (again,) = done(decide(of_queue(over, job=changed, memory=CLEAN)))  # what is admitted cannot change
    assert isinstance(again, Dequeue)


def test_another_priority_is_told_at_any_time() -> None:
    idle, urgent = (queued({names.LABEL_WORKLOAD_PRIORITY: name}) for name in ("idle", "urgent"))
    kueue = standing(*UP, of=idle)
    made = decide(of_queue(running(), job=urgent, kueue=kueue, memory=SWEPT, pods=gang(), full=full()))
    (patch,) = (action for action in done(made) if isinstance(action, Enqueue))
    assert patch.body["spec"]["priorityClassRef"]["name"] == "urgent"
    assert holds(made.view.status, ConditionType.PLANNED)


def test_a_gang_moves_where_kueue_moves_it() -> None:
    nodes = {node: NodeState(labels={"host": node}) for node in NODES}
    here = tuple(Domain({"host": node}, 1) for node in NODES)
    moved = (*here[:2], Domain({"host": "node-9"}, 1))
    for domains, stays in ((here, True), (moved, False)):
        kueue = standing(*UP, placed=replace(PLACEMENT, domains=domains))
        made = decide(of_queue(running(), kueue=kueue, nodes=nodes, memory=SWEPT, pods=gang(), full=full()))
        assert holds(made.view.status, ConditionType.PLANNED) == stays
    assert why(made)[1] == "MovedByKueue"


def test_pods_are_made_with_what_the_admission_adds() -> None:
    placed = replace(PLACEMENT, pods=PodUpdate({"kueue": "yes"}, {}, REGION, ()))
    nodes = {node: NodeState(labels=REGION) for node in NODES}
    made = decide(of_queue(deploying(), kueue=standing(*UP, placed=placed), nodes=nodes, memory=SWEPT, full=full()))
    created = next(action for action in done(made) if isinstance(action, Create) and action.resource.kind == "Pod")
    assert created.bodies[0]["spec"]["nodeSelector"] == REGION
    assert created.bodies[0]["metadata"]["labels"]["kueue"] == "yes"


def test_a_plan_that_was_made_is_not_committed_without_an_admission() -> None:
    made = decide(of_queue(decision=decision(), kueue=standing(condition("QuotaReserved", False, "Pending"))))
    assert not holds(made.view.status, ConditionType.PLANNED)
    assert holds(decide(of_queue(decision=decision())).view.status, ConditionType.PLANNED)


def test_hulks_own_queue_leaves_such_a_job_alone() -> None:
    assert is_contestant(job())
    assert not is_contestant(queued())
