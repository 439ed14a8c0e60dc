"""What the queue says in a job's status: orders obeyed, places, shares, joules; what people and metrics see of it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hulk_operator.api import (
    CheckpointStatus,
    ConditionType,
    EnergyStatus,
    HulkJobStatus,
    Observed,
    QueueStatus,
    ShareStatus,
)
from hulk_operator.cli.output import plain
from hulk_operator.cli.tables import job_state
from hulk_operator.metrics import Health, Snapshot, registry
from hulk_operator.observation import Observation
from hulk_operator.reconcile.energy import energy
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.steps.queueing import queue_move
from hulk_operator.reconcile.types import Memory, Order, Place, RequestPlan, Share, Sighting, Sweep, Unplanned
from hulk_operator.status import condition, finished, transitions
from views import GENERATION, LAUNCHED, NOW, ago, decision, deploying, full, gang, job, running, view

SHARE = Share(2, 1 / 3, 0.5)
ORDER = Order(GENERATION, 1, "Shrunk", "shrinks from 3 to 2 workers; there start or grow lab/b", SHARE)
STOP = replace(ORDER, reason="PreemptedByPriority", message="stopped", share=replace(SHARE, workers=0))
PLACE = Place(2, "Queued", "waits at position 2: 1 fits", NOW + timedelta(seconds=900))
WATTS = {"utility": {"energy": {"wattsPerWorker": 100}}}


def seen(order: Order | None, found: HulkJobStatus | None = None, **fields: Any) -> Decision:
    given = {"job": job(), "pods": gang(), "full": full(), "memory": Memory(swept_to=1, started=1), **fields}
    return decide(view(running() if found is None else found, order=order, **given))


def planned(found: HulkJobStatus) -> tuple[str, str, str]:
    known = condition(found, ConditionType.PLANNED)
    assert known is not None
    return known.status, known.reason, known.message


def test_a_gang_that_is_to_shrink_is_released_with_its_share_written_down() -> None:
    last = Sighting(1, ago(1), Observation(attempt=1, step=100, step_s=9.0))
    after = seen(ORDER, memory=Memory(swept_to=1, started=1, sighting=last)).view.status
    assert planned(after) == ("False", "Shrunk", f"attempt 1: {ORDER.message}")
    assert after.share == ShareStatus(workers=2, of_cluster="0.3333", fair="0.5000", time=NOW)
    assert (after.failures, after.disruptions, finished(after)) == (0, 0, False)
    assert after.observed is not None
    assert after.observed.step == 100
    told = [(one.type, one.reason) for one in transitions(running(), after)]
    assert ("Normal", "Shrunk") in told
    assert queue_move(running(), after) == "shrink"


@pytest.mark.parametrize(
    ("name", "order", "found"),
    [
        ("nothing was said", None, running()),
        ("of another attempt", ORDER, running(2)),
        ("of the job before its last change", replace(ORDER, generation=GENERATION - 1), running()),
        ("the gang is not up", ORDER, deploying()),
    ],
)
def test_what_is_no_order_to_the_plan_in_force_is_passed_over(
    name: str, order: Order | None, found: HulkJobStatus
) -> None:
    after = seen(order, found, pods=gang(found.attempt), full=full(found.attempt)).view.status
    assert planned(after)[0] == "True", name
    assert after.share is None


def test_the_pods_of_a_gang_that_shrinks_stay_for_its_next_plan_those_of_a_stopped_one_do_not() -> None:
    launched = job(**LAUNCHED)
    shrunk, stopped = (seen(order, job=launched).view.status for order in (ORDER, STOP))
    after = seen(None, shrunk, job=launched)
    assert [action for _, action in after.actions] == [RequestPlan()]
    assert Sweep(0) in [action for _, action in seen(None, stopped, job=launched).actions]


def waiting(found: HulkJobStatus, place: Place | None = PLACE) -> HulkJobStatus:
    reason, message = (place.reason, place.message) if place else ("NoCandidates", "none")
    return seen(None, found, pods=(), decision=Unplanned(GENERATION, reason, message, place)).view.status


def test_a_job_that_waits_tells_its_place_since_when_and_until_when() -> None:
    after = waiting(HulkJobStatus())
    assert after.queue == QueueStatus(
        position=2, since=NOW, reason="Queued", message=PLACE.message, expected_start=PLACE.expected_start
    )
    assert planned(after) == ("False", "Queued", PLACE.message)
    known = QueueStatus(position=5, since=ago(77), reason="Queued", message="before")
    moved_up = waiting(HulkJobStatus(queue=known)).queue
    assert moved_up is not None
    assert (moved_up.position, moved_up.since) == (2, ago(77))


@pytest.mark.parametrize(("later_s", "is_written"), [(30, False), (80, False), (300, True), (-300, True)])
def test_an_expected_start_that_hardly_differs_is_not_written_again(later_s: float, is_written: bool) -> None:
    known = waiting(HulkJobStatus())
    assert PLACE.expected_start is not None
    later = replace(PLACE, expected_start=PLACE.expected_start + timedelta(seconds=later_s))
    assert (waiting(known, later) != known) == is_written


def test_who_was_stopped_says_so_until_it_runs_again() -> None:
    stopped = seen(STOP).view.status
    assert queue_move(running(), stopped) == "preempt"
    after = waiting(stopped)
    assert planned(after)[1] == "PreemptedByPriority"
    assert planned(waiting(after))[1] == "PreemptedByPriority"
    again = seen(None, after, pods=(), decision=replace(decision(2), share=SHARE), memory=Memory()).view.status
    assert planned(again)[1] == "Planned"
    assert planned(again)[2].endswith("; 33% of the accelerators, a fair share is 50%")
    assert (again.queue, again.share.workers if again.share else None) == (None, 2)
    assert queue_move(after, again) == "start"


def test_who_waits_for_no_turn_has_no_place_nor_who_is_suspended_or_done() -> None:
    queued = waiting(HulkJobStatus())
    assert waiting(queued, None).queue is None
    assert seen(None, queued, pods=(), job=job(suspend=True)).view.status.queue is None
    late = queued.model_copy(update={"start_time": ago(100)})
    over = seen(None, late, pods=(), job=job(runPolicy={"activeDeadlineSeconds": 5})).view.status
    assert finished(over)
    assert over.queue is None


def test_a_plan_that_nobody_competed_for_is_no_move_of_the_queue() -> None:
    after = seen(None, HulkJobStatus(), pods=(), decision=decision(), memory=Memory()).view.status
    assert (after.share, queue_move(HulkJobStatus(), after)) == (None, "")


@pytest.mark.parametrize(
    ("name", "known", "kept", "attempt", "joules"),
    [
        ("the first steps", None, None, 1, 10 * 600),
        ("steps since the last look", EnergyStatus(joules=50, attempt=1, step=4), None, 1, 50 + 6 * 600),
        ("a new attempt, from its checkpoint on", EnergyStatus(joules=50, attempt=1, step=9), 7, 2, 50 + 3 * 600),
        ("steps that are told again", EnergyStatus(joules=50, attempt=1, step=12), None, 1, 50),
    ],
)
def test_joules_are_steps_times_workers_times_watts(
    name: str, known: EnergyStatus | None, kept: int | None, attempt: int, joules: int
) -> None:
    """Of 2 s on three workers of 100 W: 600 J."""
    saved = CheckpointStatus(step=kept, where="x") if kept is not None else None
    found = running(attempt).model_copy(update={"energy": known, "checkpoint": saved})
    after = energy(view(found, job=job(**WATTS)), Observation(attempt=attempt, step=10, step_s=2.0))
    assert after is not None
    assert (after.joules, after.attempt) == (joules, attempt), name


def test_without_watts_no_joules() -> None:
    assert energy(view(running()), Observation(attempt=1, step=10, step_s=2.0)) is None


def full_status() -> HulkJobStatus:
    return running().model_copy(
        update={
            "queue": QueueStatus(position=3, since=ago(59), reason="Queued", message="others have them"),
            "share": ShareStatus(workers=2, of_cluster="0.2500", fair="0.5000", time=NOW),
            "energy": EnergyStatus(joules=1234, attempt=1, step=4),
            "observed": Observed(step=4, updated_at=NOW),
        }
    )


def test_people_see_all_of_it() -> None:
    text = plain(job_state(job().model_copy(update={"status": full_status()}), NOW))
    assert "Pending #3" in text
    assert "no. 3 for 59s, Queued: others have them" in text
    assert "2 workers, 25.0 % of the accelerators; a fair share is 50.0 %" in text
    assert "1,234 J up to step 4" in text


def test_metrics_tell_all_of_it() -> None:
    health = Health()
    health.moved("grow")
    given = job(utility={"type": "sqrt", "weight": "2"}).model_copy(update={"status": full_status()})
    found = registry(lambda: Snapshot(jobs=(given,)), health, lambda: NOW)
    key = {"namespace": "lab", "job": "demo"}
    for name, labels, value in (
        ("hulk_job_queue_position", key, 3),
        ("hulk_job_waiting_seconds", key, 59),
        ("hulk_job_share", {**key, "share": "given"}, 0.25),
        ("hulk_job_share", {**key, "share": "fair"}, 0.5),
        ("hulk_job_utility", key, 2 * (4 * 6) ** 0.5),
        ("hulk_job_joules", key, 1234),
        ("hulk_queue_waiting_jobs", {}, 1),
        ("hulk_queue_moves_total", {"kind": "grow"}, 1),
    ):
        assert found.get_sample_value(name, labels) == pytest.approx(value), name
