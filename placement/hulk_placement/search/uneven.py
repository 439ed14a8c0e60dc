"""Shares by speed: the searches with equal shares are starts, moves make their best ring better, a bound says how good.

With equal shares a slow machine sets the pace of all, and the exact search leaves it out; with shares by speed it only
helps less than others. So the exact search runs a second time with all machines as fast as their mean, where one is
left out for its links alone. The optimum lies between the two, and is looked for by moves of single machines.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hulk_placement.search.evaluate import Order, links_known
from hulk_placement.search.floors import Floors, lowest_s
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.region_graph import RegionGraph, Work
from hulk_placement.search.room import Room

Evaluate = Callable[[Order], Any]
"""What is to be least: anything that can be compared."""

MIN_TRIES = 60
TRIES_A_SLOT = 12
"""Moves in a row that gain nothing, after which no more are tried."""


def equal(problem: Problem) -> Problem:
    """The problem with equal shares."""
    return replace(problem, workload=replace(problem.workload, shares="equal"))


def levelled(problem: Problem) -> Problem:
    """The problem with machines that are all as fast as the mean of their slots."""
    slots = problem.useful_slots
    mean = sum(speed * num for speed, num in zip(problem.speed, slots, strict=True)) / sum(slots)
    return replace(problem, speed=(mean,) * len(problem.speed))


def quickened(problem: Problem, order: Order) -> Order:
    """The order with the fastest machines of each region that it has workers in, one after the other."""
    wanted = Counter(problem.region_of[machine] for machine in order)
    left = {region: iter(sorted(problem.slots_by_region[region][:num])) for region, num in wanted.items()}
    return tuple(next(left[problem.region_of[machine]]) for machine in order)


def moved(problem: Problem, order: Order, evaluate: Evaluate, seed: int, work: Work) -> Order:
    """The order after moves of single workers, each kept when the step gets shorter.

    A worker is added or left out, goes to another machine, or changes its place in the ring. One evaluation counts as
    many iterations as the ring has workers.
    """
    draw, best_s, tries = random.Random(seed), evaluate(order), 0
    most_tries = MIN_TRIES + TRIES_A_SLOT * min(sum(problem.useful_slots), problem.max_workers)
    while tries < most_tries and work.spend(len(order)):
        tries += 1
        changed = _changed(problem, order, draw)
        if changed is None or not links_known(problem, changed):
            continue
        changed_s = evaluate(changed)
        if changed_s < best_s:
            order, best_s, tries = changed, changed_s, 0
    return order


def _changed(problem: Problem, order: Order, draw: random.Random) -> Order | None:
    """The order after one move at random; None where the move is not possible."""
    place, move = draw.randrange(len(order)), draw.choice(("add", "leave", "replace", "go"))
    rest = (*order[:place], *order[place + 1 :])
    if move == "leave":
        return rest if len(rest) >= problem.workload.min_workers else None
    if move == "go":
        there = draw.randrange(len(order))
        return (*rest[:there], order[place], *rest[there:])
    machine = draw.randrange(len(problem.names))
    if order.count(machine) >= problem.num_slots[machine]:
        return None
    if move == "replace":
        return (*order[:place], machine, *order[place + 1 :])
    return (*order[:place], machine, *order[place:]) if len(order) < problem.max_workers else None


def least_step_s(problem: Problem, graph: RegionGraph, best_s: float, work: Work) -> float:
    """Seconds below which no ring's step is, whatever its shares; `best_s`, which one has, where that is less."""
    floors = Floors(problem, graph, Room(problem), is_uneven=True)
    return lowest_s(floors, problem.max_workers, best_s, work)
