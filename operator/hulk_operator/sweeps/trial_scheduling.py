"""Which trials begin, wait, go on and stop now (mode jobs): a pure function of what the trials' HulkJobs say.

stop      a trial whose metric is no finite number is stopped, and is Failed; the others go on
suspend   a suspended sweep suspends what runs; nothing begins
wait      a trial that has made its rung's steps waits for the others of its rung
choose    when all wait, the best are promoted, the others stopped
fill      as many as `parallelism` run: first those that were promoted, then those that have not begun
"""

from collections.abc import Iterator

from hulk_operator import names
from hulk_operator.api import TrialPhase
from hulk_operator.sweeps.halving import budgets, choose, is_due
from hulk_operator.sweeps.types import (
    HALVED,
    NOT_FINITE,
    ChangeTrial,
    CreateTrial,
    SweepAction,
    SweepView,
    TrialState,
)


def decide(view: SweepView) -> tuple[SweepAction, ...]:
    """All changes that are due now; each may be carried out or not, and the next pass decides again."""
    stops = tuple(_stops(view))
    stopped = {action.number for action in stops}
    if view.mistakes:
        return ()
    if view.sweep.spec.suspend:
        return (*stops, *_suspends(view, stopped))
    waits = tuple(_waits(view))
    chosen = tuple(_choices(view))
    changed = stopped | {action.number for action in (*waits, *chosen)}
    return (*stops, *waits, *chosen, *_begins(view, changed))


def _stops(view: SweepView) -> Iterator[ChangeTrial]:
    """Trials that diverged, once."""
    for one in view.states:
        if one.diverged and one.stopped != NOT_FINITE:
            yield ChangeTrial(one.trial.number, True, {names.LABEL_STOPPED: NOT_FINITE})


def _suspends(view: SweepView, stopped: set[int]) -> Iterator[ChangeTrial]:
    for one in view.states:
        if one.phase is TrialPhase.RUNNING and not one.suspended and one.trial.number not in stopped:
            yield ChangeTrial(one.trial.number, True)


def _waits(view: SweepView) -> Iterator[ChangeTrial]:
    steps = budgets(view.sweep.spec)
    for one in view.states:
        if one.phase is TrialPhase.RUNNING and not one.suspended and is_due(one, steps):
            yield ChangeTrial(one.trial.number, True)


def _choices(view: SweepView) -> Iterator[ChangeTrial]:
    choice = choose(view.states, view.sweep.spec)
    rungs = {one.trial.number: one.rung for one in view.states}
    for number in choice.promoted:
        yield ChangeTrial(number, labels={names.LABEL_RUNG: str(rungs[number] + 1)})
    for number in choice.stopped:
        yield ChangeTrial(number, labels={names.LABEL_STOPPED: HALVED})


def _begins(view: SweepView, changed: set[int]) -> Iterator[SweepAction]:
    """Trials that begin or go on; what was changed in this pass is looked at again in the next one."""
    steps = budgets(view.sweep.spec)
    free = view.sweep.spec.parallelism - sum(one.phase is TrialPhase.RUNNING for one in view.states)
    able = [one for one in view.states if one.trial.number not in changed and _may_run(one, steps)]
    for one in sorted(able, key=lambda one: (one.phase is TrialPhase.PENDING, one.trial.number))[: max(0, free)]:
        pending = one.phase is TrialPhase.PENDING
        yield CreateTrial(one.trial) if pending else ChangeTrial(one.trial.number, False)


def _may_run(one: TrialState, steps: tuple[int, ...]) -> bool:
    if one.phase is TrialPhase.PENDING:
        return True
    return one.phase is TrialPhase.PAUSED and not one.stopped and not is_due(one, steps)
