"""Layouts that people draw, by the levels of a cluster that only its drawer knows: the floors of a search.

Each family says for every replica and stage which accelerator slot it has. Slots are numbered machine by machine, so a
group of any level is a range of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from hulk_placement.cost.closed_form.arrays import Ints

Grid = Ints | None
"""(D, P) slots; None where a family has no such layout."""


def pipelines_inside(group_N: Ints, data: int, pipeline: int) -> Grid:
    """Each replica's stages in one group, as many replicas in each as it has room for."""
    rows = [
        slots[first : first + pipeline]
        for slots in _groups(group_N)
        for first in range(0, len(slots) - pipeline + 1, pipeline)
    ]
    return np.array(rows[:data]) if len(rows) >= data else None


def pipelines_in_turn(group_N: Ints, data: int, pipeline: int) -> Grid:
    """Each replica's stages in one group, replica after replica in the next group."""
    groups, taken = _groups(group_N), [0] * (int(group_N.max()) + 1)
    rows: list[Ints] = []
    for turn in range(data * len(groups)):
        group = turn % len(groups)
        if len(rows) < data and taken[group] + pipeline <= len(groups[group]):
            rows.append(groups[group][taken[group] : taken[group] + pipeline])
            taken[group] += pipeline
    return np.array(rows) if len(rows) == data else None


def replicas_inside(group_N: Ints, data: int, pipeline: int) -> Grid:
    """All replicas of a stage in one group, as many stages in each as it has room for, one after another."""
    columns = [
        slots[first : first + data] for slots in _groups(group_N) for first in range(0, len(slots) - data + 1, data)
    ]
    return np.array(columns[:pipeline]).T if len(columns) >= pipeline else None


def groups_are_stages(group_N: Ints, data: int, pipeline: int) -> Grid:
    """The stages spread evenly over the groups in their order, all replicas of a stage in its group."""
    groups, columns = _groups(group_N), []
    taken = [0] * len(groups)
    for stage in range(pipeline):
        group = stage * len(groups) // pipeline
        column = groups[group][taken[group] : taken[group] + data]
        taken[group] += data
        if len(column) < data:
            return None
        columns.append(column)
    return np.array(columns).T


def one_of_each_group(group_N: Ints, data: int, pipeline: int) -> Grid:
    """Each replica has one slot of each group, stage after stage in the next group."""
    groups = _groups(group_N)
    if len(groups) < pipeline or min(map(len, groups)) < data:
        return None
    return np.array([[groups[stage][replica] for stage in range(pipeline)] for replica in range(data)])


def tiles_inside(group_N: Ints, data: int, pipeline: int, wide: int) -> Grid:
    """Groups hold a part of each pipeline, `wide` stages of it, for as many replicas as they have room for."""
    groups = _groups(group_N)
    tall = min(map(len, groups)) // wide
    if pipeline % wide or not tall or data % tall or len(groups) * tall * wide < data * pipeline:
        return None
    grid, tiles = np.zeros((data, pipeline), np.int64), iter(groups)
    for replica in range(0, data, tall):
        for stage in range(0, pipeline, wide):
            tile = next(tiles)[: tall * wide].reshape(tall, wide)
            grid[replica : replica + tall, stage : stage + wide] = tile
    return grid


def folded(pipeline: int) -> Ints:
    """Columns in the order of a pipeline that goes there by the even ones and comes back by the odd ones.

    >>> folded(4)
    array([0, 2, 3, 1])
    """
    return np.concatenate([np.arange(0, pipeline, 2), np.arange(1, pipeline, 2)[::-1]])


FAMILIES: dict[str, Callable[[Ints, int, int], Grid]] = {
    "pipelines inside": pipelines_inside,
    "pipelines in turn inside": pipelines_in_turn,
    "replicas inside": replicas_inside,
    "stages are": groups_are_stages,
    "one of each": one_of_each_group,
}


def grids(names: tuple[str, ...], group_LN: Ints, data: int, pipeline: int) -> Iterator[tuple[str, Ints]]:
    """Every family's layout at every level, with the words that say which it is."""
    for name, group_N in zip(names, group_LN, strict=True):
        for family, make in FAMILIES.items():
            if (grid := make(group_N, data, pipeline)) is not None:
                yield f"{family} {name}", grid
        for wide in range(2, pipeline):
            if (grid := tiles_inside(group_N, data, pipeline, wide)) is not None:
                yield f"{wide} stages inside {name}", grid
                if wide % 2 == 0:
                    yield f"folded, {wide} stages inside {name}", grid[:, folded(pipeline)]


def _groups(group_N: Ints) -> list[Ints]:
    """The slots of each group, in their order."""
    return [np.flatnonzero(group_N == group) for group in range(int(group_N.max()) + 1)]
