"""A gang that loses a region: who is asked, what is believed, what is borne, and when the job is done.

Six workers, two in each of eu (0, 1), us (2, 3) and ap (4, 5).
"""

from dataclasses import replace
from typing import Any

import pytest
from hulk_operator.api import ConditionType, HulkJobStatus, Membership
from hulk_operator.observation import Observation
from hulk_operator.pods import Exit, WorkerPod
from hulk_operator.pods.termination_record import Farewell
from hulk_operator.reconcile.membership import could_go_on, members
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.types import FullPlan, Memory, Poll, Remember, Sighting, View
from hulk_operator.status import condition, holds, transitions
from hulk_operator.watched import NodeState
from hulk_placement.plan import Layout, WorkerSlot
from views import LAUNCHED, NOW, ago, decision, full, job, running, summary
from views import pod as pod_of_three
from views import view as any_view

REGIONS = ("eu", "eu", "us", "us", "ap", "ap")
NODES = tuple(f"n{worker}" for worker in range(6))
CONTINUE = {"mode": "wan", "onRegionLoss": "continue"}
SIX = {"min": 6, "max": 6}


def plan(accelerators: int = 1) -> FullPlan:
    """Six workers in three regions."""
    known = full()
    workers = tuple(WorkerSlot(node, region, accelerators) for node, region in zip(NODES, REGIONS, strict=True))
    ranks = 6 * accelerators
    prediction = replace(known.plan.prediction, rank_compute_s=(0.4,) * ranks)
    made = replace(known.plan, workers=workers, shares=(1,) * ranks, layout=Layout(ranks), prediction=prediction)
    return replace(known, plan=made)


def pod(worker: int, **fields: Any) -> WorkerPod:
    known = replace(pod_of_three(0), name=f"demo-1-{worker}", uid=f"p{worker}", worker=worker, node=NODES[worker])
    return replace(known, ip=f"10.0.0.{worker}", **fields)


def lost(worker: int, code: int = 69, seconds_ago: float = 1.0) -> WorkerPod:
    return pod(worker, phase="Failed", exit=Exit(code, "Error", "PeerLostError", ago(seconds_ago)))


def gang(*others: WorkerPod) -> tuple[WorkerPod, ...]:
    """All six pods, some of them replaced."""
    replaced = {other.worker: other for other in others}
    return tuple(replaced.get(worker, pod(worker)) for worker in range(6))


def without(*regions: str, epoch: int = 1) -> HulkJobStatus:
    """A running gang that goes on without regions."""
    left = sum(region not in regions for region in REGIONS)
    return whole().model_copy(
        update={"membership": Membership(epoch=epoch, workers=left, without=regions, since=ago(60))}
    )


def whole() -> HulkJobStatus:
    six = summary().model_copy(update={"num_workers": 6, "num_accelerators": 6})
    return running().model_copy(update={"plan": six})


def heard(epoch: int | None, *absent: int, seconds_ago: float = 1.0, attempt: int = 1) -> Sighting:
    seen = Observation(attempt=attempt, step=9, step_s=1.0, epoch=epoch, absent=frozenset(absent))
    return Sighting(1, ago(seconds_ago), seen)


def silence(seconds_ago: float) -> Sighting:
    return Sighting(1, ago(seconds_ago), error="refused")


def six(status: HulkJobStatus, sync: dict[str, str] | None = None, **fields: Any) -> View:
    """A view of a job of six workers that may go on without a region."""
    memory = replace(fields.pop("memory", Memory()), swept_to=1)
    spec = {"workers": SIX, "sync": CONTINUE if sync is None else sync, **fields.pop("spec", {})}
    nodes = {node: NodeState() for node in NODES} | fields.pop("nodes", {})
    given = {"pods": gang(), "full": plan(), **fields}
    return any_view(status, job=job(**spec), memory=memory, nodes=nodes, **given)


def polls(made: Decision) -> list[tuple[str, ...]]:
    """Who is asked."""
    return [(action.address, *action.others) for _, action in made.actions if isinstance(action, Poll)]


def remembered(made: Decision) -> dict[str, object]:
    return {
        key: value for _, action in made.actions if isinstance(action, Remember) for key, value in action.fields.items()
    }


@pytest.mark.parametrize(
    ("name", "status", "sync", "pods", "asked"),
    [
        ("nobody may be left out", whole(), {}, gang(), ("10.0.0.0:9400",)),
        ("the first of each region", whole(), CONTINUE, gang(), ("10.0.0.0:9400", "10.0.0.2:9400", "10.0.0.4:9400")),
        ("rank 0's pod has ended", whole(), CONTINUE, gang(lost(0), lost(1)), ("10.0.0.2:9400", "10.0.0.4:9400")),
        ("not who was left out", without("ap"), CONTINUE, gang(), ("10.0.0.0:9400", "10.0.0.2:9400")),
        ("not rank 0 where its region is", without("eu"), CONTINUE, gang(), ("10.0.0.2:9400", "10.0.0.4:9400")),
    ],
)
def test_who_is_asked_how_it_goes(
    name: str, status: HulkJobStatus, sync: dict[str, str], pods: tuple[WorkerPod, ...], asked: tuple[str, ...]
) -> None:
    assert polls(decide(six(status, sync, pods=pods))) == [asked], name


@pytest.mark.parametrize(
    ("name", "status", "sighting", "expected"),
    [
        ("whole", whole(), heard(0), None),
        ("nothing is said", whole(), heard(None), None),
        ("a region", whole(), heard(1, 4, 5), (1, 4, ("ap",))),
        ("rank 0's region", whole(), heard(1, 0, 1), (1, 4, ("eu",))),
        ("the next one", without("ap"), heard(2, 2, 3, 4, 5), (2, 2, ("ap", "us"))),
        ("known already", without("ap"), heard(1, 4, 5), (1, 4, ("ap",))),
        ("older than what is known", without("ap", "us", epoch=2), heard(1, 4, 5), (2, 2, ("ap", "us"))),
        ("part of a region", whole(), heard(1, 5), None),
        ("a region and a part", whole(), heard(1, 3, 4, 5), (1, 4, ("ap",))),
        ("everybody", whole(), heard(1, *range(6)), None),
        ("another attempt", whole(), heard(1, 4, 5, attempt=2), None),
    ],
)
def test_what_is_believed(
    name: str, status: HulkJobStatus, sighting: Sighting, expected: tuple[int, int, tuple[str, ...]] | None
) -> None:
    found = decide(six(status, memory=Memory(sighting=sighting))).view.status.membership
    assert (found and (found.epoch, found.workers, found.without)) == expected, name


def test_a_job_that_is_to_restart_believes_none_of_it() -> None:
    made = decide(six(whole(), {"mode": "wan"}, memory=Memory(sighting=heard(1, 4, 5))))
    assert made.view.status.membership is None


def test_with_two_accelerators_a_worker_both_its_ranks_count() -> None:
    two = {"spec": {"workers": {**SIX, "acceleratorsPerWorker": 2}}, "full": plan(accelerators=2)}
    seen = heard(1, 8, 9, 10, 11)
    found = decide(six(whole(), memory=Memory(sighting=seen), **two)).view.status.membership
    assert found is not None
    assert found.without == ("ap",)
    part = decide(six(whole(), memory=Memory(sighting=heard(1, 8, 10)), **two)).view.status.membership
    assert part is None


def test_the_job_says_that_it_is_degraded_and_by_what() -> None:
    made = decide(six(whole(), memory=Memory(sighting=heard(1, 4, 5))))
    said = condition(made.view.status, ConditionType.DEGRADED)
    assert said is not None
    assert (said.status, said.reason) == ("True", "RegionLost")
    assert said.message == "ap was cut off: 4 of 6 workers go on without it (membership epoch 1)"
    (told,) = transitions(whole(), made.view.status)
    assert (told.type, told.reason) == ("Warning", "RegionLost")
    later = decide(six(made.view.status, memory=Memory(sighting=heard(2, 2, 3, 4, 5)))).view.status
    again = condition(later, ConditionType.DEGRADED)
    assert again is not None
    assert again.message == "ap, us were cut off: 2 of 6 workers go on without them (membership epoch 2)"


@pytest.mark.parametrize(
    ("name", "seconds_ago", "nodes", "spec", "says"),
    [
        ("just now: what Kubernetes says of nodes is old", 10, {}, {}, " (membership epoch 1)"),
        ("one node is away", 100, {"n4": NodeState("Unknown")}, {}, "; 1 of its 2 nodes is not ready"),
        (
            "both are",
            10,
            {"n4": NodeState("Unknown"), "n5": NodeState("False")},
            {},
            "; 2 of its 2 nodes are not ready",
        ),
        (
            "they are back",
            100,
            {},
            {"checkpoint": {"storage": {"url": "s3://a/b"}, "everySteps": 5}},
            "; its nodes are ready; whether the links of ap carry again is told by `hulk topology`: "
            "if they do, a new attempt would use them and resumes from the last checkpoint; "
            "for one set spec.suspend to true, wait for Suspended, and set it to false",
        ),
        ("and nothing was saved", 100, {}, {}, "and begins at step 1: it has no checkpoint; "),
    ],
)
def test_a_degraded_job_says_what_it_takes_to_have_the_region_back(
    name: str, seconds_ago: float, nodes: dict[str, NodeState], spec: dict[str, Any], says: str
) -> None:
    status = whole().model_copy(
        update={"membership": Membership(epoch=1, workers=4, without=("ap",), since=ago(seconds_ago))}
    )
    said = condition(decide(six(status, nodes=nodes, spec=spec)).view.status, ConditionType.DEGRADED)
    assert said is not None
    assert says in said.message, name
    if seconds_ago < 60 and not nodes:
        assert said.message.endswith(says), name


def test_a_job_that_was_suspended_is_planned_with_the_region_again() -> None:
    """What the condition tells people to do."""
    suspended = decide(six(without("ap"), spec={"suspend": True})).view.status
    assert not holds(suspended, ConditionType.PLANNED)
    assert suspended.membership is None
    gone = decide(six(suspended, pods=(), spec={"suspend": True})).view.status
    assert holds(gone, ConditionType.SUSPENDED)
    again = decide(six(gone, pods=(), decision=decision(2), full=None)).view
    assert members(replace(again, status=whole())) == frozenset(range(6))


AP_GONE = (pod(4, delete_by=NOW), pod(5, phase="Succeeded"))


@pytest.mark.parametrize(
    ("name", "status", "changes", "ends"),
    [
        ("its pods failed", without("ap"), {"pods": gang(lost(4), lost(5, 1))}, False),
        ("one of its pods is gone", without("ap"), {"pods": gang()[:5]}, False),
        ("its pods are being deleted", without("ap"), {"pods": gang(*AP_GONE)}, False),
        (
            "its nodes are silent",
            without("ap"),
            {"nodes": {"n4": NodeState("Unknown"), "n5": NodeState("Unknown")}},
            False,
        ),
        ("rank 0's region", without("eu"), {"pods": gang(lost(0), lost(1))}, False),
        (
            "a worker that was left fails too",
            without("ap"),
            {"pods": gang(lost(4), lost(2, 1), lost(3), lost(0), lost(1))},
            True,
        ),
        (
            "a node of what was left is lost, too few go on",
            without("ap"),
            {"nodes": {"n0": NodeState("Unknown")}},
            True,
        ),
        (
            "nothing was said of it",
            whole(),
            {"pods": gang(lost(4, 1, 99), lost(5, 1, 99)), "memory": Memory(loss=(1, ago(99)))},
            True,
        ),
    ],
)
def test_what_becomes_of_a_region_that_was_left_out_does_not_end_the_attempt(
    name: str, status: HulkJobStatus, changes: dict[str, Any], ends: bool
) -> None:
    found = decide(six(status, **changes)).view.status
    assert holds(found, ConditionType.PLANNED) is not ends, name
    assert (found.failures + found.disruptions > 0) is ends, name
    if ends:
        assert found.membership is None
        assert not holds(found, ConditionType.DEGRADED)


SILENT_AP = {"n4": NodeState("Unknown"), "n5": NodeState("Unknown")}
SEEN = (1, ago(10))


@pytest.mark.parametrize(
    ("name", "changes", "waits"),
    [
        ("first seen", {"pods": gang(lost(4), lost(5))}, True),
        ("its nodes are silent", {"nodes": SILENT_AP}, True),
        ("its pods are gone", {"pods": gang()[:4]}, True),
        (
            "a pod of each of two regions, one worker left over half",
            {"pods": gang(lost(4)), "nodes": {"n5": NodeState("Unknown")}},
            True,
        ),
        ("for some seconds", {"nodes": SILENT_AP, "memory": Memory(loss=SEEN)}, True),
        ("for too long", {"nodes": SILENT_AP, "memory": Memory(loss=(1, ago(31)))}, False),
        ("first seen of this attempt", {"nodes": SILENT_AP, "memory": Memory(loss=(9, ago(31)))}, True),
        ("nobody answers any more", {"nodes": SILENT_AP, "memory": Memory(loss=SEEN, sighting=silence(4))}, False),
        (
            "nobody answered at the first moment",
            {"nodes": SILENT_AP, "memory": Memory(loss=SEEN, sighting=silence(9))},
            True,
        ),
        ("someone answers", {"nodes": SILENT_AP, "memory": Memory(loss=SEEN, sighting=heard(0))}, True),
        ("two regions of three", {"nodes": {**SILENT_AP, "n2": NodeState("Unknown")}}, False),
        ("the job is to restart", {"nodes": SILENT_AP, "sync": {"mode": "wan"}}, False),
        ("who is where cannot be read", {"nodes": SILENT_AP, "full": None}, False),
        (
            "a configuration that no attempt cures",
            {"pods": gang(replace(lost(4), exit=Exit(65, "Error", "ConfigurationError: x", NOW)))},
            False,
        ),
    ],
)
def test_a_loss_that_the_others_may_survive_is_waited_with(name: str, changes: dict[str, Any], waits: bool) -> None:
    made = decide(six(whole(), **changes))
    assert holds(made.view.status, ConditionType.PLANNED) is waits, name
    if waits:
        assert made.requeue_after_s is not None, name
        assert 0 < made.requeue_after_s <= 30, name


def test_while_it_is_waited_the_others_are_asked_and_the_moment_is_kept() -> None:
    first = decide(six(whole(), nodes=SILENT_AP))
    assert remembered(first)["loss"] == (1, NOW)
    assert polls(first) == [("10.0.0.0:9400", "10.0.0.2:9400", "10.0.0.4:9400")]
    assert "loss" not in remembered(decide(six(whole(), nodes=SILENT_AP, memory=Memory(loss=SEEN))))
    better = decide(six(whole(), memory=Memory(loss=SEEN)))  # the nodes are back
    assert remembered(better)["loss"] is None
    said = decide(six(whole(), nodes=SILENT_AP, memory=Memory(loss=SEEN, sighting=heard(1, 4, 5))))
    assert remembered(said)["loss"] is None  # so that the next loss has its own time
    assert holds(said.view.status, ConditionType.PLANNED)


@pytest.mark.parametrize(
    ("name", "status", "pods", "succeeds"),
    [
        (
            "all of the rest",
            without("ap"),
            gang(*(pod(worker, phase="Succeeded") for worker in range(4)), lost(4)),
            True,
        ),
        ("not all of the rest", without("ap"), gang(*(pod(worker, phase="Succeeded") for worker in range(3))), False),
        (
            "also who was left out",
            without("ap"),
            gang(*(pod(worker, phase="Succeeded") for worker in (0, 1, 4, 5))),
            False,
        ),
        (
            "rank 0's region was left out",
            without("eu"),
            gang(*(pod(worker, phase="Succeeded") for worker in range(2, 6))),
            True,
        ),
        ("nobody was left out", whole(), gang(*(pod(worker, phase="Succeeded") for worker in range(4))), False),
    ],
)
def test_a_job_succeeds_when_those_who_take_part_ended_well(
    name: str, status: HulkJobStatus, pods: tuple[WorkerPod, ...], succeeds: bool
) -> None:
    found = decide(six(status, pods=pods)).view.status
    assert holds(found, ConditionType.SUCCEEDED) is succeeds, name
    assert holds(found, ConditionType.PLANNED), name
    if succeeds:
        said = condition(found, ConditionType.SUCCEEDED)
        assert said is not None
        assert said.message == "all 4 workers left of attempt 1 ended well"


@pytest.mark.parametrize(
    ("name", "said", "succeeds"),
    [
        ("without the region", Farewell(1, 10, "2.5", 0, 1, ("ap",)), True),
        ("whole", Farewell(1, 10, "2.5", 0), False),
        ("of another attempt", Farewell(9, 10, "2.5", 0, 1, ("ap",)), False),
        ("without everybody", Farewell(1, 10, "2.5", 0, 1, ("ap", "us", "eu")), False),
        ("without a region that it does not have", Farewell(1, 10, "2.5", 0, 1, ("sa",)), False),
    ],
)
def test_survivors_that_end_before_they_are_asked_again_say_so_with_their_last_words(
    name: str, said: Farewell, succeeds: bool
) -> None:
    ended = (pod(worker, phase="Succeeded") for worker in range(4))
    pods = gang(*ended, lost(4, 1, 99), lost(5, 69, 99))
    found = decide(six(whole(), pods=pods, memory=Memory(loss=(1, ago(99))), farewell=said)).view.status
    assert holds(found, ConditionType.SUCCEEDED) is succeeds, name
    assert found.failures == (0 if succeeds else 1)


def test_where_the_launcher_runs_a_single_crash_is_waited_with_only_while_somebody_trains() -> None:
    launched = {"spec": LAUNCHED, "pods": gang(lost(4, 1, 6))}
    assert holds(decide(six(whole(), memory=Memory(loss=(1, ago(6))), **launched)).view.status, ConditionType.PLANNED)
    over = decide(six(whole(), memory=Memory(loss=(1, ago(6)), sighting=silence(0.5)), **launched)).view.status
    assert over.failures == 1


def test_another_attempt_begins_whole() -> None:
    released = decide(six(without("ap"), pods=gang(lost(0, 1), lost(1), lost(2), lost(3)))).view.status
    assert (released.failures, released.membership) == (1, None)
    again = decide(six(released, pods=(), memory=Memory(), decision=decision(2), full=None)).view
    assert members(replace(again, status=whole())) == frozenset(range(6))


@pytest.mark.parametrize(
    ("out", "expected"),
    [((), True), ((5,), True), ((4, 5), True), ((3, 4, 5), True), ((0, 1, 2), False), ((2, 3, 4, 5), False)],
)
def test_more_than_half_go_on_or_the_half_with_the_lowest(out: tuple[int, ...], expected: bool) -> None:
    assert could_go_on(range(6), out) is expected
