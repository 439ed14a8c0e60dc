"""Drafts: the few choices that a constructed layout follows from, and the descent over them, one choice at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.layouts import starts
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trials


@dataclass(frozen=True, slots=True)
class Draft:
    """Which regions, whose machines of at least so much memory; split how; along which tour, by rows or columns.

    `eighths`: replicas as a part of all that there is room for.
    """

    regions: starts.Regions
    option: Option
    pipeline: int
    eighths: int = 8
    by_rows: bool = True
    is_folded: bool = False
    least_memory: float = 0.0
    is_aligned: bool = False
    """Whether no row or column is in two regions: what is over in a region stays unused."""


@dataclass(slots=True)
class Drafts:
    """Drafts of one search, each built once."""

    trials: Trials
    space: Space
    costs: dict[Draft, float] = field(default_factory=dict)
    _orders: dict[tuple[starts.Regions, int, int, bool, float], tuple[Ints, Ints]] = field(default_factory=dict)

    def cost(self, draft: Draft) -> float:
        """What the draft's layout costs; infinite where there is no room for it, or no hope."""
        if draft not in self.costs:
            self.costs[draft] = self._build(draft)
        return self.costs[draft]

    def descend(self, draft: Draft, going_on: Callable[[], bool]) -> Draft:
        """The draft that no change of one choice makes cheaper; as far as time allows."""
        is_better = True
        while is_better:
            is_better = False
            for variants in self._variants(draft):
                for variant in variants:
                    if not going_on():
                        return draft
                    if self.cost(variant) < self.cost(draft):
                        draft, is_better = variant, True
        return draft

    def _variants(self, draft: Draft) -> Iterator[list[Draft]]:
        """For each choice the drafts that differ in it alone."""
        space = self.space
        yield [replace(draft, pipeline=pipeline) for pipeline in space.pipelines]
        option = draft.option
        yield [replace(draft, option=other) for other in space.options if _differ_in_one(option, other)]
        yield [replace(draft, eighths=eighths) for eighths in (8, 6, 4, 3, 2, 1)] if space.data is None else []
        yield [
            replace(draft, option=other, pipeline=pipeline)
            for other in space.options
            for pipeline in space.pipelines
            if _is_traded(draft, other, pipeline)
        ]
        yield [replace(draft, by_rows=not draft.by_rows)]
        yield [replace(draft, is_aligned=not draft.is_aligned, by_rows=by_rows) for by_rows in (True, False)]
        yield [replace(draft, is_folded=not draft.is_folded)] if len(draft.regions) > 2 else []
        levels = starts.memory_levels(self.trials.setting(option), draft.regions)
        yield [replace(draft, least_memory=level) for level in levels]

    def _build(self, draft: Draft) -> float:
        trials = self.trials
        order_N, tour_W = self._order(draft)
        if draft.is_aligned:
            setting = trials.setting(draft.option)
            num = draft.pipeline if draft.by_rows else starts.most_aligned(setting, order_N, draft.pipeline)
            order_N = starts.aligned(setting, order_N, max(1, num))
        room = min(len(order_N) // draft.pipeline, trials.num_batches(draft.option))
        data = self.space.data or max(1, room * draft.eighths // 8)
        shape = Shape(draft.option, data, draft.pipeline)
        if data > room or not self.space.admits(shape) or trials.is_hopeless(shape, order_N):
            return math.inf
        return trials.build(shape, order_N, tour_W, draft.by_rows).cost

    def _order(self, draft: Draft) -> tuple[Ints, Ints]:
        """The machines of all cells, and the tour."""
        key = (draft.regions, draft.option.tensor, draft.pipeline, draft.is_folded, draft.least_memory)
        if key not in self._orders:
            setting = self.trials.setting(draft.option)
            tours = [np.arange(len(setting.uplink_R))]
            if self.trials.parts.tours:
                tours = starts.tours(setting, draft.regions, draft.pipeline)
            tour_W = tours[-1 if draft.is_folded else 0]
            self._orders[key] = starts.order_cells(setting, tour_W, draft.regions, draft.least_memory), tour_W
        return self._orders[key]


def _differ_in_one(option: Option, other: Option) -> bool:
    """Whether two options are alike in two of micro-batch, tensor degree and recomputation."""
    names = ("micro_batch", "tensor", "recompute")
    return sum(bool(getattr(option, name) == getattr(other, name)) for name in names) == 2


def _is_traded(draft: Draft, option: Option, pipeline: int) -> bool:
    """Whether as many accelerators hold a replica, by other degrees."""
    here = draft.option
    same = option.recompute == here.recompute and option.tensor != here.tensor
    return bool(same and option.tensor * pipeline == here.tensor * draft.pipeline)
