"""The shortest schedule of so many micro-batches: proven by constraint programming, or the best found with its bound.

Tessel's problem (HPCA 2024, section IV) with transfers, solved with CP-SAT: an interval for each operation of each
micro-batch, no two at once on a resource, and a reservoir for each device's memory. Micro-batches are alike, so that
every operation may take them in turn: sorting each operation's starts changes nothing that is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from ortools.sat.python import cp_model

from hulk_placement.schedule.bounds import least_makespan
from hulk_placement.schedule.found import DEFAULT_S, Found
from hulk_placement.schedule.memory import Memory, check_enough, in_units, limit_of, unit_of
from hulk_placement.schedule.operations import Operations, Ticks, in_ticks, operations_of
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.timing import Schedule, check, earliest

NUM_WORKERS = 2
LEAST_S = 0.05
"""What a solver gets when the time is up."""


Starts = list[list[cp_model.IntVar]]
"""Of every operation and micro-batch, in ticks."""

Constrain = Callable[[cp_model.CpModel, Starts, Ticks], None]
"""Says more of starts, such as that some follow each other by a period."""


def solver_for(seconds: float, seed: int) -> cp_model.CpSolver:
    """A solver that ends within so many seconds."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(LEAST_S, seconds)
    solver.parameters.num_workers = NUM_WORKERS
    solver.parameters.random_seed = seed
    return solver


def time_optimal(
    placement: Placement,
    num_micro_batches: int,
    memory: Memory = math.inf,
    seconds: float = DEFAULT_S,
    begin: Schedule | None = None,
    seed: int = 0,
    constrain: Constrain | None = None,
) -> Found:
    """The schedule with the least makespan, proven, or the best within so many seconds and what none is below.

    `begin` is a schedule to make better; it may be what comes out. With constraints of its own a schedule's starts are
    as they are found, and the bound is that of all schedules. ValueError where no schedule keeps the memory, or none
    was found in time.
    """
    began = time.perf_counter()
    operations = operations_of(placement)
    check_enough(operations, memory)
    ticks = in_ticks(operations)
    model, starts = _model(ticks.operations, num_micro_batches, memory, ticks, begin)
    if constrain is not None:
        constrain(model, starts, ticks)
    solver = solver_for(seconds - (time.perf_counter() - began), seed)
    status = solver.solve(model)
    bound = least_makespan(operations, num_micro_batches, memory)
    if ticks.is_exact and constrain is None and status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        bound = max(bound, solver.best_objective_bound * ticks.length)
    found = begin
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        solved = np.array([[solver.value(start) for start in row] for row in starts], dtype=np.float64) * ticks.length
        better = Schedule(operations, solved)
        better = better if constrain else earliest(operations, better.orders(), num_micro_batches)
        found = better if begin is None or better.makespan < begin.makespan else begin
    if found is None and status == cp_model.INFEASIBLE and constrain is None:
        limits = ", ".join(f"{limit_of(memory, device):g}" for device in range(operations.num_devices))
        raise ValueError(
            f"no schedule keeps the memory of all devices ({limits}), though each has enough for a micro-batch alone: "
            f"what one holds another one waits for{_what_would_do(ticks, memory, seed)}"
        )
    if found is None:
        raise ValueError(f"no schedule of {num_micro_batches} micro-batches was found in {seconds:g} s")
    check(found, memory)
    return Found(found, min(bound, found.makespan), time.perf_counter() - began)


def _model(
    operations: Operations, num_micro_batches: int, memory: Memory, ticks: Ticks, begin: Schedule | None
) -> tuple[cp_model.CpModel, Starts]:
    """The model in ticks: the start of every operation of every micro-batch, and the makespan, which is least."""
    model, ops = cp_model.CpModel(), operations.operations
    latest = num_micro_batches * int(operations.one_by_one())
    heads, tails = operations.heads(), operations.tails()
    makespan = model.new_int_var(int(least_makespan(operations, num_micro_batches)), max(1, latest), "makespan")
    starts: Starts = []
    intervals: dict[int, list[cp_model.IntervalVar]] = {}
    for number, one in enumerate(ops):
        row = [model.new_int_var(int(heads[number]), latest, f"{one.name} {m}") for m in range(num_micro_batches)]
        starts.append(row)
        for m, start in enumerate(row):
            interval = model.new_fixed_size_interval_var(start, int(one.span), f"{one.name} {m}")
            for resource in one.resources:
                intervals.setdefault(resource, []).append(interval)
            for needed, lag in one.after:
                model.add(start >= starts[needed][m] + int(ops[needed].span + lag))
            model.add(makespan >= start + int(one.span + tails[number]))
            if m:
                model.add(start >= row[m - 1] + (int(one.span) if one.resources else 0))
            if begin is not None:
                model.add_hint(start, math.ceil(begin.starts_ON[number, m] / ticks.length))
    for together in intervals.values():
        model.add_no_overlap(together)
    for device in range(operations.num_devices):
        _limit(model, operations, device, starts, limit_of(memory, device))
    model.minimize(makespan)
    return model, starts


def _limit(
    model: cp_model.CpModel,
    operations: Operations,
    device: int,
    starts: Starts,
    limit: float,
    more: cp_model.IntVar | None = None,
) -> None:
    """The device's memory, and `more` units of it, where all micro-batches together may need more than there is."""
    users = operations.holders(device)
    taken = sum(max(0.0, operations.operations[number].memory) for number in users)
    if not users or taken * len(starts[0]) <= limit:
        return
    times: list[cp_model.LinearExprT] = [] if more is None else [0]
    changes: list[cp_model.LinearExprT] = [] if more is None else [-more]
    levels, whole = in_units([operations.operations[number].memory for number in users], limit)
    for number, change in zip(users, levels, strict=True):
        span = int(operations.operations[number].span) if change < 0 else 0
        times += [start + span for start in starts[number]]
        changes += [change] * len(starts[number])
    model.add_reservoir_constraint(times, changes, -(1 << 40), whole)


def _what_would_do(ticks: Ticks, memory: Memory, seed: int) -> str:
    """What to add, by device, for one micro-batch after another: as little in all as is found; "" where time is up."""
    operations = ticks.operations
    model, starts = _model(operations, 1, math.inf, ticks, None)
    added = []
    for device in range(operations.num_devices):
        if users := operations.holders(device):
            amounts = [abs(operations.operations[number].memory) for number in users]
            more = model.new_int_var(0, sum(in_units(amounts, 0.0)[0]), f"more of {device}")
            _limit(model, operations, device, starts, limit_of(memory, device), more)
            added.append(unit_of(amounts) * more)
    model.minimize(sum(added))
    solver = solver_for(DEFAULT_S, seed)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ""
    solved = Schedule(
        operations, np.array([[solver.value(start) for start in row] for row in starts], dtype=np.float64)
    )
    lacks = {device: peak - limit_of(memory, device) for device, peak in enumerate(solved.peak_memory())}
    told = ", ".join(f"device {device} {amount:g}" for device, amount in lacks.items() if amount > 0)
    return f"; it would do to give {told} more" if told else ""
