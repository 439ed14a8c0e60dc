"""The best of many ways: constructed layouts, the choices they follow from changed one at a time, then annealing.

First every set of regions that may be worth using is tried with a few shapes. Then rounds of two things take turns:
descents over all choices, in turn from the best of the best sets and from anywhere on sets that do well; and annealing
of the best layouts found, half as many each time for twice as long. Where there are few placements, every round ends
with an attempt to look at all layouts: a proof, or what the others have missed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from hulk_placement.cost.closed_form.setting import Option
from hulk_placement.layouts import exact, starts
from hulk_placement.layouts.annealing import annealed
from hulk_placement.layouts.drafts import EIGHTHS, Draft, Drafts
from hulk_placement.layouts.drawings import draw_all
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials

NUM_SETS = 6
"""Sets of regions from which a descent begins."""

NUM_FEW = 4
"""Numbers of stages that stand for all of them."""

MOST_REGIONS = 32
"""Of more, sets of regions are not all tried before anything else: there are half as many as regions squared."""

NUM_LATER = 16
"""Of those sets, at first and in each round."""

NUM_DRAWN = 3
"""Options and numbers of stages of the best drafts, by which layouts are drawn too."""

NUM_CALLS = 2
"""Of annealing, there, for the best layout before anything else is tried."""

NUM_ANNEALED = 8
NUM_DESCENTS = 24
"""Between two rounds of annealing."""

TOWARDS_BEST = 4
"""Power of a number drawn from 0 .. 1 that says which set of regions is taken, from the best at 0 to the worst."""

PROOF_SHARE = 0.1
"""Of the evaluations until then: what an attempt may take."""

Going = Callable[[], bool]


def search(trials: Trials, space: Space, going_on: Going, seed: int) -> None:
    """Construct, descend, anneal, and begin again elsewhere; at least the constructed layouts of a set of regions.

    A round that finds nothing to evaluate is the last.
    """
    drafts, rng = Drafts(trials, space), random.Random(seed)
    sets, is_many = _sets(trials, space), len(trials.ground.regions) > MOST_REGIONS
    if is_many:
        shapes = list(itertools.product(probes(space), spread(space.pipelines, NUM_FEW)))
        draw_all(trials, space, shapes, going_on)
    construct(drafts, itertools.islice(sets, NUM_LATER if is_many else None), going_on)
    if not is_many and going_on():
        draw_all(trials, space, drafts.best_shapes(NUM_DRAWN), going_on)
    for trial in trials.best(1) if is_many else ():
        annealed(trials, trial, NUM_CALLS, going_on, seed)
    beginnings, length, num_before = _beginnings(drafts, rng), 1, -1
    while going_on() and trials.num_evaluations > num_before:
        num_before = trials.num_evaluations
        for _ in range(NUM_DESCENTS):
            drafts.descend(next(beginnings), going_on)
        improve(trials, length, going_on, seed + length)
        length *= 2
        construct(drafts, itertools.islice(sets, NUM_LATER), going_on)
        if going_on() and exact.are_few(trials, space):
            room = PROOF_SHARE * trials.num_evaluations
            most = trials.num_evaluations + room
            exact.search(trials, space, lambda most=most: going_on() and trials.num_evaluations < most, seed, room)  # type: ignore[misc]
            if trials.is_exhausted:
                return


def _sets(trials: Trials, space: Space) -> Iterator[starts.Regions]:
    """Sets of regions that may be worth using; all together first where they are many."""
    setting, num = trials.setting(space.options[0]), len(trials.ground.regions)
    if num > MOST_REGIONS:
        yield tuple(range(num))
    yield from starts.grown_sets(setting, starts.speed_by_region(setting))


def construct(drafts: Drafts, sets: Iterator[starts.Regions], going_on: Going) -> None:
    """Layouts of a few shapes on some sets of regions; below a price limit with fewer replicas too."""
    trials, space = drafts.trials, drafts.space
    is_limited = space.data is None and trials.ground.workload.max_price_per_hour is not None
    for regions in sets:
        for option, pipeline in itertools.product(probes(space), spread(space.pipelines, NUM_FEW)):
            drafts.cost(Draft(regions, option, pipeline))
            drafts.cost(Draft(regions, option, pipeline, by_rows=False))
            for eighths in EIGHTHS if is_limited else EIGHTHS[:1]:
                drafts.cost(Draft(regions, option, pipeline, eighths, by_rows=False, is_dealt=True))
        if trials.num_evaluations and not going_on():
            return


def _beginnings(drafts: Drafts, rng: random.Random) -> Iterator[Draft]:
    """Of each option on each of the best sets of regions the cheapest draft, the cheapest first; others in between."""
    best_sets = set(drafts.ranked_sets()[:NUM_SETS])
    found: dict[tuple[starts.Regions, Option], Draft] = {}
    for draft in sorted(drafts.costs, key=drafts.cost):
        if draft.regions in best_sets:
            found.setdefault((draft.regions, draft.option), draft)
    for draft in found.values():
        yield draft
        yield _drawn(drafts, rng)
    while True:
        yield _drawn(drafts, rng)


def _drawn(drafts: Drafts, rng: random.Random) -> Draft:
    """A draft at random, on regions that were tried; mostly on those that do best."""
    sets, space = drafts.ranked_sets(), drafts.space
    return Draft(
        regions=sets[int(rng.random() ** TOWARDS_BEST * len(sets))],
        option=rng.choice(space.options),
        pipeline=rng.choice(space.pipelines),
        eighths=rng.choice(EIGHTHS) if space.data is None else EIGHTHS[0],
        by_rows=rng.random() < 0.5,
        is_fast=rng.random() < 0.5,
        is_dealt=rng.random() < 0.5,
    )


def probes(space: Space) -> tuple[Option, ...]:
    """Options at the ends: the least and the most tensor-parallel, with and without recomputation, small batches."""
    by_need = sorted(space.usual, key=lambda option: (option.micro_batch, option.tensor, option.recompute))
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


def improve(trials: Trials, length: int, going_on: Going, seed: int) -> None:
    """Anneal the best, half as many in each round for twice as long; where there is more time, one more of them."""
    field, calls = trials.best(NUM_ANNEALED + length.bit_length() - 1), length
    while field and going_on():
        field = sorted(annealed(trials, trial, calls, going_on, seed) if going_on() else trial for trial in field)
        if len(field) == 1:
            return
        field = field[: len(field) // 2]
        calls *= 2
