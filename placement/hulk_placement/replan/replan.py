"""The front of re-planning: what changed, both steps, what the move costs, the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from hulk_placement.basis import Basis
from hulk_placement.cost.compute import is_any_known
from hulk_placement.cost.money import accelerators_per_s, judged
from hulk_placement.cost.warm_up import predict_warm_up, steps_left
from hulk_placement.plan import Plan
from hulk_placement.replan import starts
from hulk_placement.replan.answer import Replanned, Situation
from hulk_placement.replan.changes import Changes, changes
from hulk_placement.replan.decide import Policy, Verdict, Weighed, amount, decide
from hulk_placement.replan.moving import MoveCost, move_cost
from hulk_placement.restart import Moving
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

ROUNDING = 1e-9
"""By as much two plans that are alike may differ."""


@dataclass(frozen=True, slots=True)
class _Option:
    plan: Plan
    cost: MoveCost
    total: float
    """What is left to be paid until the training has ended, in what the workload is to save."""


def replan(
    plan: Plan,
    basis: Basis | None,
    workload: Workload,
    topology: Topology,
    situation: Situation,
    moving: Moving | None = None,
    policy: Policy | None = None,
    budget: Budget | None = None,
    clock: starts.Clock = time.monotonic,
) -> Replanned:
    """Whether to go on with the plan.

    The topology counts the accelerators that the plan holds as free. `basis` None: what the plan was made of is not
    known, so that only gain and cost decide. The plan to move to is the one that ends first with its move counted; of
    a plan that cannot go on, the steps since the last checkpoint are made again (`moving.repeated_steps`).
    """
    moving, policy = moving or Moving(), policy or Policy()
    changed = changes(plan, basis, workload, topology)
    current = starts.as_it_is(plan, workload, topology, changed)
    found = starts.candidates(plan, workload, topology, budget or Budget(), clock)
    if isinstance(found, Unplaced):
        return _nowhere(changed, current, found)
    if isinstance(current, Plan):
        moving = replace(moving, repeated_steps=0.0)
    options = [_option(plan, new, workload, topology, moving, situation) for new in found]
    best = _best(options, current, workload, topology, situation)
    if isinstance(current, str):
        reason = f"The plan cannot go on: {current}. {_words(plan, best, workload, situation)}"
        return Replanned(Verdict.MOVE, reason, changed, None, best.plan, best.cost, None)
    unit = _unit(workload)
    weighed = Weighed(
        step=_step(current, workload, topology, situation),
        new_step=_step(best.plan, workload, topology, situation),
        steps_left=situation.steps_left,
        cost=best.cost.seconds * _price(best.plan, workload, topology),
        unit=unit,
    )
    verdict, reason = decide(weighed, changed, situation.held_s, policy)
    return Replanned(verdict, reason, changed, current, best.plan, best.cost, weighed)


def _best(
    options: list[_Option], current: Plan | str, workload: Workload, topology: Topology, situation: Situation
) -> _Option:
    """The one that ends first; where the current plan can go on, of those with a better step, if there are any."""
    if isinstance(current, Plan):
        least = _step(current, workload, topology, situation) * (1 - ROUNDING)
        better = [option for option in options if _step(option.plan, workload, topology, situation) < least]
        options = better or options
    return min(options, key=lambda option: option.total)


def _nowhere(changed: Changes, current: Plan | str, found: Unplaced) -> Replanned:
    """No other plan: the current one goes on, or the job waits."""
    if isinstance(current, Plan):
        reason = f"There is no other plan: {found.message}"
        return Replanned(Verdict.STAY, reason, changed, current, None, None, None, found)
    reason = f"The plan cannot go on: {current}; and there is no other one: {found.message}"
    return Replanned(Verdict.STAY, reason, changed, None, None, None, None, found)


def _option(
    old: Plan, new: Plan, workload: Workload, topology: Topology, moving: Moving, situation: Situation
) -> _Option:
    cost = move_cost(old, new, workload, topology, moving)
    steps = situation.steps_left * _step(new, workload, topology, situation)
    return _Option(new, cost, cost.seconds * _price(new, workload, topology) + steps)


def _unit(workload: Workload) -> str:
    return "s" if workload.objective == "time" else "money"


def _price(plan: Plan, workload: Workload, topology: Topology) -> float:
    """What a second of moving costs: a second, or the price of the accelerators."""
    return 1.0 if workload.objective == "time" else accelerators_per_s(plan, topology)


def _step(plan: Plan, workload: Workload, topology: Topology, situation: Situation) -> float:
    """What a step costs, in the mean over those left: of local SGD's warm-up, and after it."""
    num_together = min(situation.steps_left, steps_left(plan, workload, situation.num_made))
    after = _cost(plan, workload, topology)
    if not num_together:
        return after
    warm_up = replace(plan, prediction=predict_warm_up(plan, workload, topology))
    return after + num_together / situation.steps_left * (_cost(warm_up, workload, topology) - after)


def _cost(plan: Plan, workload: Workload, topology: Topology) -> float:
    """What a step as the plan predicts it costs, in what the workload is to save.

    Where no machine's speed is known, computing counts for nothing: a guess of speeds moves nobody.
    """
    if workload.objective != "time" or is_any_known(workload, topology):
        return judged(plan, workload)
    return plan.prediction.communication_s + plan.prediction.bubble_s


def _words(old: Plan, best: _Option, workload: Workload, situation: Situation) -> str:
    new, held = best.plan.prediction, old.prediction.step_s
    before = f" (before: {amount(held, 's')})" if held else ""
    return (
        f"The new plan takes {amount(new.step_s, 's')} a step{before} on {best.plan.layout.num_ranks} accelerators, "
        f"and {amount(best.cost.seconds, 's')} to move to; {situation.steps_left:,} steps are left."
        f"{_lost(best, workload)}"
    )


def _lost(best: _Option, workload: Workload) -> str:
    """What has to be known of layers that no machine has any more, where nothing says where they are kept."""
    num_lost, num_layers = best.cost.num_lost_layers, len(workload.model.layers)
    if not num_lost:
        return ""
    return (
        f" No machine that is left had {num_lost} of {num_layers} layers: a checkpoint of them is taken to be on "
        f"{best.plan.machine(0, 0)} already, which costs nothing; name the region of its store where it is elsewhere."
    )
