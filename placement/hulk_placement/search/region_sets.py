"""Sets of regions for Hulk's own all-reduce: the fastest workers of each, and what no plan over them can beat."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hulk_placement.collective.bound import Bound
from hulk_placement.collective.network import build_network
from hulk_placement.collective.plan import WIRE_SHARE
from hulk_placement.cost.compute import layer_seconds
from hulk_placement.search.evaluate import Order
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.region_graph import Work
from hulk_placement.search.sizes import compute_seconds

MOST_LISTED_REGIONS = 6
"""Up to this many regions all sets are looked at (63 of six); with more, one region is added or dropped at a time."""

MOST_VARIED_REGIONS = 24
"""Of larger sets no neighbours are looked at: there are too many."""

MOST_SIZES = 48


@dataclass(frozen=True, slots=True)
class RegionSet:
    """A set of regions: its fastest workers in rank order, the seconds they compute, and the bound of an all-reduce.

    `floor_s` is below every step of any plan over exactly these regions, however its buckets overlap with computation.
    """

    regions: frozenset[int]
    order: Order
    compute_s: float
    bound_s: float
    floor_s: float


class RegionSets:
    """The sets of one problem, each looked at once."""

    def __init__(self, problem: Problem, work: Work) -> None:
        self.problem, self.work = problem, work
        sync = problem.workload.sync
        self.inner_steps, self._streams = sync.planned_inner_steps or 1, sync.is_local and sync.rounds.may_overlap
        self._backward_shares = _backward_shares(problem)
        self._found: dict[frozenset[int], RegionSet | None] = {}
        self._slots = problem.slots_by_region
        self.is_listed = sum(map(bool, self._slots)) <= MOST_LISTED_REGIONS

    def search(self, start: frozenset[int]) -> list[RegionSet]:
        """The sets that were looked at, by the sum of their computation and their bound; from `start` where not all."""
        if self.is_listed:
            regions = [region for region, machines in enumerate(self._slots) if machines]
            for size in range(1, len(regions) + 1):
                for chosen in itertools.combinations(regions, size):
                    self.of(frozenset(chosen))
        else:
            self._climb(start)
        found = [known for known in self._found.values() if known is not None]
        return sorted(found, key=lambda known: (self.estimate_s(known), sorted(known.regions)))

    def estimate_s(self, known: RegionSet) -> float:
        """What a step over the set would take at the bound; overlapping only where replicas that train apart may."""
        return known.floor_s if self._streams else known.compute_s + known.bound_s / self.inner_steps

    def of(self, regions: frozenset[int]) -> RegionSet | None:
        """The set of these regions; None where they cannot reach each other or have too few workers."""
        if regions not in self._found:
            self.work.spend()
            self._found[regions] = self._look(regions)
        return self._found[regions]

    def least_s(self) -> float:
        """The seconds below which no step of any set is; of computation alone where not all sets were looked at."""
        if self.is_listed:
            return min((known.floor_s for known in self._found.values() if known is not None), default=0.0)
        return self.least_compute_s()

    def least_compute_s(self) -> float:
        """The least seconds that the slowest rank of any plan computes."""
        everything = frozenset(region for region, machines in enumerate(self._slots) if machines)
        return min((seconds for _, seconds in self._sizes(everything, free=True)), default=0.0)

    def _climb(self, start: frozenset[int]) -> None:
        """From the starting set, and that of all regions, always to the best neighbour while that is better."""
        everything = frozenset(region for region, machines in enumerate(self._slots) if machines)
        for here in (start, everything):
            best = self.of(here)
            while not self.work.exhausted:
                if len(here) > MOST_VARIED_REGIONS:
                    break
                around = (self.of(here ^ {r}) for r in sorted(everything) if here != {r} and not self.work.exhausted)
                better = min((k for k in around if k is not None), key=self.estimate_s, default=None)
                if better is None or (best is not None and self.estimate_s(better) >= self.estimate_s(best)):
                    break
                best, here = better, better.regions

    def _look(self, regions: frozenset[int]) -> RegionSet | None:
        num_workers, compute_s = min(self._sizes(regions), key=lambda found: found[1], default=(0, math.inf))
        if not num_workers:
            return None
        order = self._workers(regions, num_workers)
        names = [self.problem.names[machine] for machine in order]
        network = build_network(self.problem.topology, names, allow_unknown=self.problem.workload.allow_unknown_links)
        sync, workload = self.problem.workload.sync, self.problem.workload
        sent = workload.model.gradient_bytes * WIRE_SHARE[sync.compression]
        bound_s = Bound(network).seconds(sent, self.work.spend)
        if math.isinf(bound_s):
            return None
        if sync.is_local:
            waiting_s = bound_s / self.inner_steps
            floor_s = max(compute_s, waiting_s) if self._streams else compute_s + waiting_s
            return RegionSet(regions, order, compute_s, bound_s, floor_s)
        most_hidden = max(self._backward_shares[machine] for region in regions for machine in self._slots[region])
        waiting_s = max(0.0, bound_s - most_hidden * compute_s)
        return RegionSet(regions, order, compute_s, bound_s, compute_s + waiting_s)

    def _sizes(self, regions: frozenset[int], free: bool = False) -> Iterator[tuple[int, float]]:
        """Numbers of workers and the least seconds they compute; `free`: not every region must have one."""
        most = min(self.problem.max_workers, sum(len(self._slots[region]) for region in regions))
        least = max(self.problem.workload.min_workers, 1 if free else len(regions))
        for num in spread(least, most):
            workers = self._workers(frozenset() if free else regions, num, regions)
            yield num, compute_seconds(self.problem, [self.problem.speed[m] for m in workers])

    def _workers(self, regions: frozenset[int], num: int, among: frozenset[int] | None = None) -> Order:
        """The fastest workers with one of each region at least, region by region."""
        first = [self._slots[region][0] for region in sorted(regions)]
        rest = [machine for region in regions for machine in self._slots[region][1:]]
        if among is not None and not regions:
            rest = [machine for region in among for machine in self._slots[region]]
        rest.sort(key=lambda m: (-self.problem.speed[m], m))
        return tuple(sorted([*first, *rest[: num - len(first)]], key=lambda m: (self.problem.region_of[m], m)))


def _backward_shares(problem: Problem) -> list[float]:
    """By machine, the most of a pass that is backward, in micro-batches of any size.

    Measured seconds are linear between the sizes that were measured, so the most is at one of these, or at an end.
    """
    workload, times = problem.workload, problem.workload.model.times
    most = workload.micro_batch or workload.global_batch
    sizes = {1, most, *(row.micro_batch for row in (times.rows if times else ()) if row.micro_batch < most)}
    passes = [layer_seconds(workload, problem.topology, problem.names, size) for size in sorted(sizes)]
    sides = [(found.forward_s.sum(axis=1), found.backward_s.sum(axis=1)) for found in passes]
    shares: list[float] = np.max(
        [backward_s / (forward_s + backward_s) for forward_s, backward_s in sides], axis=0
    ).tolist()
    return shares


def spread(least: int, most: int) -> Sequence[int]:
    """All whole numbers where they are few, else some, both ends among them, evenly by their logarithm.

    >>> spread(2, 4), spread(1, 1000)[:3], spread(1, 1000)[-1]
    (range(2, 5), [1, 2, 3], 1000)
    """
    if most - least < MOST_SIZES:
        return range(least, most + 1)
    ratio = (most / least) ** (1 / MOST_SIZES)
    return sorted({least, most, *(round(least * ratio**power) for power in range(MOST_SIZES))})
