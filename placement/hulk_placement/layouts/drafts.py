"""Drafts: the few choices that a constructed layout follows from, and the descent over them, one choice at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.layouts import starts
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trials

EIGHTHS = (8, 6, 4, 3, 2, 1)
"""Numbers of replicas, in eighths of all that there is room for; the most that may be where that is more."""

EIGHTHS_BELOW_A_PRICE = tuple(num / 2 for num in range(16, 0, -1))
"""Of the few that a price limit allows: every number up to 16."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Which regions, whose machines of at least so much memory; split how; along which tour, by rows or columns.

    `eighths`: replicas as a part of all that there is room for.
    """

    regions: starts.Regions
    option: Option
    pipeline: int
    eighths: float = 8
    by_rows: bool = True
    is_folded: bool = False
    least_memory: float = 0.0
    is_fast: bool = False
    """Whether of more cells than are used the slowest are left out; else those at the tour's end."""
    is_dealt: bool = False
    """Whether equal machines take turns, a cell each; else one machine's cells follow each other."""


@dataclass(slots=True)
class Drafts:
    """Drafts of one search, each built once."""

    trials: Trials
    space: Space
    costs: dict[Draft, float] = field(default_factory=dict)
    _least: dict[starts.Regions, float] = field(default_factory=dict)
    """Cost of the cheapest draft on each set of regions."""
    _orders: dict[tuple[starts.Regions, int, int, bool, float, bool], tuple[Ints, Ints]] = field(default_factory=dict)
    _tours: dict[tuple[starts.Regions, int, int, bool], Ints] = field(default_factory=dict)
    _edges: dict[tuple[int, int], Floats] = field(default_factory=dict)
    _num_cells: dict[tuple[starts.Regions, int], int] = field(default_factory=dict)

    def cost(self, draft: Draft) -> float:
        """What the draft's layout costs; infinite where there is no room for it, or no hope."""
        if draft not in self.costs:
            self.costs[draft] = cost = self._build(draft)
            self._least[draft.regions] = min(cost, self._least.get(draft.regions, math.inf))
        return self.costs[draft]

    def descend(self, draft: Draft, going_on: Callable[[], bool]) -> Draft:
        """The draft that no change of one choice makes cheaper; as far as time allows."""
        is_better = True
        while is_better:
            is_better = False
            for choice in CHOICES:
                for variant in choice(self, draft):
                    if variant not in self.costs and not going_on():
                        return draft
                    if self.cost(variant) < self.cost(draft):
                        draft, is_better = variant, True
        return draft

    def ranked_sets(self) -> list[starts.Regions]:
        """The sets of regions that were tried, by the cheapest draft on each."""
        return sorted(self._least, key=self._least.__getitem__)

    def best_shapes(self, num: int) -> list[tuple[Option, int]]:
        """The options and numbers of stages of the cheapest drafts, so many different ones."""
        found = dict.fromkeys(
            (draft.option, draft.pipeline) for draft in sorted(self.costs, key=self.costs.__getitem__)
        )
        return list(found)[:num]

    def _build(self, draft: Draft) -> float:
        trials = self.trials
        most_room = self._most_room(draft)
        most = self._shape(draft, most_room)
        if most.data > most_room or most.num_accelerators < self.space.least:
            return math.inf
        setting, (order_N, tour_W) = trials.setting(draft.option), self._order(draft)
        least = self.space.smallest(draft.option, draft.pipeline).data * draft.pipeline
        order_N = order_N[starts.affordable(setting, order_N, least, is_fast=draft.is_fast)]
        room = min(len(order_N) // draft.pipeline, trials.num_batches(draft.option))
        shape = self._shape(draft, room)
        if draft.is_fast:
            order_N = starts.fastest(setting, order_N, shape.data * shape.pipeline)
        if shape.data > room or not self.space.admits(shape) or trials.is_hopeless(shape, order_N):
            return math.inf
        return trials.build(shape, order_N, tour_W, draft.by_rows).cost

    def _most_room(self, draft: Draft) -> int:
        """Replicas that the regions have room for at most; quicker to say than their order."""
        key = (draft.regions, draft.option.width)
        if key not in self._num_cells:
            setting = self.trials.setting(draft.option)
            self._num_cells[key] = int(setting.slots_M[np.isin(setting.region_M, draft.regions)].sum())
        return min(self._num_cells[key] // draft.pipeline, self.trials.num_batches(draft.option))

    def _shape(self, draft: Draft, room: int) -> Shape:
        """The shape where there is room for so many replicas: no more than may be."""
        num = draft.pipeline * draft.option.width
        data = self.space.data or max(
            1, self.space.whole(min(int(room * draft.eighths / 8), self.space.most // num), num)
        )
        return Shape(draft.option, data, draft.pipeline)

    def _order(self, draft: Draft) -> tuple[Ints, Ints]:
        """The machines of all cells, and the tour."""
        num_stages = 1 << draft.pipeline.bit_length() - 1
        key = (draft.regions, draft.option.width, num_stages, draft.is_folded, draft.least_memory, draft.is_dealt)
        if key not in self._orders:
            setting = self.trials.setting(draft.option)
            tour_W = self._tour(draft, num_stages)
            self._orders[key] = (
                starts.order_cells(setting, tour_W, draft.regions, draft.least_memory, is_dealt=draft.is_dealt),
                tour_W,
            )
        return self._orders[key]

    def _tour(self, draft: Draft, num_stages: int) -> Ints:
        """Where a tour through the regions begins, for about so many stages."""
        key = (draft.regions, draft.option.width, num_stages, draft.is_folded)
        if key not in self._tours:
            seconds_RR = self._edge_seconds(draft.option, num_stages)
            walk = starts.folded if draft.is_folded else starts.cycle
            self._tours[key] = walk(seconds_RR, draft.regions)
        return self._tours[key]

    def _edge_seconds(self, option: Option, num_stages: int) -> Floats:
        """Of rings; they depend on what a rank holds, not on its micro-batch."""
        key = (option.width, num_stages)
        if key not in self._edges:
            self._edges[key] = starts.edge_seconds(self.trials.setting(option), num_stages)
        return self._edges[key]


def _pipelines(drafts: Drafts, draft: Draft) -> list[Draft]:
    return [replace(draft, pipeline=pipeline) for pipeline in drafts.space.pipelines]


def _options(drafts: Drafts, draft: Draft) -> list[Draft]:
    return [replace(draft, option=option) for option in drafts.space.beside(draft.option)]


def _replicas(drafts: Drafts, draft: Draft) -> list[Draft]:
    if drafts.space.data is not None:
        return []
    is_limited = drafts.trials.setting(draft.option).price_limit < math.inf
    return [replace(draft, eighths=num) for num in (EIGHTHS_BELOW_A_PRICE if is_limited else EIGHTHS)]


def _traded(drafts: Drafts, draft: Draft) -> list[Draft]:
    """As many accelerators hold a replica, by other degrees."""
    here, space = draft.option, drafts.space
    return [
        replace(draft, option=option, pipeline=pipeline)
        for option in space.beside(here)
        if option.width != here.width
        for pipeline in space.pipelines
        if option.width * pipeline == here.width * draft.pipeline
    ]


def _directions(drafts: Drafts, draft: Draft) -> list[Draft]:
    return [replace(draft, by_rows=not draft.by_rows)]


def _turns(drafts: Drafts, draft: Draft) -> list[Draft]:
    return [replace(draft, is_dealt=not draft.is_dealt)]


def _tours(drafts: Drafts, draft: Draft) -> list[Draft]:
    return [replace(draft, is_folded=not draft.is_folded)] if len(draft.regions) > 2 else []


def _memories(drafts: Drafts, draft: Draft) -> list[Draft]:
    levels = starts.memory_levels(drafts.trials.setting(draft.option), draft.regions)
    return [replace(draft, least_memory=level) for level in levels]


def _speeds(drafts: Drafts, draft: Draft) -> list[Draft]:
    """With it other sizes: what is left out depends on them."""
    if not starts.is_mixed(drafts.trials.setting(draft.option), draft.regions):
        return []
    other = replace(draft, is_fast=not draft.is_fast)
    return [*_pipelines(drafts, other), *_replicas(drafts, other)]


CHOICES: tuple[Callable[[Drafts, Draft], list[Draft]], ...] = (
    _pipelines,
    _options,
    _replicas,
    _traded,
    _directions,
    _turns,
    _tours,
    _memories,
    _speeds,
)
"""What a descent changes one after another: for each the drafts that differ in it alone, or in what goes with it."""
