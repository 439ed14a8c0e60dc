"""Drawn layouts tried: the plain ones of a few shapes first, then what differs from the best of them in one choice.

People place pipelines, replicas and tensor ranks by the levels at which machines are joined. So does this: the closed
form prices each drawing, and the best are kept like any other trial. Moves alone seldom find such a layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from hulk_placement.cost.closed_form.arrays import Bools, Ints, Setting
from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.layouts.hierarchy import Hierarchy, hierarchy_of
from hulk_placement.layouts.meshes import (
    Blocks,
    Widths,
    blocks_of,
    cells_of,
    draw,
    group_sizes,
    plain_widths,
    typical,
    widths_beside,
)
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.starts import affordable
from hulk_placement.layouts.trials import Shape, Trials

EIGHTHS = (8, 6, 4, 3, 2, 1)
"""Numbers of replicas, in eighths of all that there is room for."""

NUM_DESCENTS = 2
"""Drawings of different options and numbers of stages that a descent begins at."""

FEW = (1, 2, 4)
"""Cells of each group of a level that are used, where not all are."""

MOST_FIRST = 4
"""Outermost groups that are tried as the first one, where not all cells are used."""

Going = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The few choices that a drawn layout follows from.

    `widths`: stages of a block, by level. `eighths`: replicas as a part of all that there is room for. `first`: by how
    many of the outermost groups the order begins later. `is_fast`: the slowest of more cells than are used stay unused.
    `each`: a level, and how many cells of each of its groups may be used; None: all. `num_closing`: so many of the last
    stages are where those before the first would be, so that both ends of a pipeline are in one group.
    """

    option: Option
    pipeline: int
    widths: Widths
    eighths: int = 8
    by_rows: bool = True
    first: int = 0
    is_fast: bool = False
    each: tuple[int, int] | None = None
    num_closing: int = 0


@dataclass(frozen=True, slots=True)
class Cells:
    """The machine of every cell that there is room for, group by group, and each cell's group at every level."""

    order_N: Ints
    levels: list[Ints]

    def begun_at(self, first: int) -> Cells:
        """The same, so many outermost groups later; the others follow at the end."""
        if not first or not self.levels:
            return self
        starts = np.flatnonzero(np.diff(self.levels[-1])) + 1
        shift = -int(starts[(first - 1) % len(starts)]) if len(starts) else 0
        return Cells(np.roll(self.order_N, shift), [np.roll(group_N, shift) for group_N in self.levels])

    def few_of_each(self, level: int, num: int) -> Cells:
        """The first so many of each group of a level."""
        group_N = self.levels[level]
        first_N = np.concatenate([[True], group_N[1:] != group_N[:-1]])
        begun_N = np.maximum.accumulate(np.where(first_N, np.arange(len(group_N)), 0))
        return self._of(np.arange(len(group_N)) - begun_N < num)

    def affordable(self, setting: Setting, *, is_fast: bool) -> Cells:
        """Those that a price limit allows, the first or the fastest of them."""
        return self._of(affordable(setting, self.order_N, is_fast=is_fast))

    def without_slowest(self, setting: Setting, num: int) -> Cells:
        """So many of them; of equally fast ones the first."""
        seconds_N = setting.forward_KJ[setting.kind_M[self.order_N], -1]
        kept_N = np.sort(np.argsort(seconds_N, kind="stable")[:num])
        return self._of(kept_N)

    def _of(self, kept_N: Ints | Bools) -> Cells:
        return Cells(self.order_N[kept_N], [group_N[kept_N] for group_N in self.levels])


@dataclass(slots=True)
class Drawings:
    """Drawings of one search, each built once."""

    trials: Trials
    space: Space
    hierarchy: Hierarchy
    costs: dict[Drawing, float] = field(default_factory=dict)
    _built: dict[tuple[Shape, Blocks, Drawing], float] = field(default_factory=dict)
    _cells: dict[tuple[int, int, tuple[int, int] | None, bool], Cells] = field(default_factory=dict)

    def cost(self, drawing: Drawing) -> float:
        """What the drawing's layout costs; infinite where there is no room for it, or no hope."""
        if drawing not in self.costs:
            self.costs[drawing] = self._cost(drawing)
        return self.costs[drawing]

    def blocks(self, drawing: Drawing) -> Blocks:
        """The blocks of a drawing, by level."""
        return _blocks(self.cells(drawing), drawing.widths, self.shape(drawing))

    def cells(self, drawing: Drawing) -> Cells:
        """The cells of a drawing's tensor degree in the order in which groups are taken, as many as a price allows."""
        key = (drawing.option.width, drawing.first, drawing.each, drawing.is_fast)
        if key not in self._cells:
            setting = self.trials.setting(drawing.option)
            cells = Cells(*cells_of(self.hierarchy, setting)).begun_at(drawing.first)
            cells = cells.few_of_each(*drawing.each) if drawing.each else cells
            self._cells[key] = cells.affordable(setting, is_fast=drawing.is_fast)
        return self._cells[key]

    def closing(self, drawing: Drawing) -> list[int]:
        """Numbers of closing stages worth a try: none, and where a model ties layers one and those of its blocks."""
        if not len(self.trials.setting(drawing.option).ties_T2):
            return [0]
        wide = {width for _, width in self.blocks(drawing)} if drawing.widths else set()
        return sorted(num for num in {0, 1, *wide} if num < drawing.pipeline)

    def shape(self, drawing: Drawing) -> Shape:
        """As many replicas as asked for, or as there is room for."""
        space, num = self.space, drawing.pipeline * drawing.option.width
        room = min(len(self.cells(drawing).order_N) // drawing.pipeline, self.trials.num_batches(drawing.option))
        most = min(room * drawing.eighths // 8, space.most // num)
        return Shape(drawing.option, space.data or max(1, space.whole(most, num)), drawing.pipeline)

    def is_partial(self, drawing: Drawing) -> bool:
        """Whether some cells stay unused."""
        shape = self.shape(drawing)
        is_limited = self.trials.setting(drawing.option).price_limit < math.inf
        return is_limited or shape.data * shape.pipeline < len(self.cells(drawing).order_N)

    def _cost(self, drawing: Drawing) -> float:
        trials, shape, cells = self.trials, self.shape(drawing), self.cells(drawing)
        num = shape.data * shape.pipeline
        if num > len(cells.order_N) or shape.data > trials.num_batches(shape.option) or not self.space.admits(shape):
            return math.inf
        setting = trials.setting(shape.option)
        if drawing.is_fast:
            cells = cells.without_slowest(setting, num)
        if trials.is_hopeless(shape, cells.order_N):
            return math.inf
        blocks = _blocks(cells, drawing.widths, shape)
        key = (shape, blocks, replace(drawing, widths=(), eighths=8))
        if key not in self._built:
            mesh_N = draw(cells.order_N, cells.levels, blocks, shape.data, shape.pipeline, by_rows=drawing.by_rows)
            mesh_DP = np.roll(mesh_N.reshape(-1, shape.pipeline), -drawing.num_closing, axis=1)
            self._built[key] = trials.build(shape, mesh_DP.ravel(), self._tour(cells), by_rows=True).cost
        return self._built[key]

    def _tour(self, cells: Cells) -> Ints:
        """The regions in the order of the cells, then those without any."""
        region_N = self.trials.ground.region_M[cells.order_N]
        visits = [*dict.fromkeys(region_N.tolist())]
        return np.array([*visits, *(r for r in range(len(self.trials.ground.regions)) if r not in set(visits))])


def _blocks(cells: Cells, widths: Widths, shape: Shape) -> Blocks:
    return blocks_of([group_sizes(group_N) for group_N in cells.levels], widths, shape.data, shape.pipeline)


def draw_all(trials: Trials, space: Space, shapes: Sequence[tuple[Option, int]], going_on: Going) -> None:
    """Try the plain drawings of some options and numbers of stages, then descend from the best of them."""
    if len(trials.ground.machines) == 1:
        return
    drawings = Drawings(trials, space, hierarchy_of(trials.setting(space.options[0])))
    for option, pipeline in shapes:
        plain = Drawing(option, pipeline, ())
        num_levels = len(drawings.cells(plain).levels)
        choices = product(plain_widths(num_levels), drawings.closing(plain)) if num_levels else ()
        for widths, num_closing in choices:  # none where all machines are alike to their links
            drawings.cost(replace(plain, widths=widths, num_closing=num_closing))
            if not going_on():
                return
    best: dict[tuple[Option, int], Drawing] = {}
    for drawing in sorted(drawings.costs, key=drawings.cost):
        best.setdefault((drawing.option, drawing.pipeline), drawing)
    for drawing in list(best.values())[:NUM_DESCENTS]:
        if drawings.cost(drawing) < math.inf:
            _descend(drawings, drawing, going_on)


def _descend(drawings: Drawings, drawing: Drawing, going_on: Going) -> None:
    """Change one choice at a time as long as that makes it cheaper, and time allows."""
    is_better = True
    while is_better:
        is_better = False
        for choice in CHOICES:
            for variant in choice(drawings, drawing):
                if variant not in drawings.costs and not going_on():
                    return
                if drawings.cost(variant) < drawings.cost(drawing):
                    drawing, is_better = variant, True


def _widths(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    blocks = drawings.blocks(drawing)
    return [replace(drawing, widths=widths) for widths in widths_beside(blocks, drawing.pipeline)]


def _closing(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    return [replace(drawing, num_closing=num) for num in drawings.closing(drawing)]


def _rows(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    return [replace(drawing, by_rows=not drawing.by_rows)]


def _options(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    same = [option for option in drawings.space.beside(drawing.option) if option.tensor == drawing.option.tensor]
    return [replace(drawing, option=option) for option in same]


def _pipelines(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    return [replace(drawing, pipeline=pipeline) for pipeline in drawings.space.pipelines]


def _replicas(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    return [] if drawings.space.data else [replace(drawing, eighths=eighths) for eighths in EIGHTHS]


def _few_of_each(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    """One, two or four cells of each group of a level, as many replicas as these have room for."""
    levels = drawings.cells(replace(drawing, each=None)).levels
    few = [(level, num) for level, group_N in enumerate(levels) for num in FEW if num < typical(group_sizes(group_N))]
    return [replace(drawing, each=each, eighths=8) for each in (None, *few)]


def _unused(drawings: Drawings, drawing: Drawing) -> list[Drawing]:
    """Which cells are left out, where not all are used."""
    if not drawings.is_partial(drawing):
        return []
    num = len(group_sizes(drawings.cells(drawing).levels[-1]))
    others = [replace(drawing, first=first) for first in range(min(num, MOST_FIRST))]
    return [*others, replace(drawing, is_fast=not drawing.is_fast)]


CHOICES: tuple[Callable[[Drawings, Drawing], list[Drawing]], ...] = (
    _widths,
    _closing,
    _rows,
    _options,
    _pipelines,
    _replicas,
    _few_of_each,
    _unused,
)
"""What a descent changes one after another."""
