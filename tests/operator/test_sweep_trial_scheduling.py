"""Which trials begin, wait, go on and stop: decisions over frozen views, without a cluster."""

import json
import math

import pytest
from hulk_operator import names
from hulk_operator.api import HulkSweepStatus, SweepPhase, TrialPhase
from hulk_operator.api.schema import structural
from hulk_operator.sweeps.halving import budgets, choose
from hulk_operator.sweeps.status import sweep_status
from hulk_operator.sweeps.trial_scheduling import decide
from hulk_operator.sweeps.types import HALVED, NOT_FINITE, ChangeTrial, CreateTrial, TrialState
from sweep_cases import halved, state, sweep, view
from test_api_models import largest

RUNNING, PAUSED, DONE = TrialPhase.RUNNING, TrialPhase.PAUSED, TrialPhase.SUCCEEDED
FAILED, STOPPED = TrialPhase.FAILED, TrialPhase.STOPPED


def begun(actions: tuple[object, ...]) -> list[int]:
    return [action.trial.number for action in actions if isinstance(action, CreateTrial)]


def changes(actions: tuple[object, ...]) -> list[ChangeTrial]:
    return [action for action in actions if isinstance(action, ChangeTrial)]


def test_as_many_begin_as_may_run_at_once() -> None:
    assert begun(decide(view(sweep(parallelism=3)))) == [0, 1, 2]
    assert begun(decide(view(sweep(parallelism=3), state(0), state(1, DONE, 2.0)))) == [2, 3]
    assert decide(view(sweep(parallelism=1), state(0), state(1))) == ()


def test_nothing_begins_where_the_description_is_wrong() -> None:
    assert decide(view(sweep(), mistakes=("parameter rate is used nowhere",))) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_trial_that_diverges_is_stopped_and_the_others_go_on(value: float) -> None:
    actions = decide(view(sweep(), state(0, FAILED, value), state(1)))
    assert changes(actions) == [ChangeTrial(0, True, {names.LABEL_STOPPED: NOT_FINITE})]
    assert begun(actions) == [2]
    assert changes(decide(view(sweep(), state(0, FAILED, value, stopped=NOT_FINITE)))) == []


def test_a_suspended_sweep_suspends_what_runs_and_begins_nothing() -> None:
    actions = decide(view(sweep(suspend=True), state(0), state(1, DONE), state(2, suspended=True)))
    assert actions == (ChangeTrial(0, True),)


def test_a_resumed_sweep_goes_on_with_what_waits_before_it_begins_more() -> None:
    assert decide(view(sweep(parallelism=2), state(1, PAUSED))) == (
        ChangeTrial(1, False),
        CreateTrial(view(sweep()).states[0].trial),
    )


def test_rungs_grow_by_eta_up_to_the_jobs_steps() -> None:
    assert budgets(halved().spec) == (10, 20)
    assert budgets(sweep(halving={"eta": 4, "minSteps": 10}).spec) == (10,)
    assert budgets(sweep().spec) == ()


def test_a_trial_that_has_made_its_rungs_steps_waits() -> None:
    actions = decide(view(halved(), state(0, step=10), state(1, step=9)))
    assert actions == (ChangeTrial(0, True),)


def test_no_choice_while_one_of_the_rung_is_on_its_way() -> None:
    waiting = [state(n, PAUSED, float(n), step=10) for n in range(3)]
    assert changes(decide(view(halved(), *waiting, state(3, step=9)))) == []
    assert begun(decide(view(halved(), *waiting))) == [3]


def test_the_best_of_a_rung_are_promoted_and_the_others_stopped() -> None:
    rungs = [state(n, PAUSED, loss, step=10) for n, loss in enumerate([2.0, 1.0, 3.0, 1.5])]
    assert changes(decide(view(halved(), *rungs))) == [
        ChangeTrial(1, labels={names.LABEL_RUNG: "1"}),
        ChangeTrial(3, labels={names.LABEL_RUNG: "1"}),
        ChangeTrial(0, labels={names.LABEL_STOPPED: HALVED}),
        ChangeTrial(2, labels={names.LABEL_STOPPED: HALVED}),
    ]
    best = choose(rungs, halved(objective={"goal": "maximize"}).spec).promoted
    assert best == (2, 0)


def test_what_was_promoted_goes_on_and_what_was_stopped_does_not() -> None:
    seen = view(
        halved(),
        state(0, STOPPED, 2.0, step=10, stopped=HALVED),
        state(1, PAUSED, 1.0, step=10, rung=1),
        state(2, STOPPED, 3.0, step=10, stopped=HALVED),
        state(3, PAUSED, 1.5, step=10, rung=1),
    )
    assert decide(seen) == (ChangeTrial(1, False), ChangeTrial(3, False))


@pytest.mark.parametrize("num_done", range(5))
def test_a_choice_that_was_cut_off_comes_out_the_same(num_done: int) -> None:
    """The operator is killed after any of its writes; the promoted have gone on meanwhile, and look worse."""
    losses = [2.0, 1.0, 3.0, 1.5]
    choice = choose([state(n, PAUSED, loss, step=10) for n, loss in enumerate(losses)], halved().spec)
    promoted = dict.fromkeys((*choice.promoted, *choice.stopped)[:num_done])
    after = []
    for number, loss in enumerate(losses):
        if number in promoted and number in choice.promoted:
            after.append(state(number, RUNNING, 9.0, step=12, rung=1))
        elif number in promoted:
            after.append(state(number, STOPPED, loss, step=10, stopped=HALVED))
        else:
            after.append(state(number, PAUSED, loss, step=10))
    again = choose(after, halved().spec)
    assert set(again.promoted) | {n for n in promoted if n in choice.promoted} == set(choice.promoted)
    assert set(again.stopped) | {n for n in promoted if n in choice.stopped} == set(choice.stopped)


def test_a_failed_trial_counts_for_no_choice_and_one_is_always_kept() -> None:
    states = [state(0, FAILED, math.nan, stopped=NOT_FINITE), state(1, FAILED), state(2, FAILED)]
    assert choose([*states, state(3, PAUSED, None, step=10)], halved().spec).promoted == (3,)


def test_a_trial_that_was_done_before_it_could_wait_takes_part() -> None:
    states = [state(0, DONE, 1.0, step=40), *(state(n, PAUSED, 2.0 + n, step=11) for n in (1, 2, 3))]
    assert choose(states, halved().spec) == type(choose(states, halved().spec))((0, 1), (2, 3))


def test_a_trial_that_is_gone_is_run_again() -> None:
    assert begun(decide(view(sweep(parallelism=1), state(1, DONE, 1.0)))) == [0]


# What the status says.


def test_the_status_counts_and_names_the_best() -> None:
    one = sweep(objective={"metric": "hulk_worker_loss"})
    seen = view(one, state(0, DONE, 2.0, step=40), state(1, FAILED, math.nan, reason=NOT_FINITE), state(2, step=3))
    found = sweep_status(seen)
    assert (found.trials.total, found.trials.succeeded, found.trials.failed) == (4, 1, 1)
    assert (found.trials.running, found.trials.pending) == (1, 1)
    assert found.best is not None
    assert (found.best.name, found.best.metric, found.best.step) == ("rates-t0", "2", 40)
    assert (found.phase, found.table[1].metric, found.table[1].reason) == (SweepPhase.RUNNING, "nan", NOT_FINITE)
    assert found.completion_time is None


def test_a_sweep_ends_when_no_trial_is_left_and_fails_when_all_have() -> None:
    done = [state(n, DONE, 1.0) for n in range(3)]
    assert sweep_status(view(sweep(), *done, state(3, FAILED))).phase is SweepPhase.SUCCEEDED
    ended = sweep_status(view(sweep(), *(state(n, FAILED) for n in range(4))))
    assert (ended.phase, ended.conditions[-1].reason) == (SweepPhase.FAILED, "AllTrialsFailed")
    assert ended.completion_time is not None


def test_a_metric_that_was_never_seen_is_told() -> None:
    one = sweep(objective={"metric": "accuracy"})
    said = sweep_status(view(one, *(state(n, DONE) for n in range(4)))).conditions
    assert "of 4 that have not failed the metric accuracy was never seen" in said[-1].message


def test_a_mistake_is_a_condition_with_its_sentence() -> None:
    found = sweep_status(view(sweep(), mistakes=("parameter rate is used nowhere",)))
    assert (found.conditions[0].type, found.conditions[0].status) == ("Valid", "False")
    assert (found.conditions[0].reason, found.phase) == ("BadParameters", SweepPhase.PENDING)
    assert found.conditions[0].message == "parameter rate is used nowhere"


def test_suspended_and_resumed_are_told() -> None:
    found = sweep_status(view(sweep(suspend=True), state(0, PAUSED)))
    assert (found.phase, found.trials.paused) == (SweepPhase.SUSPENDED, 1)
    again = sweep().model_copy(update={"status": found})
    assert sweep_status(view(again, state(0))).phase is SweepPhase.RUNNING


def test_a_table_of_1000_trials_keeps_the_best_and_those_that_run() -> None:
    axes = [{"name": "rate", "values": [str(n) for n in range(1000)]}]
    states: list[TrialState] = [state(n, DONE, 10.0 + n) for n in range(900)]
    states[899] = state(899, DONE, 1.0)
    states += [state(n) for n in range(900, 910)]
    found = sweep_status(view(sweep(parameters={"grid": axes}), *states))
    rows = [row.name for row in found.table]
    assert len(rows) == 100
    assert {"rates-t899", *(f"rates-t{n}" for n in range(900, 910))} <= set(rows)
    assert found.trials.pending == 90


def test_the_largest_status_that_the_schema_admits_is_below_64_kib() -> None:
    schema = structural(HulkSweepStatus)
    parameters = schema["properties"]["best"]["properties"].pop("parameters")
    assert (parameters["maxProperties"], parameters["additionalProperties"]["maxLength"]) == (16, 256)
    status = largest(schema)
    status["best"]["parameters"] = {f"{n:032}": "v" * 256 for n in range(16)}
    parsed = HulkSweepStatus.model_validate(status)
    assert len(parsed.table) == 100
    assert len(json.dumps(parsed.wire(), separators=(",", ":")).encode()) < 64 * 1024
