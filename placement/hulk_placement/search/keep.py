"""A plan for a workload of which workers run already: as few new ones as the step time allows.

Where all that wait and no other are as fast as what is found among all machines, they stay. Else the fastest plan says
how many workers there are to be. The same number is then looked for among those that wait and, for what they lack, the
machines of the fastest plan: that plan is taken unless its step is more than `SLOWER` slower. A speed that nobody
measured moves no worker: where the fastest plan rests on one, only communication is compared. Of 100 workers on
machines that are all alike, one lost, 99 so stay and one is new.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hulk_placement.plan import Plan, Prediction
from hulk_placement.search.job import place
from hulk_placement.search.why import none_better, unproven
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload

NUM_SEARCHES = 3
"""That share the seconds: among workers that wait, among all machines, and for as many workers as the fastest has."""

SLOWER = 0.05
"""What a worker that need not start again is worth, as a share of the step: below this, predictions are no guide."""


def place_keeping(
    workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float] = time.monotonic
) -> Plan | Unplaced:
    """The plan, in a topology that counts the kept workers' accelerators as free."""
    if not workload.kept or workload.pins:
        return place(workload, topology, budget, clock)
    part = replace(budget, seconds=budget.seconds / NUM_SEARCHES)
    unmoved, fastest = _unmoved(workload, topology, part, clock), place(workload, topology, part, clock)
    if isinstance(fastest, Unplaced):
        return fastest if unmoved is None else _with_gap(unmoved, 1.0)
    if unmoved is not None and _is_as_fast(unmoved, fastest):
        unmoved = _proven(unmoved, fastest)
        return replace(unmoved, why=(*unmoved.why, f"All {len(unmoved.workers)} running workers stay."))
    num, staying = len(fastest.workers), unmoved
    if staying is None or len(staying.workers) != num:
        staying = _exactly(num, _slots(fastest, workload), workload, topology, part, clock)
    if staying is None:
        return fastest
    staying = _proven(staying, fastest)
    slower = _slower(staying.prediction, fastest.prediction)
    num_kept = (Counter(slot.machine for slot in staying.workers) & Counter(workload.kept)).total()
    numbers = f"{num_kept} of {sum(workload.kept.values())} running workers"
    if slower > SLOWER:
        return replace(fastest, why=(*fastest.why, f"{numbers} could stay, but the step would be {slower:.1%} slower."))
    return replace(staying, why=(*staying.why, f"{numbers} stay; the step is {slower:.1%} slower for it."))


def _unmoved(workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]) -> Plan | None:
    """The best plan of all workers that wait and no other, where they are enough: little to search, often the best."""
    waiting = _waiting(workload)
    if not workload.min_workers <= waiting.total() <= workload.max_workers:
        return None
    return _exactly(waiting.total(), waiting, workload, topology, budget, clock)


def _exactly(
    num: int, slots: Counter[str], workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]
) -> Plan | None:
    """The best plan of so many workers on these machines' slots."""
    among = replace(workload, candidates=dict(slots), min_workers=num, max_workers=num)
    found = place(among, topology, budget, clock)
    return None if isinstance(found, Unplaced) else found


def _waiting(workload: Workload) -> Counter[str]:
    """Workers that wait where they may, by machine."""
    return Counter(workload.kept) & Counter(workload.candidates)


def _is_as_fast(unmoved: Plan, fastest: Plan) -> bool:
    """By seconds that are comparable: an assumed speed does not say whether fewer workers are as fast."""
    here, there = unmoved.prediction, fastest.prediction
    is_comparable = len(unmoved.workers) == len(fastest.workers) or (here.calibrated and there.calibrated)
    return is_comparable and here.step_s <= there.step_s


def _proven(staying: Plan, fastest: Plan) -> Plan:
    """The plan with its gap to the best of all machines: its own search knew only those it may stay on."""
    bound_s = (1 - fastest.optimality_gap) * fastest.prediction.step_s
    return _with_gap(staying, max(0.0, 1 - bound_s / staying.prediction.step_s))


def _with_gap(plan: Plan, gap: float) -> Plan:
    plan = replace(plan, optimality_gap=gap)
    return replace(plan, why=(*unproven(plan), *none_better(plan)))


def _slower(staying: Prediction, fastest: Prediction) -> float:
    """The time that staying costs, as a share of the fastest plan's step."""
    if fastest.calibrated:
        return staying.step_s / fastest.step_s - 1
    return (staying.communication_s - fastest.communication_s) / fastest.step_s


def _slots(fastest: Plan, workload: Workload) -> Counter[str]:
    """Workers by machine: those that wait where they may, and as many of the fastest plan's others as they lack."""
    slots = _waiting(workload)
    others = Counter(slot.machine for slot in fastest.workers) - slots
    for machine in others.elements():
        if slots.total() >= len(fastest.workers):
            break
        slots[machine] += 1
    return slots
