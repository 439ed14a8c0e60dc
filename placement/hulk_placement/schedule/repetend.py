"""The repeating pattern of a schedule with the shortest period, over all assignments of micro-batches to its blocks.

A repetend (Tessel, HPCA 2024) has every operation once, for micro-batches that may differ; it repeats every
period, each time for the next micro-batch. So operation o of micro-batch m starts at `offset_O[o]` + m x period, as in
software pipelining; where the period begins may differ between resources. On a resource with its beginning s,
offset = s + period x r + a, with 0 <= a <= period - span: in any period the operation is that of the r-th last
micro-batch, of `num_micro_batches` at most, and no two operations meet. What a device holds when an operation starts is
what the r say of earlier periods, and the order within this one.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from hulk_placement.schedule.bounds import least_period
from hulk_placement.schedule.exact import solver_for
from hulk_placement.schedule.found import DEFAULT_S, Repetend
from hulk_placement.schedule.memory import Memory, check_enough, in_units, limit_of
from hulk_placement.schedule.operations import Operations, Ticks, in_ticks, operations_of
from hulk_placement.schedule.placement import Placement

LAST_SHARE = 0.3
"""Of the seconds, for the shortest way through a pattern once its period is known."""


def repetend(
    placement: Placement,
    memory: Memory = math.inf,
    max_micro_batches: int = 16,
    seconds: float = DEFAULT_S,
    seed: int = 0,
) -> Repetend:
    """The pattern with the shortest period, and of these one through which a micro-batch is quickest.

    ValueError where one micro-batch alone needs more memory than there is, or no pattern was found in time.
    """
    began = time.perf_counter()
    if max_micro_batches < 1:
        raise ValueError(f"a pattern of {max_micro_batches} micro-batches: must be >= 1")
    operations = operations_of(placement)
    check_enough(operations, memory)
    ticks = in_ticks(operations)
    model = _Model(ticks.operations, memory, max_micro_batches)
    model.minimize_period()
    solver = solver_for(seconds * (1 - LAST_SHARE), seed)
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise ValueError(f"no pattern of {max_micro_batches} micro-batches was found in {seconds:g} s")
    bound = max(least_period(operations, memory), solver.best_objective_bound * ticks.length if ticks.is_exact else 0.0)
    period = int(solver.value(model.period))
    last = _Model(ticks.operations, memory, max_micro_batches, period)
    last.minimize_passage(like=model, solved=solver)
    again = solver_for(seconds - (time.perf_counter() - began), seed)
    best = (last, again) if again.solve(last.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE) else (model, solver)
    return _told(operations, ticks, *best, bound, time.perf_counter() - began)


def _told(
    operations: Operations, ticks: Ticks, model: _Model, solver: cp_model.CpSolver, bound: float, seconds: float
) -> Repetend:
    offset_O = np.array([solver.value(offset) for offset in model.offsets], dtype=np.float64)
    period = float(solver.value(model.period)) * ticks.length
    late_O = np.array([int(solver.value(number)) for number in model.late], dtype=np.int64)
    offset_O, late_O = (offset_O - offset_O.min()) * ticks.length, late_O - late_O.min()
    return Repetend(operations, period, offset_O, late_O, min(bound, period), seconds)


class _Model:
    """The constraints of a pattern, in ticks; `given` is its period, where that is known."""

    def __init__(self, operations: Operations, memory: Memory, most: int, given: int | None = None) -> None:
        self.model, self.operations, self.most = cp_model.CpModel(), operations, most
        ops = operations.operations
        one_by_one = int(operations.one_by_one())
        self.longest = max(1, one_by_one if given is None else given)
        least = max(1, int(operations.busiest)) if given is None else given
        latest = max(most * self.longest, one_by_one)
        self.period = self.model.new_int_var(least, max(least, self.longest), "period")
        self.offsets = [self.model.new_int_var(0, 2 * latest, one.name) for one in ops]
        self.late: list[cp_model.LinearExprT] = []
        self.earlier: list[cp_model.IntVar] = []
        for one in ops:
            self._assign(one.name)
        for number, one in enumerate(ops):
            for needed, lag in one.after:
                self.model.add(self.offsets[number] >= self.offsets[needed] + int(ops[needed].span + lag))
        for resource in range(len(operations.resources)):
            self._share(resource, memory)

    def minimize_period(self) -> None:
        """The shortest period."""
        self.model.minimize(self.period)

    def minimize_passage(self, like: _Model, solved: cp_model.CpSolver) -> None:
        """The shortest way of a micro-batch from its first operation to its last, from a solution on."""
        longest = 4 * self.most * self.longest + 4 * int(self.operations.critical_path())
        first, last = self.model.new_int_var(0, longest, "first"), self.model.new_int_var(0, longest, "last")
        for offset, one in zip(self.offsets, self.operations.operations, strict=True):
            self.model.add(first <= offset)
            self.model.add(last >= offset + int(one.span))
        for mine, theirs in zip(self.offsets, like.offsets, strict=True):
            self.model.add_hint(mine, solved.value(theirs))
        self.model.minimize(last - first)

    def _assign(self, name: str) -> None:
        """Which micro-batch, counted back, an operation is for, and that many periods."""
        chosen = [self.model.new_bool_var(f"{name} is {late} late") for late in range(self.most)]
        self.model.add_exactly_one(chosen)
        earlier = self.model.new_int_var(0, self.most * self.longest, f"{name} earlier")
        for late, is_chosen in enumerate(chosen):
            self.model.add(earlier == late * self.period).only_enforce_if(is_chosen)
        self.late.append(sum(late * is_chosen for late, is_chosen in enumerate(chosen)))
        self.earlier.append(earlier)

    def _share(self, resource: int, memory: Memory) -> None:
        """What happens on a resource within a period, from where that begins there."""
        users = self.operations.users(resource)
        beginning = self.model.new_int_var(0, self.longest, f"beginning {resource}")
        within: dict[int, cp_model.IntVar] = {}
        intervals = []
        for number in users:
            span = int(self.operations.operations[number].span)
            within[number] = self.model.new_int_var(0, self.longest, f"{resource} {number}")
            self.model.add(self.offsets[number] == beginning + self.earlier[number] + within[number])
            self.model.add(within[number] + span <= self.period)
            intervals.append(self.model.new_fixed_size_interval_var(within[number], span, f"{resource} {number}"))
        self.model.add_no_overlap(intervals)
        if resource < self.operations.num_devices:
            self._limit(self.operations.holders(resource), within, limit_of(memory, resource))

    def _limit(self, users: list[int], within: dict[int, cp_model.IntVar], limit: float) -> None:
        """The memory of a device: whenever an operation takes some, with what earlier ones took and gave back."""
        ops = self.operations.operations
        taken = sum(max(0.0, ops[number].memory) for number in users)
        if not users or taken * self.most <= limit:
            return
        levels, whole = in_units([ops[number].memory for number in users], limit)
        change = dict(zip(users, levels, strict=True))
        is_before: dict[tuple[int, int], cp_model.LinearExprT] = {}
        for place, first in enumerate(users):
            for second in users[place + 1 :]:
                order = self.model.new_bool_var(f"{first} before {second}")
                for a, b, literal in ((first, second, order), (second, first, order.negated())):
                    self.model.add(within[a] + int(ops[a].span) <= within[b]).only_enforce_if(literal)
                is_before[first, second], is_before[second, first] = order, 1 - order
        held: Any = -sum(change[number] * self.late[number] for number in users)
        for number in users:
            if change[number] > 0:
                before: Any = sum(change[other] * is_before[other, number] for other in users if other != number)
                self.model.add(held + before + change[number] <= whole)
