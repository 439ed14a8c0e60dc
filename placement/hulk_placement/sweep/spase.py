"""The shortest plan for a sweep, with CP-SAT: model building, solving, reading, apart.

Each trial has one interval for each way and worker, of which exactly one is there. Devices of a worker are alike, so
that the model only counts them (a cumulative constraint); which ones a trial gets is read off afterwards: at its start
so many are free, because never more are in use than there are. A device that is busy until some time counts as taken
from the beginning until then. The same seed and work limit give the same plan.

| two devices | greedy, longest first | shortest |
|---|---|---|
| trials of 3, 3, 2, 2, 2 s | 3+2+2 and 3+2: 7 s | 3+3 and 2+2+2: 6 s |
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ortools.sat.python import cp_model

from hulk_placement.sweep.greedy import Devices, greedy
from hulk_placement.sweep.problem import Option, Plan, Problem

DEFAULT_WORK = 2.0
"""CP-SAT's deterministic seconds: about as many on one core."""

TICKS = 10_000
"""The greedy plan's length in ticks: times are rounded to a ten-thousandth of it, which is less than they vary."""

GAP = 0.001
"""A plan that is so close to what none can beat counts as the shortest."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A trial in one way at one worker, if `there`."""

    trial: str
    option: Option
    worker: str
    there: cp_model.IntVar
    start: cp_model.IntVar
    ticks: int


def solve(problem: Problem, work: float = DEFAULT_WORK, seed: int = 0) -> Plan:
    """The shortest plan, or the best that so much work finds, never longer than the greedy one."""
    first = greedy(problem)
    if first.proven or not problem.trials or work <= 0:
        return first
    tick_s = first.makespan_s / TICKS
    model, choices = _model(problem, first, tick_s)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = work
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.relative_gap_limit = GAP
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return first
    bound_s = max(problem.bound_s(), (solver.best_objective_bound - len(problem.trials)) * tick_s)
    found = _read(problem, choices, solver)
    best = min(first, found, key=lambda plan: plan.makespan_s)
    bound_s = min(bound_s, best.makespan_s)
    return Plan(best.placed, bound_s, best.makespan_s <= bound_s * (1 + GAP))


def _model(problem: Problem, first: Plan, tick_s: float) -> tuple[cp_model.CpModel, list[_Choice]]:
    """In ticks, durations rounded up. The horizon has room for the greedy plan after rounding."""
    model = cp_model.CpModel()
    horizon = TICKS + 2 * len(problem.trials) + 1
    makespan = model.new_int_var(0, horizon, "makespan")
    known = {one.trial: one for one in first.placed}
    choices: list[_Choice] = []
    intervals: dict[str, list[tuple[cp_model.IntervalVar, int]]] = {worker.name: [] for worker in problem.workers}
    for trial in problem.trials:
        own = []
        for option in trial.options:
            ticks = math.ceil(option.seconds / tick_s - 1e-9)
            for worker in problem.places(trial, option):
                if ticks > horizon:
                    continue
                name = f"{trial.name} {option.parallelism} {option.num_devices} {worker.name}"
                there, start = model.new_bool_var(name), model.new_int_var(0, horizon - ticks, name)
                interval = model.new_optional_fixed_size_interval_var(start, ticks, there, name)
                intervals[worker.name].append((interval, option.num_devices))
                model.add(makespan >= start + ticks).only_enforce_if(there)
                was = known[trial.name]
                model.add_hint(there, (was.option, was.worker) == (option, worker.name))
                own.append(_Choice(trial.name, option, worker.name, there, start, ticks))
        model.add_exactly_one(choice.there for choice in own)
        choices += own
    for worker in problem.workers:
        busy = [math.ceil(s / tick_s) for s in worker.free_s]
        _limit(model, intervals[worker.name], worker.num_devices, busy)
        mine = [one for one in choices if one.worker == worker.name]
        if not any(busy):  # a device may be busy until after the last trial's end
            work = sum(one.ticks * one.option.num_devices * one.there for one in mine)
            model.add(work <= worker.num_devices * makespan)  # follows, and proves far sooner
    model.minimize(makespan)
    return model, choices


def _limit(
    model: cp_model.CpModel, intervals: Iterable[tuple[cp_model.IntervalVar, int]], num_devices: int, free: list[int]
) -> None:
    """Never more devices in use than a worker has."""
    rows = [*intervals]
    rows += [(model.new_fixed_size_interval_var(0, busy, "busy"), 1) for busy in free if busy > 0]
    model.add_cumulative([row[0] for row in rows], [row[1] for row in rows], num_devices)


def _read(problem: Problem, choices: list[_Choice], solver: cp_model.CpSolver) -> Plan:
    """Devices by the order of the starts, then each start as early as its devices allow: no rounding is left."""
    devices, placed = Devices(problem), []
    chosen = [choice for choice in choices if solver.value(choice.there)]
    for choice in sorted(chosen, key=lambda one: (solver.value(one.start), one.trial)):
        placed.append(devices.take(devices.soonest(choice.trial, choice.option, choice.worker)))
    return Plan(tuple(placed), 0.0, False)
