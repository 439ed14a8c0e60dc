"""Successive halving (Jamieson & Talwalkar, AISTATS 2016): which trials go on after how many steps.

Trials of rung r run to `min_steps` x eta^r steps and wait there, suspended, with a checkpoint. When the last of them is
there, the best 1 in eta are promoted to rung r + 1, the others stopped; the last rung runs to the job's own end. A
trial that failed before the choice counts for nothing; ties go to the lower number.

What was chosen is written into the trials' labels one by one. A choice that was cut off in the middle comes out the
same when it is made again: trials that wait do not change, and those that were promoted already count.

| min_steps 10, eta 2, steps 40 | rung 0: to 10 | rung 1: to 20 | rung 2: to 40 |
|---|---|---|---|
| 8 trials | 8 run, 4 stopped | 4 run, 2 stopped | 2 run to the end |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hulk_operator.api import HulkSweepSpec, TrialPhase
from hulk_operator.sweeps.types import HALVED, TrialState


@dataclass(frozen=True, slots=True)
class Choice:
    """Numbers of the trials that are promoted, and of those that are stopped."""

    promoted: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()


def budgets(spec: HulkSweepSpec) -> tuple[int, ...]:
    """Steps after which the trials of each rung wait; those of one rung more run to their end."""
    if spec.halving is None:
        return ()
    found, steps = [], spec.halving.min_steps
    while steps < spec.template.spec.training.num_steps:
        found.append(steps)
        steps *= spec.halving.eta
    return tuple(found)


def is_due(state: TrialState, steps: Sequence[int]) -> bool:
    """Whether the trial has come as far as its rung goes, and is to wait for the others."""
    if state.rung >= len(steps):
        return False
    return state.step >= steps[state.rung] or state.phase is TrialPhase.SUCCEEDED


def choose(states: Sequence[TrialState], spec: HulkSweepSpec) -> Choice:
    """The choice that can be made now; nothing while trials of the lowest undecided rung are on their way."""
    steps = budgets(spec)
    for rung in range(len(steps)):
        here = [one for one in states if one.rung == rung and not one.failed]
        undecided = [one for one in here if one.stopped != HALVED]
        if not undecided:
            continue
        if not all(is_due(one, steps) and one.phase is not TrialPhase.RUNNING for one in undecided):
            return Choice()
        assert spec.halving is not None
        promoted_before = sum(one.rung > rung for one in states)
        num_kept = max(1, (len(here) + promoted_before) // spec.halving.eta) - promoted_before
        ranked = [one.trial.number for one in sorted(undecided, key=lambda one: rank(one, spec))]
        return Choice(tuple(ranked[: max(0, num_kept)]), tuple(ranked[max(0, num_kept) :]))
    return Choice()


def rank(state: TrialState, spec: HulkSweepSpec) -> tuple[float, int]:
    """The order of trials, best first; one without a finite metric comes last."""
    if state.metric is None or not math.isfinite(state.metric):
        return math.inf, state.trial.number
    return state.metric if spec.objective.goal == "minimize" else -state.metric, state.trial.number
