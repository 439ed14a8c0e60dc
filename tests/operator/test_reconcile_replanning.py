"""What the planning pass says of a plan in force: a gang that moves, one that stays, and what people are told."""

from dataclasses import replace
from typing import Any

import pytest
from hulk_operator.api import ConditionType, HulkJobStatus, ReplanStatus, Startup
from hulk_operator.observation import Observation
from hulk_operator.reconcile.recipe import Decision, decide
from hulk_operator.reconcile.types import Memory, Review, Sighting
from hulk_operator.status import condition, transitions
from views import GENERATION, NOW, ago, deploying, full, gang, job, running, view

SLOWER = "2.1 h would be gained over 900 steps (9 s a step -> 0.6 s), and the move costs 4 h"
STAY = Review(GENERATION, 1, "stay", SLOWER, 9_000_000, 600_000, 7560.0, 14_400.4)
MOVE = replace(STAY, verdict="move", reason="2.1 h is gained over 900 steps for 90 s of moving", cost_s=90.0)


def seen(review: Review | None, found: HulkJobStatus | None = None, **fields: Any) -> Decision:
    given = {"job": job(), "pods": gang(), "full": full(), "memory": Memory(swept_to=1, started=1), **fields}
    return decide(view(running() if found is None else found, review=review, **given))


def told(before: HulkJobStatus, after: HulkJobStatus) -> list[tuple[str, str, str]]:
    return [(one.type, one.reason, one.message) for one in transitions(before, after)]


def test_a_gang_that_stays_says_why() -> None:
    after = seen(STAY).view.status
    assert after.replan == ReplanStatus(
        attempt=1,
        verdict="stay",
        reason=SLOWER,
        step_microseconds=9_000_000,
        new_step_microseconds=600_000,
        gain_seconds=7560,
        cost_seconds=14_400,
        time=NOW,
    )
    assert told(running(), after) == [("Normal", "PlanKept", SLOWER)]


def test_a_gang_that_moves_is_released_and_says_why() -> None:
    memory = Memory(swept_to=1, started=1, sighting=Sighting(1, ago(1), Observation(attempt=1, step=100, step_s=9.0)))
    after = seen(MOVE, memory=memory).view.status
    planned = condition(after, ConditionType.PLANNED)
    assert planned is not None
    assert (planned.status, planned.reason) == ("False", "Replanned")
    assert planned.message == f"attempt 1 moves to another plan: {MOVE.reason}"
    assert after.replan is not None
    assert (after.replan.verdict, after.failures, after.disruptions) == ("move", 0, 0)
    assert after.observed is not None
    assert after.observed.step == 100
    assert ("Normal", "Replanned", planned.message) in told(running(), after)


def test_its_next_plan_is_asked_for_without_a_pause() -> None:
    released = seen(MOVE).view.status
    assert seen(None, released, pods=()).requeue_after_s is None  # it waits for the planning pass alone


@pytest.mark.parametrize(
    ("name", "review", "found"),
    [
        ("nothing was said", None, running()),
        ("of another attempt", MOVE, running(2)),
        ("of the job before its last change", replace(MOVE, generation=GENERATION - 1), running()),
        ("the gang is not up", MOVE, deploying()),
    ],
)
def test_what_is_no_word_on_the_plan_in_force_is_passed_over(
    name: str, review: Review | None, found: HulkJobStatus
) -> None:
    after = seen(review, found, pods=gang(found.attempt), full=full(found.attempt)).view.status
    planned = condition(after, ConditionType.PLANNED)
    assert planned is not None
    assert (planned.status, after.replan) == ("True", None), name


@pytest.mark.parametrize(
    ("name", "seconds_ago", "again", "is_written"),
    [
        ("the same", 5, STAY, False),
        ("the same, much later", 9999, STAY, False),
        ("other numbers", 5, replace(STAY, reason="other"), False),
        ("other numbers, later", 601, replace(STAY, reason="other"), True),
        ("another verdict", 5, MOVE, True),
    ],
)
def test_numbers_that_vary_are_not_written_again_and_again(
    name: str, seconds_ago: float, again: Review, is_written: bool
) -> None:
    known = seen(STAY).view.status.replan
    assert known is not None
    before = running().model_copy(update={"replan": known.model_copy(update={"time": ago(seconds_ago)})})
    after = seen(again, before).view.status
    assert (after.replan != before.replan) == is_written, name
    assert [reason for _, reason, _ in told(before, after) if reason == "PlanKept"] == []


def test_how_long_a_start_took_is_told_once() -> None:
    """Planned 100 s ago; the first poll that tells of a step counts, and no later one."""
    first = Sighting(1, ago(1), Observation(attempt=1, step=1, step_s=1.0))
    memory = Memory(swept_to=1, started=1, sighting=first)
    after = seen(None, memory=memory).view.status
    assert after.startup == Startup(attempt=1, seconds=100)
    known = running(since_s=900.0).model_copy(update={"startup": after.startup})
    assert seen(None, known, memory=memory).view.status.startup == after.startup
