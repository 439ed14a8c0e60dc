"""A ring whose machines and order the user has fixed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hulk_placement.search.evaluate import Order, links_known
from hulk_placement.search.problem import Problem
from hulk_placement.solution import Unplaced
from hulk_placement.topology import LinkKind
from hulk_placement.words import counted
from hulk_placement.workload import Workload


def bound(workload: Workload) -> Workload:
    """The workload with no other machines and workers than its pins: as machines are divided for it."""
    num_workers = len(workload.pins)
    return replace(
        workload,
        candidates=Counter(workload.pins),
        min_workers=num_workers,
        max_workers=num_workers,
        data=None,
        pipeline=1,
        tensor=1,
    )


def pinned_order(problem: Problem) -> Order | Unplaced:
    """The workload's pins as machine numbers in rank order; each pin is one worker, there are no others."""
    workload = problem.workload
    if not workload.min_workers <= len(workload.pins) <= workload.max_workers:
        return Unplaced(
            "PinsNotPossible",
            f"{len(workload.pins)} machines are pinned; the job takes {workload.min_workers} to "
            f"{workload.max_workers} workers.",
        )
    num_ranks = len(workload.pins) * workload.accelerators_per_worker
    if num_ranks > workload.global_batch:
        return Unplaced(
            "PinsNotPossible",
            f"{len(workload.pins)} machines are pinned for {num_ranks} ranks, but the global batch has only "
            f"{counted(workload.global_batch, 'sequence')}: each rank needs at least one.",
        )
    number = {name: machine for machine, name in enumerate(problem.names)}
    for name, count in Counter(workload.pins).items():
        room = problem.num_slots[number[name]] if name in number else 0
        if count > room:
            return Unplaced(
                "PinsNotPossible",
                f"Machine {name} is pinned for {counted(count, 'worker')} and has room for {room} of the job's.",
            )
    order = tuple(number[name] for name in workload.pins)
    if not links_known(problem, order):
        return Unplaced(
            "OnlyUnknownLinks", f"The pinned order needs links of which nothing is known: {_unknown(problem)}."
        )
    return order


def _unknown(problem: Problem) -> str:
    """The unknown links of the pinned order, in the direction of the data."""
    pins, link = problem.workload.pins, problem.topology.link
    edges = [(pins[rank], pins[rank - 1]) for rank in range(len(pins))]
    return ", ".join(f"{a} to {b}" for a, b in edges if link(a, b).kind is LinkKind.UNKNOWN)
