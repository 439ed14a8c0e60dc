"""The best of many ways: constructed layouts of every shape, then annealing of the most promising, by halves.

First every set of regions that may be worth using is tried with a few shapes, then every shape on the best sets. What
is left of the time anneals the best layouts, each round half as many for twice as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from hulk_placement.cost.closed_form.arrays import Ints
from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.layouts import starts
from hulk_placement.layouts.annealing import annealed
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Shape, Trial, Trials

NUM_SETS = 6
"""Sets of regions on which every shape is tried."""

NUM_ANNEALED = 8

Going = Callable[[], bool]


def search(trials: Trials, space: Space, going_on: Going, seed: int) -> None:
    """Construct, then anneal; at least the constructed layouts of one set of regions."""
    construct(trials, space, going_on)
    improve(trials, going_on, seed)


def construct(trials: Trials, space: Space, going_on: Going) -> None:
    """Layouts of every shape on the sets of regions that do best with a few."""
    setting = trials.setting(space.options[0])
    num_bytes = float(setting.gradient_J[-1])
    sets = list(starts.grown_sets(setting, starts.speed_by_region(setting), num_bytes))
    ranked = []
    for number, regions in enumerate(sets):
        if number and not going_on():
            break
        found = [t.cost for option, few in _probes(space) for t in layouts(trials, option, few, space.data, regions)]
        ranked.append((min(found, default=float("inf")), number))
    for _, number in sorted(ranked)[:NUM_SETS]:
        for option in space.options:
            if not going_on():
                return
            for _ in layouts(trials, option, space.pipelines, space.data, sets[number]):
                pass


def _probes(space: Space) -> Iterator[tuple[Option, tuple[int, ...]]]:
    """A few shapes of very different kinds."""
    few = tuple(dict.fromkeys(space.pipelines[len(space.pipelines) * k // 3] for k in range(3)))
    for option in dict.fromkeys((space.options[0], space.options[len(space.options) // 3], space.options[-1])):
        yield option, few


def layouts(
    trials: Trials, option: Option, pipelines: tuple[int, ...], data: int | None, regions: starts.Regions
) -> Iterator[Trial]:
    """Layouts of one option over a set of regions: tours, memories, numbers of stages and replicas, rows or columns."""
    setting = trials.setting(option)
    num_bytes = float(setting.gradient_J[-1])
    for tour_W, memory in itertools.product(starts.tours(setting, regions, num_bytes), starts.memory_levels(setting)):
        order_N = starts.order_cells(setting, tour_W, regions, memory)
        for num_stages in pipelines:
            for shape in _shapes(trials, option, num_stages, data, order_N):
                for by_rows in (True, False) if num_stages > 1 else (True,):
                    if trials.is_hopeless(shape, order_N):
                        break
                    yield trials.build(shape, order_N, tour_W, by_rows)


def _shapes(trials: Trials, option: Option, num_stages: int, data: int | None, order_N: Ints) -> Iterator[Shape]:
    """As many replicas as there is room for, half as many, a quarter; or as many as are asked for."""
    most = min(len(order_N) // num_stages, trials.num_batches(option))
    numbers = [most >> power for power in range(3)] if data is None else [data if data <= most else 0]
    for number in dict.fromkeys(numbers):
        if number:
            yield Shape(option, number, num_stages)


def improve(trials: Trials, going_on: Going, seed: int) -> None:
    """Anneal the best, half as many in each round for twice as long."""
    field, calls = trials.best(NUM_ANNEALED), 1
    while field and going_on():
        field = sorted(annealed(trials, trial, calls, going_on, seed) for trial in field)
        field = field[: max(1, len(field) // 2)]
        calls *= 2
