"""The planner's front door: all workloads, what already runs, and the topology become plans."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hulk_placement.layouts import place as layouts
from hulk_placement.plan import Plan
from hulk_placement.search.keep import place_keeping
from hulk_placement.search.problem import Budget, Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

MIN_SECONDS = 0.01
"""What a workload gets when the ones before it took all the time: enough for the orders that need no search."""

__all__ = ["Budget", "Solution", "Unplaced", "precedence", "solve"]


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan for every workload that got one, by key, and the reason for every workload that did not."""

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, Unplaced]


def solve(
    workloads: Sequence[Workload],
    running: Sequence[Plan],
    topology: Topology,
    budget: Budget | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Solution:
    """Plans for the workloads on what `running` leaves free: first in, first out, higher priority first.

    A workload that cannot be placed is passed over with a reason and does not hold back the ones behind it. A machine's
    accelerators are handed out once: `running` plans keep theirs, and each new plan takes its own from the next. Those
    of a workload's `kept` workers are for itself alone, whether its plan uses them or not. Deterministic: the same
    arguments give the same plans, unless `budget.seconds` ends a search; each workload may take an equal part of what
    the ones before it left. ValueError when two workloads have one key.
    """
    allowed = budget or Budget()
    end_s = clock() + allowed.seconds
    if len({workload.key for workload in workloads}) != len(workloads):
        raise ValueError(f"{len(workloads)} workloads have only {len({w.key for w in workloads})} different keys")
    left = topology
    for held in running:
        left = _less(left, held.accelerators())
    plans: dict[str, Plan] = {}
    unplaced: dict[str, Unplaced] = {}
    for num_placed, workload in enumerate(sorted(workloads, key=precedence)):
        seconds = max(MIN_SECONDS, (end_s - clock()) / (len(workloads) - num_placed))
        kept = {machine: count * workload.accelerators_per_worker for machine, count in workload.kept.items()}
        given_back = {machine: -count for machine, count in kept.items()}
        outcome = _place(workload, _less(left, given_back), replace(allowed, seconds=seconds), clock)
        if isinstance(outcome, Unplaced):
            unplaced[workload.key] = outcome
        else:
            plans[workload.key] = outcome
            left = _less(left, Counter(outcome.accelerators()) - Counter(kept))
    return Solution(plans, unplaced)


def precedence(workload: Workload) -> tuple[int, float, str]:
    """What decides who is placed first: the smallest goes first."""
    return -workload.priority, workload.created_s, workload.key


def _place(workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]) -> Plan | Unplaced:
    """The best plan: of data parallelism alone, whose rings are searched exactly, or of any layout, as far as allowed.

    Constraints on layers, price and memory are known to the search over layouts only.
    """
    if (workload.pipeline, workload.tensor) == (1, 1) and not _is_constrained(workload):
        return place_keeping(workload, topology, budget, clock)
    half = replace(budget, seconds=budget.seconds / 2)
    found = layouts.place(workload, topology, half, clock)
    if workload.pipeline in (None, 1) and workload.tensor in (None, 1) and not _is_constrained(workload):
        data = place_keeping(replace(workload, pipeline=1, tensor=1), topology, half, clock)
        if isinstance(data, Plan) and (isinstance(found, Unplaced) or data.prediction.step_s < found.prediction.step_s):
            return data
    return found


def _is_constrained(workload: Workload) -> bool:
    """Whether the workload asks for what only the search over layouts knows."""
    asked = workload.objective != "time" or workload.max_price_per_hour is not None or workload.recompute
    return bool(asked or workload.layer_pins or workload.data is not None)


def _less(topology: Topology, taken: Mapping[str, int]) -> Topology:
    """The topology with so many accelerators of each machine taken; machines it no longer has are not missed."""
    return replace(
        topology,
        machines=tuple(
            replace(machine, num_accelerators=max(0, machine.num_accelerators - taken.get(machine.name, 0)))
            for machine in topology.machines
        ),
    )
