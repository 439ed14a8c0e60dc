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
from hulk_placement.layouts.space import Space
from hulk_placement.layouts.trials import Trials

NUM_SETS = 6
"""Sets of regions from which a descent begins."""

NUM_FEW = 4
"""Numbers of stages that stand for all of them."""

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
    construct(drafts, going_on)
    beginnings, length, num_before = _beginnings(drafts, rng), 1, -1
    while going_on() and trials.num_evaluations > num_before:
        num_before = trials.num_evaluations
        for _ in range(NUM_DESCENTS):
            drafts.descend(next(beginnings), going_on)
        if trials.parts.annealing:
            improve(trials, length, going_on, seed + length)
        length *= 2
        if going_on() and exact.are_few(trials, space):
            room = PROOF_SHARE * trials.num_evaluations
            most = trials.num_evaluations + room
            exact.search(trials, space, lambda most=most: going_on() and trials.num_evaluations < most, seed, room)  # type: ignore[misc]
            if trials.is_exhausted:
                return


def construct(drafts: Drafts, going_on: Going) -> None:
    """Layouts of a few shapes on every set of regions."""
    trials, space = drafts.trials, drafts.space
    setting = trials.setting(space.options[0])
    for regions in starts.grown_sets(setting, starts.speed_by_region(setting)):
        for option, pipeline in itertools.product(probes(space), spread(space.pipelines, NUM_FEW)):
            drafts.cost(Draft(regions, option, pipeline))
            drafts.cost(Draft(regions, option, pipeline, by_rows=False))
            drafts.cost(Draft(regions, option, pipeline, by_rows=False, is_dealt=True))
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
