"""Which shapes a workload may have: degrees that are asked for or that make sense, micro-batches, schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from hulk_placement.cost.closed_form.setting import Ground, Option, worker_cells
from hulk_placement.layouts.trials import Shape, degrees
from hulk_placement.workload import SCHEDULES, Workload

MAX_MICRO_BATCH = 64

FEW_STAGES = 8
"""Up to so many stages all numbers are tried; beyond, about every other, and those that are asked for."""


@dataclass(frozen=True)
class Space:
    """The options (one of micro-batch, tensor degree, schedule, recomputation each) and numbers of stages to try.

    Those of the schedule that is usual come first.
    """

    options: tuple[Option, ...]
    pipelines: tuple[int, ...]
    data: int | None = None
    """Number of replicas where it is asked for."""

    least: int = 1
    most: int = 1 << 30
    """Accelerators that a layout may have."""
    each: int = 1
    """Accelerators of a worker; a layout has whole workers."""
    every: tuple[int, ...] = ()
    """All numbers of stages that there may be, where `pipelines` are not all."""

    @property
    def usual(self) -> tuple[Option, ...]:
        """The options of the usual schedule."""
        return tuple(option for option in self.options if option.schedule == self.options[0].schedule)

    def beside(self, option: Option) -> tuple[Option, ...]:
        """The options that differ from one in one of micro-batch, tensor degree, schedule and recomputation."""
        if option not in self._beside:
            self._beside[option] = tuple(other for other in self.options if _differ_in_one(option, other))
        return self._beside[option]

    @cached_property
    def _beside(self) -> dict[Option, tuple[Option, ...]]:
        return {}

    def admits(self, shape: Shape) -> bool:
        """Whether a shape has as many accelerators, of whole workers, as it may; one stage has but one schedule."""
        is_told_apart = shape.pipeline > 1 or shape.option.schedule == self.options[0].schedule
        is_whole = shape.num_accelerators % self.each == 0
        return is_told_apart and is_whole and self.least <= shape.num_accelerators <= self.most

    def smallest(self, option: Option, num_stages: int) -> Shape:
        """The shape with the fewest replicas that has as many accelerators as it must; it may have too many."""
        num = num_stages * option.width
        return Shape(option, self.data or self.whole_up(max(1, math.ceil(self.least / num)), num), num_stages)

    def fewest(self, global_batch: int) -> int:
        """The fewest accelerators of an admitted shape with a micro-batch for each replica; 0 where there is none."""
        shapes = (self.smallest(option, num) for option in self.options for num in self.pipelines)
        admitted = (s for s in shapes if self.admits(s) and (s.data - 1) * s.option.cell_batch < global_batch)
        return min((shape.num_accelerators for shape in admitted), default=0)

    def whole(self, most: int, num_accelerators: int) -> int:
        """How many replicas of so many accelerators, at most, are whole workers."""
        return most - most % self._together(num_accelerators)

    def whole_up(self, least: int, num_accelerators: int) -> int:
        """How many replicas of so many accelerators, at least, are whole workers."""
        return least + -least % self._together(num_accelerators)

    def _together(self, num_accelerators: int) -> int:
        """The fewest replicas of so many accelerators that are whole workers."""
        return self.each // math.gcd(self.each, num_accelerators)


def _differ_in_one(option: Option, other: Option) -> bool:
    names = ("micro_batch", "tensor", "schedule", "recompute")
    return sum(bool(getattr(option, name) != getattr(other, name)) for name in names) == 1


def tensor_degrees(workload: Workload) -> list[int]:
    """Degrees that may be chosen: they divide the heads, as far as these are known.

    What ranks that share layers send each other must be known, or have been measured.
    """
    layers, times = workload.model.layers, workload.model.times
    measured = {row.tensor for row in times.rows} if times else set()
    is_known = any(layer.tensor_bytes for layer in layers)
    known = [degree for degree in (1, 2, 4, 8, 16) if degree == 1 or is_known or degree in measured]
    return [degree for degree in known if workload.model.shares_heads(degree)]


def space_of(ground: Ground, num_accelerators: int | None = None) -> Space:
    """What the workload leaves open, as powers of two and what lies between them; small micro-batches first.

    `num_accelerators` there are, where the ground's machines stand for more.
    """
    workload, machines = ground.workload, ground.machines
    widest = max(machine.num_accelerators for machine in machines)
    tensors = [t for t in tensor_degrees(workload) if t <= widest] if workload.tensor is None else [workload.tensor]
    per_worker = workload.accelerators_per_worker
    least, most = workload.min_workers * per_worker, workload.max_workers * per_worker
    num_all = num_accelerators or sum(machine.num_accelerators for machine in machines)
    most_stages = min(len(workload.model.layers), num_all, most)
    every = range(1, most_stages + 1) if workload.pipeline is None else [workload.pipeline]
    shard = workload.shard or 1
    largest = min(MAX_MICRO_BATCH, max(1, workload.global_batch // shard))
    batches = [b for b in (1, 2, 4, 8, 16, 32, 64) if b <= largest]
    if workload.micro_batch is not None:
        batches = [min(workload.micro_batch, largest)]
    schedules = SCHEDULES if workload.schedule is None else (workload.schedule,)
    options = tuple(
        Option(micro_batch=batch, tensor=tensor, schedule=schedule, recompute=recompute, shard=shard)
        for schedule in (schedules if every[-1] > 1 else schedules[:1])
        for recompute in ((False, True) if workload.recompute is None else (workload.recompute,))
        for tensor in tensors
        for batch in batches
    )
    whole = Space(options, tuple(every), workload.data, least, most, per_worker, tuple(every))
    if len(every) <= FEW_STAGES:
        return whole
    tried = replace(whole, pipelines=tuple(sorted({*degrees(most_stages), *_asked_for(whole)} & set(every))))
    return tried if tried.fewest(workload.global_batch) else whole


def _asked_for(space: Space) -> set[int]:
    """Numbers of stages by which layouts have just as many accelerators as they must, or as many as they may.

    Where the number of replicas is asked for, or just one number of accelerators; and those that are whole workers.
    """
    found = set()
    for width in {option.width for option in space.options}:
        cells = worker_cells(space.each, width)
        found |= {cells * num for num in degrees(space.every[-1] // cells)}
        found |= {num for num in space.every if cells % num == 0}
        if space.data is not None:
            num = space.data * width
            found |= {math.ceil(space.least / num), space.most // num}
        elif space.least == space.most:
            found |= {num for num in space.every if space.most % (num * width) == 0}
    return found
