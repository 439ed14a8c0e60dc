"""Layouts drawn along the levels of the link hierarchy: which part of the mesh of replicas and stages a group holds.

A mesh of D replicas x P stages is cut into blocks, level by level: a group of a level holds whole blocks of d x p
cells, and a block of the next level is made of such blocks. With p = P at the innermost level pipelines stay inside
boxes; with p = 1 up to a level the replicas of a stage are inside its groups, and pipelines cross them; anything
between is a mixture. Two boxes of four cells, 4 replicas x 2 stages, p = 1 and so d = 4 (each box is a stage):

    replica   0 1 2 3
    stage 0   a a a a
    stage 1   b b b b
"""

from __future__ import annotations

from itertools import product

import numpy as np

from hulk_placement.cost.closed_form.arrays import Ints, Setting
from hulk_placement.layouts.hierarchy import Hierarchy

Widths = tuple[int, ...]
"""Stages of a block, by level from the innermost on; fewer where a group has no room or they do not divide all."""

Blocks = tuple[tuple[int, int], ...]
"""Replicas and stages of a block, by level; each divides the next."""

NARROW, WIDE = 1, 1 << 30
"""Widths of levels that hold replicas alone, as far as the level below lets them, and as many stages as have room."""


def plain_widths(num_levels: int) -> list[Widths]:
    """One choice at each level: first as many stages as have room, or first replicas."""
    return list(product((WIDE, NARROW), repeat=num_levels))


def widths_beside(blocks: Blocks, pipeline: int) -> list[Widths]:
    """Those that differ at one level from those of some blocks, and at others as far as they must.

    >>> widths_beside(((4, 1), (4, 2)), 2)
    [(2, 2), (1, 1)]
    """
    widths = tuple(width for _, width in blocks)
    found: dict[Widths, None] = {}
    for level, width in product(range(len(widths)), divisors(pipeline)):
        inner, outer = widths[:level], widths[level + 1 :]
        found.setdefault((*(min(w, width) for w in inner), width, *(max(w, width) for w in outer)))
    found.pop(widths, None)
    return list(found)


def blocks_of(sizes_LG: list[Ints], widths: Widths, data: int, pipeline: int) -> Blocks:
    """The blocks of each level: as wide as asked, as tall as typical groups have room for and most replicas fit.

    4 replicas of 4 stages over machines of 2 cells in boxes of 4:

    >>> machines, boxes = np.full(8, 2), np.full(4, 4)
    >>> blocks_of([machines, boxes], (WIDE, WIDE), 4, 4), blocks_of([machines, boxes], (NARROW, WIDE), 4, 4)
    (((1, 2), (1, 4)), ((2, 1), (2, 2)))
    """
    blocks: list[tuple[int, int]] = []
    tall, wide = 1, 1
    for size_G, asked in zip(sizes_LG, widths, strict=True):
        room = typical(size_G)
        wide = max((w for w in divisors(pipeline) if w % wide == 0 and w <= min(asked, room // tall)), default=wide)
        tries = np.arange(tall, max(tall, min(data, room // wide)) + 1, tall)
        num_blocks = (size_G[:, None] // (tries * wide)).sum(axis=0)
        num_rows = np.minimum(data, num_blocks // (pipeline // wide) * tries)
        tall = int(tries[np.lexsort((tries, data % tries == 0, num_rows))[-1]])
        blocks.append((tall, wide))
    return tuple(blocks)


def typical(size_G: Ints) -> int:
    """The largest size such that half of all cells at least are in groups that are no smaller.

    >>> typical(np.array([8, 8, 4, 4, 4]))
    8
    """
    size_G = np.sort(size_G)[::-1]
    return int(size_G[np.searchsorted(np.cumsum(size_G), size_G.sum() / 2)])


def divisors(number: int) -> list[int]:
    """Of a number, the least first."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def cells_of(hierarchy: Hierarchy, setting: Setting) -> tuple[Ints, list[Ints]]:
    """The machine of every cell, group by group, and at each level the number of each cell's group.

    Machines are the innermost level where some have several cells.
    """
    order_N = np.repeat(hierarchy.order_M, setting.slots_M[hierarchy.order_M])
    levels = [group_M[order_N] for group_M in hierarchy.group_LM]
    return order_N, [order_N, *levels] if (setting.slots_M > 1).any() else levels


def group_sizes(group_N: Ints) -> Ints:
    """Cells of each group."""
    return np.unique(group_N, return_counts=True)[1]


def draw(order_N: Ints, levels: list[Ints], blocks: Blocks, data: int, pipeline: int, *, by_rows: bool) -> Ints:
    """Machines of the mesh, replica by replica, (D x P,); blocks, and what they are made of, in rows or in columns.

    What is over in a group is used where whole blocks do not fill the mesh. There are as many cells at least.
    """
    cells_BC, place_C2, shape = np.arange(len(order_N))[:, None], np.zeros((1, 2), np.int64), (1, 1)
    for group_N, block in zip(levels, blocks, strict=True):
        num_cells = block[0] * block[1]
        cells_BC = _whole(cells_BC, group_N, num_cells // cells_BC.shape[1]).reshape(-1, num_cells)
        place_C2, shape = _tiled(place_C2, shape, block, by_rows), block
    num_rows = -(-data // shape[0]) * shape[0]
    place_C2 = _tiled(place_C2, shape, (num_rows, pipeline), by_rows)
    num = min(len(place_C2), cells_BC.size)
    is_used = place_C2[:num, 0] < data
    cells_N = cells_BC.ravel()[:num][is_used]
    mesh = np.full(data * pipeline, -1)
    mesh[place_C2[:num][is_used] @ (pipeline, 1)] = cells_N
    left_N = np.setdiff1d(np.arange(len(order_N)), cells_N, assume_unique=True)
    mesh[mesh < 0] = left_N[: int((mesh < 0).sum())]
    machines: Ints = order_N[mesh]
    return machines


def _whole(cells_BC: Ints, group_N: Ints, num: int) -> Ints:
    """The blocks of each group without those that are over where so many become one; groups follow each other."""
    if not len(cells_BC):
        return cells_BC
    group_B = group_N[cells_BC[:, 0]]
    first_G = np.flatnonzero(np.concatenate([[True], group_B[1:] != group_B[:-1]]))
    count_G = np.diff([*first_G, len(group_B)])
    place_B = np.arange(len(group_B)) - np.repeat(first_G, count_G)
    return cells_BC[place_B < np.repeat(count_G // num * num, count_G)]


def _tiled(place_C2: Ints, shape: tuple[int, int], whole: tuple[int, int], by_rows: bool) -> Ints:
    """Row and column of each cell of a larger block, by those inside the blocks that it is made of."""
    rows, columns = np.meshgrid(*(np.arange(0, w, s) for w, s in zip(whole, shape, strict=True)), indexing="ij")
    if not by_rows:
        rows, columns = rows.T, columns.T
    corners = np.stack([rows.ravel(), columns.ravel()], axis=-1)
    tiled: Ints = (corners[:, None] + place_C2).reshape(-1, 2)
    return tiled
