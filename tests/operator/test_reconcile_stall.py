"""A gang that hangs: whose silence counts, from when on, and what is said of it."""

from dataclasses import replace
from typing import Any

import pytest
from hulk_operator.api import ConditionType, HulkJob
from hulk_operator.observation import Observation
from hulk_operator.reconcile.liveness import Hearing
from hulk_operator.reconcile.recipe import decide
from hulk_operator.reconcile.silence import GangWords, Output, WorkerWords
from hulk_operator.reconcile.steps.stall import MIN_STALL_S, stalled
from hulk_operator.reconcile.types import AskGang, Memory, ReadOutput, Sighting, View
from hulk_operator.status import condition, holds
from views import NODES, PREDICTION, ago, failure_of, full, gang, job, running, view

POD = "demo-1-0"
BOUND_S = 100
HOURS = 86_400.0
SILENT = tuple(WorkerWords(worker, (f"step {worker}",), True) for worker in range(3))


def asked(stall_s: int | None = BOUND_S, **policy: Any) -> HulkJob:
    return job(runPolicy={"stallSeconds": stall_s, **policy} if stall_s is not None else policy)


def steps(last_ago_s: float, *, step_s: float = 0.5, silent: tuple[str, ...] = ()) -> Hearing:
    """What polls brought: rank 0 made its last step so long ago."""
    return Hearing(1, ago(1), 7, ago(last_ago_s), step_s, dict.fromkeys(silent, ago(60)), len(NODES) - len(silent))


def look(changed_ago_s: float, read_ago_s: float = 1.0) -> Output:
    return Output(POD, "a line", ago(changed_ago_s), ago(read_ago_s))


def hangs(one: HulkJob, *, up_s: float = HOURS, **memory: Any) -> View:
    answered = Sighting(1, ago(1), Observation(attempt=1, step=7))
    output = memory.get("output")
    known = Memory("u1", swept_to=1, sighting=answered, looked=output.read if output else None)
    return view(running(since_s=up_s), job=one, pods=gang(), full=full(), memory=replace(known, **memory))


def asks(given: View) -> set[type]:
    return {type(action) for _, action in decide(given).actions} & {ReadOutput, AskGang}


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("nothing is known of its steps", hangs(job()), set()),
        ("nothing is known, and a bound is given", hangs(asked()), {ReadOutput}),
        ("zero is no bound", hangs(asked(0), hearing=steps(HOURS)), set()),
        ("it has just begun", hangs(asked(), up_s=5), set()),
        ("it makes steps", hangs(asked(), hearing=steps(5)), set()),
        ("it makes no steps", hangs(asked(), hearing=steps(50)), {ReadOutput}),
        ("it was looked at", hangs(asked(), output=look(50)), set()),
        ("it was looked at a while ago", hangs(asked(), output=look(50, 20)), {ReadOutput}),
        ("its log could not be read a moment ago", hangs(asked(), looked=ago(5)), set()),
        ("silent for long enough", hangs(asked(), output=look(101)), {AskGang}),
        ("silent for long enough, its steps too", hangs(asked(), output=look(101), hearing=steps(101)), {AskGang}),
        ("silent, but it makes steps", hangs(asked(), output=look(101), hearing=steps(50)), set()),
        ("the look was before the last attempt's end", hangs(asked(), up_s=60, output=look(500, 70)), {ReadOutput}),
        ("by default with steps", hangs(job(), output=look(MIN_STALL_S + 1), hearing=steps(HOURS)), {AskGang}),
        ("by default not as soon", hangs(job(), output=look(MIN_STALL_S - 1), hearing=steps(HOURS)), set()),
        ("long steps", hangs(job(), output=look(MIN_STALL_S + 1), hearing=steps(HOURS, step_s=60)), set()),
        (
            "the operator cannot reach it",
            hangs(asked(), output=look(101), hearing=steps(101), sighting=None),
            {AskGang},
        ),
        (
            "nor its node",
            hangs(asked(), output=look(101), hearing=steps(101, silent=NODES[:1]), sighting=None),
            set(),
        ),
    ],
)
def test_what_is_asked_for(name: str, given: View, expected: set[type]) -> None:
    assert asks(given) == expected, name


def test_it_is_counted_with_each_ranks_last_lines() -> None:
    words = GangWords(1, ago(0), (SILENT[0], WorkerWords(1, ("loading", "batch 7"), True, 4), SILENT[2]))
    made = decide(hangs(asked(), output=look(120), words=words))
    failure = failure_of(made.view.status)
    assert (failure.reason, failure.pod, failure.node) == ("Stalled", "demo-1-1", "node-1"), "who is behind"
    assert made.view.status.failures == 1
    assert not holds(made.view.status, ConditionType.PLANNED)
    assert failure.message == (
        "no step and no output of rank 0 for 119 s (runPolicy.stallSeconds = 100); silent: rank 0, rank 1, rank 2 of 3 "
        "workers; rank 1 (node node-1, step 4): loading | batch 7; rank 0 (node node-0): step 0; "
        "rank 2 (node node-2): step 2"
    )


def test_words_of_another_silence_are_asked_again() -> None:
    old = GangWords(1, ago(300), SILENT)
    assert asks(hangs(asked(), output=look(120), words=old)) == {AskGang}


def test_words_of_workers_that_are_gone_are_asked_again() -> None:
    """A region was left out after the gang was asked."""
    words = GangWords(1, ago(0), SILENT)
    given = hangs(asked(), output=look(120), words=words)
    left = replace(given, pods=given.pods[:2])
    assert asks(left) <= {AskGang}
    assert stalled(left).actions == (AskGang(left.pods, BOUND_S),)


def test_one_stall_too_many_fails_the_job() -> None:
    words = GangWords(1, ago(0), SILENT)
    made = decide(hangs(asked(backoffLimit=0), output=look(120), words=words))
    failed = condition(made.view.status, ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == "BackoffLimitExceeded"
    assert "no step and no output of rank 0 for 119 s" in failed.message


def test_a_large_gang_and_long_lines_fit() -> None:
    words = GangWords(1, ago(0), tuple(WorkerWords(worker, ("x" * 10_000,) * 3, True) for worker in range(3)))
    made = decide(hangs(asked(), output=look(120), words=words))
    assert failure_of(made.view.status).message.startswith("no step and no output")


def test_the_message_of_a_default_bound_says_how_to_set_another() -> None:
    words = GangWords(1, ago(0), SILENT)
    slow = hangs(job(), output=look(5000), hearing=steps(HOURS, step_s=60), words=words)
    prediction = PREDICTION.model_copy(update={"step_microseconds": 80_000_000})
    patient = replace(slow, status=slow.status.model_copy(update={"prediction": prediction}))
    assert asks(patient) == set(), "50 steps as predicted are 4000 s"
    message = failure_of(decide(slow).view.status).message
    assert "more than 3000 s, 50 steps or half an hour; runPolicy.stallSeconds sets another bound" in message
