"""What a number of workers and buckets means for one problem: shares of the batch, and the cut of the ring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from hulk_placement.cost.compute import share_by_speed
from hulk_placement.cost.gloo import Ring, cut_ring
from hulk_placement.cost.known import work
from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.machines import Size
from hulk_placement.topology import SAME_MACHINE

NUM_BUCKETS = (1, 2)
"""Numbers of gradient buckets worth trying: gloo runs two all-reduces at a time, and more buckets lose over a WAN."""

ROUNDING = 1 + 1e-12


class Shares:
    """How a global batch falls on `num_workers` workers: `num_large` of them compute one sequence more a rank."""

    def __init__(self, problem: Problem, num_workers: int) -> None:
        per_worker = problem.workload.accelerators_per_worker
        self.num_workers, self.num_ranks = num_workers, num_workers * per_worker
        self.base, larger_ranks = divmod(problem.workload.global_batch, self.num_ranks)
        self.num_large = math.ceil(larger_ranks / per_worker)
        self.flops = work(problem.workload)

    def slowest(self, compute_s: float, large: bool) -> float:
        """The least FLOP/s with which the share, or the larger one, takes at most `compute_s`."""
        return (self.base + large) * self.flops / compute_s / ROUNDING

    def seconds(self, speed: float, large: bool) -> float:
        """Seconds the share, or the larger one, takes at a speed."""
        return (self.base + large) * self.flops / speed


@dataclass(frozen=True, slots=True)
class UnevenSize(Size):
    """A size whose workers get shares by speed; `slot_speeds` are those of all slots, fastest first."""

    problem: Problem
    slot_speeds: tuple[float, ...]
    known_s: dict[tuple[float, ...], float] = field(default_factory=dict)

    def compute_s(self, speeds: Sequence[float]) -> float:
        """As `compute_seconds`, which does not depend on the order of the workers."""
        key = tuple(sorted(speeds))
        if key not in self.known_s:
            self.known_s[key] = compute_seconds(self.problem, key)
        return self.known_s[key]

    def least_compute_s(self, speeds: Sequence[float]) -> float:
        """Beside the fastest of the slots that are left."""
        left = list(self.slot_speeds)
        for speed in speeds:
            left.remove(speed)
        return self.compute_s([*speeds, *left[: self.num_workers - len(speeds)]])


def size_of(problem: Problem, shares: Shares, num_buckets: int) -> Size:
    """The size of two or more ranks in `num_buckets` buckets."""
    ring = cut_ring(problem.workload.model.gradient_bytes, shares.num_ranks, num_buckets)
    return Size(
        num_workers=shares.num_workers,
        ring=ring,
        small_flops=shares.base * shares.flops,
        large_flops=(shares.base + 1) * shares.flops,
        num_large=shares.num_large,
        inside_s=0.0 if problem.workload.accelerators_per_worker == 1 else _same_machine_s(ring),
    )


def planned_size(problem: Problem, num_workers: int, num_buckets: int) -> Size:
    """The size of two or more ranks with the shares that a plan gives them."""
    size = size_of(problem, Shares(problem, num_workers), num_buckets)
    if not problem.is_uneven:
        return size
    figures = {one.name: getattr(size, one.name) for one in fields(size)}
    return UnevenSize(**figures, problem=problem, slot_speeds=problem.slot_speeds)


def compute_seconds(problem: Problem, speeds: Sequence[float]) -> float:
    """Seconds that the slowest rank of workers with these speeds computes, by the shares that a plan gives them."""
    workload, per_worker = problem.workload, problem.workload.accelerators_per_worker
    if problem.is_uneven:
        ranks = [speed for speed in speeds for _ in range(per_worker)]
        shares = share_by_speed(workload.global_batch, ranks)
        flops = work(workload)
        return max(share * flops / speed for share, speed in zip(shares, ranks, strict=True))
    equal = Shares(problem, len(speeds))
    if equal.num_ranks == 1:
        return equal.seconds(speeds[0], large=False)
    return size_of(problem, equal, 1).compute_s(speeds)


def inside_machine_s(problem: Problem, shares: Shares, num_buckets: int) -> float:
    """Seconds of a ring all of whose ranks are on one machine; 0 for one rank."""
    if shares.num_ranks == 1:
        return 0.0
    return _same_machine_s(cut_ring(problem.workload.model.gradient_bytes, shares.num_ranks, num_buckets))


def _same_machine_s(ring: Ring) -> float:
    return ring.edge_s(SAME_MACHINE.rtt_s, SAME_MACHINE.bandwidth_bytes_per_s, 1)
