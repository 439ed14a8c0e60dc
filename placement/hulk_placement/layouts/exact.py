"""Every layout there is, for cases small enough: all shapes, cells, splits of layers, shares and orders of regions.

What cannot be better than the best possible one known is not looked at: cells that, all of them always busy, would take
as long; a split whose slowest replica alone does. Replicas that only change places are one layout. Machines that are
alike are not told apart. Layouts that memory, price, pins or workers rule out are passed over, so that what is proven
is proven of those that are possible. Where the time ends before, the result is only the best seen, and
`Trials.is_exhausted` stays false.

All rings follow one tour: any closed walk over the regions, so that of one stage, or of two replicas, every ring is
looked at. Several stages of three or more replicas may have rings of their own; what those might cost at least is kept
in `Trials.open_cost`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from hulk_placement.cost.closed_form.arrays import Cache, Ints, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trials, is_within_limits

FEW_PLACEMENTS = 720
"""Of a shape, cells told apart: any of six cells has no more."""

Cells = tuple[tuple[int, ...], ...]
"""Machines of each replica's stages."""


def search(
    trials: Trials, space: Space, going_on: Callable[[], bool], seed: int, most_splits: float = math.inf
) -> None:
    """Enumerate; `seed` decides nothing. Cells with more than `most_splits` ways to split them end it at once."""
    if all(_shape(trials, shape, going_on, most_splits) for shape in _shapes(trials, space)):
        trials.is_exhausted = True


def are_few(trials: Trials, space: Space) -> bool:
    """Whether each shape has so few placements that it is worth an attempt to look at all layouts."""
    return all(
        math.perm(_num_cells(trials, shape.option), shape.data * shape.pipeline) <= FEW_PLACEMENTS
        for shape in _shapes(trials, space)
    )


def _shapes(trials: Trials, space: Space) -> Iterator[Shape]:
    """All that there are layouts of."""
    for option in space.options:
        for num_stages in space.every or space.pipelines:
            most = min(_num_cells(trials, option) // num_stages, trials.num_batches(option))
            shapes = (Shape(option, data, num_stages) for data in range(1, most + 1) if space.data in (None, data))
            yield from filter(space.admits, shapes)


def _num_cells(trials: Trials, option: Option) -> int:
    """For how many cells there is room."""
    return int(trials.setting(option).slots_M.sum())


def _shape(trials: Trials, shape: Shape, going_on: Callable[[], bool], most_splits: float) -> bool:
    """Every layout of a shape; False where the time is over, or there are too many."""
    setting = trials.setting(shape.option)
    are_few = most_splits == math.inf or num_splits(setting, shape) <= most_splits
    for number, cells in enumerate(placements(setting, shape.data, shape.pipeline)):
        if (number or trials.num_evaluations) and not going_on():
            return False
        machine_DP = np.array(cells)
        if trials.is_hopeless(shape, machine_DP.ravel()):
            continue
        if not are_few or not _splits(trials, shape, machine_DP, going_on):
            return False
    return True


def num_splits(setting: Setting, shape: Shape) -> int:
    """Ways to split the layers and share the sequences of one placement."""
    cuts = math.comb(len(setting.output_L) - 1, shape.pipeline - 1)
    if setting.is_equal:
        return cuts * math.comb(shape.data, setting.global_batch % shape.data)
    return cuts * math.comb(setting.global_batch - 1, shape.data - 1)


def placements(setting: Setting, data: int, num_stages: int) -> Iterator[Cells]:
    """Machines for all cells, replicas in rising order; of machines that are alike the first with room is taken."""
    figures = zip(setting.kind_M, setting.place_M, setting.slots_M, setting.banned_MJ, strict=True)
    alike = [(int(kind), int(place), int(room), banned_J.tobytes()) for kind, place, room, banned_J in figures]

    def pipelines(left: list[int], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == num_stages:
            yield chosen
            return
        fresh: set[tuple[int, int, int, bytes]] = set()
        for machine, room in enumerate(left):
            used = room < setting.slots_M[machine]
            if not room or (not used and alike[machine] in fresh):
                continue
            if not used:
                fresh.add(alike[machine])
            left[machine] -= 1
            yield from pipelines(left, (*chosen, machine))
            left[machine] += 1

    def replicas(left: list[int], chosen: Cells) -> Iterator[Cells]:
        if len(chosen) == data:
            yield chosen
            return
        for pipeline in pipelines(left, ()):
            if chosen and pipeline < chosen[-1]:
                continue
            # the generator has taken the pipeline's cells while it waits
            yield from replicas(left.copy(), (*chosen, pipeline))

    yield from replicas(setting.slots_M.tolist(), ())


def _splits(trials: Trials, shape: Shape, machine_DP: np.ndarray, going_on: Callable[[], bool]) -> bool:
    """Every split of layers, share of sequences and order of regions for these cells; the best is kept.

    False where the time is over.
    """
    setting, cache = trials.setting(shape.option), trials.cache(shape)
    num_layers, room = len(setting.output_L), _room(setting, machine_DP)
    rest = [region for region in range(len(setting.uplink_R)) if region not in room]
    cuts = itertools.combinations(range(1, num_layers), shape.pipeline - 1)
    best, best_cost, num, is_whole = None, trials.to_beat(shape), 0, True
    for inner, shares_D in ((inner, shares_D) for inner in cuts for shares_D in _shares(setting, shape.data)):
        for tour in walks(room) if shape.data > 2 else [tuple(room)]:
            is_whole = not num or going_on()
            if not is_whole:
                break
            tour_W = np.array([*tour, *rest])
            layout = Layout(machine_DP, np.array([0, *inner, num_layers]), shares_D, tour_W)
            cost, num = evaluate(setting, layout, cache), num + 1
            trials.num_evaluations += 1  # `going_on` may ask for it
            is_within = is_within_limits(setting, layout, cache)
            if cost < best_cost and is_within:
                best, best_cost = layout, cost
            floor = _floor(setting, layout, cache)
            if shape.data > 2 and shape.pipeline > 1 and is_within:
                trials.open_cost = min(trials.open_cost, floor)
            if floor >= best_cost:
                break  # whatever the tour
        if not is_whole:
            break
    if best is not None:
        trials.keep(shape, best, evaluate(setting, best, cache), num_evaluations=0)
    return is_whole


def _room(setting: Setting, machine_DP: Ints) -> dict[int, int]:
    """How often a ring can come to each region that is used: as often as the stage with most cells there has some."""
    region_DP = setting.region_M[machine_DP]
    return {int(region): int((region_DP == region).sum(axis=0).max()) for region in np.unique(region_DP)}


def _floor(setting: Setting, layout: Layout, cache: Cache) -> float:
    """What the layout that was evaluated last costs at least, whatever its rings: its pipelines alone."""
    last_s = float(cache.ends_DP.max())
    return last_s * float(setting.price_K[setting.kind_M[layout.machine_DP]].sum()) if setting.is_money else last_s


def _shares(setting: Setting, data: int) -> Iterator[Ints]:
    """Sequences of each replica: all ways to share them, or to share them equally."""
    if setting.is_equal:
        base, rest = divmod(setting.global_batch, data)
        for more in itertools.combinations(range(data), rest):
            yield np.array([base + (replica in more) for replica in range(data)])
        return
    yield from map(np.array, compositions(setting.global_batch, data))


def walks(room: dict[int, int]) -> Iterator[tuple[int, ...]]:
    """Closed walks that come to each region at least once and at most as often as there is room, the shortest first.

    Of those that only begin elsewhere one.

    >>> list(walks({4: 2, 7: 2}))
    [(4, 7), (4, 7, 4, 7)]
    """
    first = next(iter(room))
    if len(room) == 1:
        yield (first,)
        return

    def longer(walk: tuple[int, ...], num_left: int) -> Iterator[tuple[int, ...]]:
        left = {region: most - walk.count(region) for region, most in room.items()}
        if sum(region not in walk for region in room) > num_left:
            return
        if sum(min(num, (num_left + 1) // 2) for num in left.values()) < num_left:
            return
        if not num_left:
            if walk[-1] != walk[0] and walk == min(walk[k:] + walk[:k] for k in range(len(walk)) if walk[k] == first):
                yield walk
            return
        for region, num in left.items():
            if num and region != walk[-1]:
                yield from longer((*walk, region), num_left - 1)

    for length in range(len(room), sum(room.values()) + 1):
        yield from longer((first,), length - 1)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to share a number in positive parts, in order.

    >>> list(compositions(3, 2))
    [(1, 2), (2, 1)]
    """
    for cuts in itertools.combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(ends))
