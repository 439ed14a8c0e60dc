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
"""Sets of regions on which every option is tried."""

NUM_PAIRS = 24
"""Of a set and an option, on which every number of stages is tried."""

NUM_FEW = 4
"""Numbers of stages that stand for all of them."""

NUM_ANNEALED = 8

Going = Callable[[], bool]
Pair = tuple[starts.Regions, Option]


def search(trials: Trials, space: Space, going_on: Going, seed: int) -> None:
    """Construct, then anneal; at least the constructed layouts of one set of regions."""
    construct(trials, space, going_on)
    improve(trials, going_on, seed)


def construct(trials: Trials, space: Space, going_on: Going) -> None:
    """Layouts of ever more shapes on ever fewer sets of regions, those that did best."""
    setting = trials.setting(space.options[0])
    sets = starts.grown_sets(setting, starts.speed_by_region(setting), float(setting.gradient_J[-1]))
    few = spread(space.pipelines, NUM_FEW)
    probed = _ranked(trials, space, few, itertools.product(sets, probes(space)), going_on)
    best_sets = list(dict.fromkeys(regions for regions, _ in probed))[:NUM_SETS]
    pairs = _ranked(trials, space, few, itertools.product(best_sets, space.options), going_on)
    _ranked(trials, space, space.pipelines, iter(pairs[:NUM_PAIRS]), going_on)


def _ranked(
    trials: Trials, space: Space, pipelines: tuple[int, ...], pairs: Iterator[Pair], going_on: Going
) -> list[Pair]:
    """The pairs of a set of regions and an option by their best layout, the cheapest first; the first one at least."""
    found: list[tuple[float, int, Pair]] = []
    for number, pair in enumerate(pairs):
        if number and not going_on():
            break
        costs = (trial.cost for trial in layouts(trials, pair[1], pipelines, space.data, pair[0]))
        found.append((min(costs, default=float("inf")), number, pair))
    return [pair for _, _, pair in sorted(found)]


def probes(space: Space) -> tuple[Option, ...]:
    """Options at the ends: the least and the most tensor-parallel, with and without recomputation, small batches."""
    by_need = sorted(space.options, key=lambda option: (option.micro_batch, option.tensor, option.recompute))
    least = [option for option in by_need if option.micro_batch == by_need[0].micro_batch]
    widest = max(option.tensor for option in least)
    return tuple(option for option in least if option.tensor in (least[0].tensor, widest))


def spread(numbers: tuple[int, ...], num: int) -> tuple[int, ...]:
    """So many of some numbers, both ends among them.

    >>> spread((1, 2, 3, 4, 6, 8, 12), 3)
    (1, 4, 12)
    """
    if len(numbers) <= num:
        return numbers
    return tuple(numbers[k * (len(numbers) - 1) // (num - 1)] for k in range(num))


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
