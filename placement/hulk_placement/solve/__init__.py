"""The planner's front door: all workloads, what already runs, and the topology become plans."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hulk_placement.layouts import place as layouts
from hulk_placement.layouts.data_parallel import best_of, place_replicas
from hulk_placement.layouts.sharded import needs_shards, place_sharded, sharded
from hulk_placement.plan import Plan
from hulk_placement.search.problem import NO_MEMORY
from hulk_placement.solution import Budget, Record, Solution, Unplaced, precedence
from hulk_placement.solve.together import place_together
from hulk_placement.stages import staged
from hulk_placement.topology import Topology, less
from hulk_placement.workload import Workload

MIN_SECONDS = 0.01
"""What a workload gets when the ones before it took all the time: enough for the orders that need no search."""


def solve(
    workloads: Sequence[Workload],
    running: Sequence[Plan],
    topology: Topology,
    budget: Budget | None = None,
    clock: Callable[[], float] = time.monotonic,
    starts: Mapping[str, Plan] | None = None,
) -> Solution:
    """Plans for the workloads on what `running` leaves free, those of the highest priority first.

    Workloads of one priority are planned together, so that the product of their steps' seconds is least; where not all
    of them have room, the oldest go first. A workload that cannot be placed is passed over with a reason and does not
    hold back the others. A machine's accelerators are handed out once: `running` plans keep theirs. Those of a
    workload's `kept` workers are for itself alone, whether its plan uses them or not; such a one is planned in its
    turn. Deterministic: the same arguments give the same plans, unless the clock ends a search, for which all workloads
    wait: then the same readings do. Each workload may take an equal part of the seconds that the ones before it left.
    `starts` are plans that are carried out already, by key: such a workload is planned in its turn, and searches over
    layouts begin there. ValueError when two workloads have one key.
    """
    given = budget or Budget()
    allowed = replace(given, num_waiting=len(workloads), record=Record(given.record.given))
    end_s = clock() + allowed.seconds
    workloads = [sharded(job) if needs_shards(job, topology) else job for job in workloads]
    if len({workload.key for workload in workloads}) != len(workloads):
        raise ValueError(f"{len(workloads)} workloads have only {len({w.key for w in workloads})} different keys")
    left = topology
    for held in running:
        left = less(left, held.accelerators())
    plans: dict[str, Plan] = {}
    unplaced: dict[str, Unplaced] = {}
    begun, num_left = starts or {}, len(workloads)
    for group in _groups(sorted(workloads, key=precedence), begun):
        seconds = max(MIN_SECONDS, (end_s - clock()) * len(group) / num_left)
        num_left -= len(group)
        share = replace(allowed, seconds=seconds)
        if len(group) > 1:
            found, refused = place_together(group, left, share, clock, _place, data_plan)
        else:
            found, refused = _in_turn(group[0], left, share, clock, begun.get(group[0].key))
        unplaced |= refused
        for workload in group:
            if workload.key in found:
                plans[workload.key] = plan = found[workload.key]
                left = less(left, Counter(plan.accelerators()) - Counter(_kept(workload)))
    return Solution(plans, unplaced, tuple(allowed.record.made))


def _groups(workloads: Sequence[Workload], begun: Mapping[str, Plan]) -> list[list[Workload]]:
    """Those that follow each other with one priority together; alone what has workers or a plan already, or shards."""
    groups: list[list[Workload]] = []
    for workload in workloads:
        before = groups[-1][-1] if groups else workload
        is_free = not any(job.kept or job.key in begun or job.shard != 1 for job in (before, workload))
        if groups and is_free and before.priority == workload.priority:
            groups[-1].append(workload)
        else:
            groups.append([workload])
    return groups


def _in_turn(
    workload: Workload, left: Topology, budget: Budget, clock: Callable[[], float], start: Plan | None
) -> tuple[dict[str, Plan], dict[str, Unplaced]]:
    """One workload on what is left, and on what it keeps."""
    given_back = {machine: -count for machine, count in _kept(workload).items()}
    outcome = _place(workload, less(left, given_back), budget, clock, start)
    return ({}, {workload.key: outcome}) if isinstance(outcome, Unplaced) else ({workload.key: outcome}, {})


def _kept(workload: Workload) -> dict[str, int]:
    """Accelerators of the workers that wait, by machine."""
    return {machine: count * workload.accelerators_per_worker for machine, count in workload.kept.items()}


def _place(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float], start: Plan | None = None
) -> Plan | Unplaced:
    """The best plan: of data parallelism alone, which has searches of its own, or of any layout, as far as allowed.

    What is asked of layers is known to the search over layouts only, pinned workers to that of whole models.
    """
    if workload.pins:
        return _place_pinned(workload, topology, budget, clock)
    if workload.shard != 1:
        return place_sharded(workload, topology, budget, clock, start)
    if (workload.pipeline, workload.tensor) == (1, 1) and not _is_about_layers(workload):
        whole = place_replicas(workload, topology, budget, clock)
        if isinstance(whole, Plan) or whole.reason != NO_MEMORY or not workload.stages_if_needed:
            return whole
        return layouts.place(staged(workload), topology, budget, clock, start=start)
    half = replace(budget, seconds=budget.seconds / 2)
    found = layouts.place(workload, topology, half, clock, start=start)
    data = data_plan(workload, topology, half, clock)
    if isinstance(data, Plan) and isinstance(found, Plan):
        return best_of((found, data), workload)
    return data if isinstance(data, Plan) else found


def _place_pinned(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]
) -> Plan | Unplaced:
    """The best plan of workers whose machines are given, each rank of which holds the whole model."""
    num_ranks = len(workload.pins) * workload.accelerators_per_worker
    wishes = {
        f"{workload.pipeline} pipeline stages": workload.pipeline not in (None, 1),
        f"{workload.tensor} tensor-parallel ranks": workload.tensor not in (None, 1),
        "shards": workload.shard != 1,
        f"{workload.data} replicas": workload.data not in (None, num_ranks),
        "recomputation": bool(workload.recompute),
        "layers bound to places": bool(workload.layer_pins),
    }
    asked = [wish for wish, is_asked in wishes.items() if is_asked]
    if asked:
        return Unplaced(
            "PinsNotPossible",
            f"The machines of {len(workload.pins)} workers are given, so there are {num_ranks} ranks that hold whole "
            f"models; that and {', '.join(asked)} exclude each other.",
        )
    return place_replicas(replace(workload, data=None), topology, budget, clock)


def data_plan(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]
) -> Plan | Unplaced | None:
    """The best plan of data parallelism alone; None where the workload is not free to have one."""
    if workload.pipeline in (None, 1) and workload.tensor in (None, 1) and not _is_about_layers(workload):
        return place_replicas(replace(workload, pipeline=1, tensor=1), topology, budget, clock)
    return None


def _is_about_layers(workload: Workload) -> bool:
    """Whether it asks for what no search over whole models knows."""
    return bool(workload.recompute or workload.layer_pins or workload.data is not None)
