"""From a walk over regions to machines in ring order."""

from __future__ import annotations

from collections import Counter

from hulk_placement.search.choice import Choice
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.regions import Walk
from hulk_placement.search.sizes import Shares


def arrange(problem: Problem, choice: Choice) -> tuple[int, ...]:
    """The machine (by number) of every worker in rank order: the choice's walk, filled with its fastest machines.

    The walk is in the direction of the data, which flows from a rank to the one before it: rank order is its reverse.
    """
    if choice.walk is None:
        assert choice.machine is not None
        return (choice.machine,) * choice.num_workers
    chosen = _choose(problem, choice, choice.walk)
    flow: list[int] = []
    visits_left = Counter(choice.walk.visits)
    for region in choice.walk.visits:
        visits_left[region] -= 1
        workers = chosen[region]
        # All but the last visit take one worker; the last takes the rest, machine by machine.
        take = len(workers) if not visits_left[region] else 1
        flow += [workers.pop(0) for _ in range(take)]
    order = flow[::-1]
    first = order.index(min(order))
    return tuple(order[first:] + order[:first])


def _choose(problem: Problem, choice: Choice, walk: Walk) -> dict[int, list[int]]:
    """Per region the machines of its workers: one for each visit, then the fastest of all visited regions."""
    shares = Shares(problem, choice.num_workers)
    enough = shares.slowest(choice.compute_s, large=False)
    fast = sorted(range(len(problem.names)), key=lambda m: (-problem.speed[m], m))
    slots = [m for m in fast if problem.speed[m] >= enough for _ in range(problem.useful_slots[m])]
    needed = Counter(walk.visits)
    chosen: dict[int, list[int]] = {region: [] for region in needed}
    rest: list[int] = []
    for machine in slots:
        region = problem.region_of[machine]
        if len(chosen.get(region, ())) < needed[region]:
            chosen[region].append(machine)
        elif region in chosen and region in walk.side_by_side:
            rest.append(machine)
    for machine in rest[: choice.num_workers - len(walk.visits)]:
        chosen[problem.region_of[machine]].append(machine)
    return {region: sorted(machines) for region, machines in chosen.items()}
