"""What a search over regions chooses, before machines are put into it; and the choices that need no link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hulk_placement.search.problem import Problem
from hulk_placement.search.ring.machines import Size
from hulk_placement.search.ring.regions import Walk
from hulk_placement.search.sizes import NUM_BUCKETS, Shares, inside_machine_s


@dataclass(frozen=True, slots=True)
class Choice:
    """Workers that take at most `compute_s` a step, in a ring over the regions of `walk`, or all on `machine`."""

    num_workers: int
    num_buckets: int
    compute_s: float
    walk: Walk | None
    machine: int | None
    step_s: float


def in_ring(shares: Shares, size: Size, compute_s: float, walk: Walk) -> Choice:
    """Workers that compute for at most `compute_s`, in a ring whose slowest edge, in or between regions, adds to it."""
    step_s = compute_s + max(walk.communication_s, size.inside_s)
    return Choice(shares.num_workers, size.ring.num_buckets, compute_s, walk, None, step_s)


def one_machine(problem: Problem) -> Iterator[Choice]:
    """For each number of workers that some machine holds alone: all of them on the fastest such, needing no link."""
    for num_workers in range(problem.workload.min_workers, min(problem.max_workers, max(problem.num_slots)) + 1):
        shares = Shares(problem, num_workers)
        roomy = [m for m, num_slots in enumerate(problem.num_slots) if num_slots >= num_workers]
        machine = max(roomy, key=lambda m: (problem.speed[m], -m))
        compute_s = shares.seconds(problem.speed[machine], large=shares.num_large > 0)
        for num_buckets in NUM_BUCKETS if shares.num_ranks > 1 else (1,):
            step_s = compute_s + inside_machine_s(problem, shares, num_buckets)
            yield Choice(num_workers, num_buckets, compute_s, None, machine, step_s)
