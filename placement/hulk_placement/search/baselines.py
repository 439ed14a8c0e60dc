"""The orders a plan must beat: what one would do without a planner. Each takes as many workers as it may.

`BASELINES` are where every search starts, so that no plan is worse. Name order is not among them: the names of machines
must not change a plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hulk_placement.search.problem import Problem
from hulk_placement.topology import SAME_MACHINE

Order = tuple[int, ...]


def region_order(problem: Problem) -> Order:
    """Region after region, the machines of each as they are listed."""
    by_region = sorted(range(len(problem.names)), key=lambda m: (problem.region_of[m], m))
    return _fill(problem, by_region)


def name_order(problem: Problem) -> Order:
    """By machine name."""
    return _fill(problem, sorted(range(len(problem.names)), key=lambda m: problem.names[m]))


def greedy_order(problem: Problem) -> Order:
    """From the first machine always to the nearest (least round trip) machine left, ties to the first listed."""
    left = list(problem.useful_slots)
    nearest = _Nearest(problem, left)
    here = next(m for m, slots in enumerate(left) if slots)
    flow = [here]
    left[here] -= 1
    while len(flow) < problem.max_workers:
        here = nearest.to(here)
        flow.append(here)
        left[here] -= 1
    return tuple(flow[::-1])


class _Nearest:
    """The nearest machine with a slot left, without asking every machine: most of a region are equally far.

    From one machine only those differ that it has a link of its own to; of a region's others the first listed will do.
    """

    def __init__(self, problem: Problem, left: list[int]) -> None:
        self.left, self.region_of, number = left, problem.region_of, {name: m for m, name in enumerate(problem.names)}
        self.own: dict[int, list[tuple[float, int]]] = {}
        for (source, target), link in problem.topology.node_links.items():
            if source in number and target in number and source != target:
                self.own.setdefault(number[source], []).append((link.rtt_s, number[target]))
        for links in self.own.values():
            links.sort()
        known = problem.topology.region_link
        self.rtt_s = [[known(a, b).rtt_s for b in problem.regions] for a in problem.regions]
        self.listed = [deque(m for m, of in enumerate(self.region_of) if of == a) for a in range(len(problem.regions))]

    def to(self, here: int) -> int:
        """The nearest from here; some machine must have a slot left."""
        own, region_rtt_s = self.own.get(here, []), self.rtt_s[self.region_of[here]]
        if self.left[here] and SAME_MACHINE.rtt_s < min([*region_rtt_s, *(rtt_s for rtt_s, _ in own[:1])]):
            return here
        differ = {here, *(machine for _, machine in own)}
        found = [(SAME_MACHINE.rtt_s, here)] if self.left[here] else []
        found += next(([near] for near in own if self.left[near[1]]), [])
        for rtt_s, listed in zip(region_rtt_s, self.listed, strict=True):
            while listed and not self.left[listed[0]]:
                listed.popleft()
            first = next((m for m in listed if self.left[m] and m not in differ), None)
            found += [] if first is None else [(rtt_s, first)]
        return min(found)[1]


BASELINES: dict[str, Callable[[Problem], Order]] = {
    "region": region_order,
    "greedy": greedy_order,
}


def _fill(problem: Problem, machines: list[int]) -> Order:
    slots = [machine for machine in machines for _ in range(problem.useful_slots[machine])]
    return tuple(slots[: problem.max_workers])
