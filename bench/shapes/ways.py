"""The ways to place a model on four devices and to order its blocks, each with what it is predicted to take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final

from hulk_placement.schedule import shapes
from hulk_placement.schedule.placement import Placement
from hulk_placement.schedule.search import scheduled
from hulk_placement.schedule.wire import document

from bench.shapes.costs import BLOCK, FRONT, HEAD, JOIN, Costs, with_spans

NUM_DEVICES: Final = 4
EVERYWHERE: Final = tuple(range(NUM_DEVICES))
MEMORY: Final = float(NUM_DEVICES)
"""Stages' activations that a device holds at most: those that 1F1B holds."""

M, M_1F1B, CONTIGUOUS, TENSOR, X = "M, searched", "M, 1F1B", "contiguous, 1F1B", "tensor parallel", "X, searched"
M_MORE, X_MORE = "M, more memory", "X, more memory"
"""Searched with as much for activations as tensor parallel holds: a quarter of all blocks' of the whole batch."""

K = "K, searched"
RIVALS: Final = {M: (M_1F1B, CONTIGUOUS, X), M_MORE: (TENSOR, X_MORE), K: (CONTIGUOUS, TENSOR)}
"""With whom each is compared that has the same memory."""

Ranges = Mapping[str, range]


@dataclass(frozen=True, slots=True)
class Way:
    """A schedule as ranks read it, the layers of each stage, and the seconds that the evaluator predicts."""

    name: str
    schedule: dict[str, Any]
    ranges: Ranges
    predicted_s: float


def cuts(num_layers: int, num_stages: int = NUM_DEVICES) -> Iterator[Ranges]:
    """All into ranges of one layer or more.

    >>> [[len(each) for each in ranges.values()] for ranges in cuts(4, 3)]
    [[1, 1, 2], [1, 2, 1], [2, 1, 1]]
    """
    for inner in combinations(range(1, num_layers), num_stages - 1):
        edges = (0, *inner, num_layers)
        yield {str(n): range(*edges[n : n + 2]) for n in range(num_stages)}


def kinds_of(kinds: Sequence[str], ranges: Ranges) -> dict[str, list[str]]:
    """Of each stage's layers."""
    return {stage: [kinds[number] for number in numbers] for stage, numbers in ranges.items()}


def best_cut(placement: Placement, costs: Costs, kinds: Sequence[str], num_samples: int, num: int, mode: str) -> Ranges:
    """The cut whose schedule is predicted to be shortest."""

    def makespan(ranges: Ranges) -> float:
        timed = with_spans(placement, costs, kinds_of(kinds, ranges), num_samples)
        return scheduled(timed, num, mode=mode).schedule.makespan

    return min(cuts(len(kinds)), key=makespan)


def training(costs: Costs, num_layers: int, num_samples: int, seconds: float) -> list[Way]:
    """M, and what it is compared with; a micro-batch is one sample, in X one in each direction."""
    kinds = [FRONT, *[BLOCK] * num_layers, HEAD]
    make = partial(_way, costs, kinds, seconds)
    m, spread = m_and_head(), spread_ranges(num_layers)
    v, x, whole = shapes.v(NUM_DEVICES), shapes.x(NUM_DEVICES), shapes.chain([("all", EVERYWHERE)], NUM_DEVICES, 1, 1)
    crossed = best_cut(x, costs, kinds, 1, num_samples // 2, "fast")
    return [
        make(M, m, spread, 1, num_samples, "searched", MEMORY),
        make(M_1F1B, m, spread, 1, num_samples, "1f1b"),
        make(CONTIGUOUS, v, best_cut(v, costs, kinds, 1, num_samples, "1f1b"), 1, num_samples, "1f1b"),
        make(TENSOR, whole, {"all": range(len(kinds))}, num_samples, 1, "fast"),
        make(X, x, crossed, 1, num_samples // 2, "searched", MEMORY),
        make(M_MORE, m, spread, 1, num_samples, "searched", float(num_samples)),
        make(X_MORE, x, crossed, 1, num_samples // 2, "searched", float(num_samples)),
    ]


def _way(
    costs: Costs,
    kinds: Sequence[str],
    seconds: float,
    name: str,
    placement: Placement,
    ranges: Ranges,
    num_samples: int,
    num: int,
    mode: str,
    memory: float = math.inf,
) -> Way:
    """A placement with its spans, and its schedule of so many micro-batches of so many samples."""
    timed = with_spans(placement, costs, kinds_of(kinds, ranges), num_samples)
    found = scheduled(timed, num, memory, seconds, mode).schedule
    return Way(name, document(timed, found), ranges, found.makespan)


def m_and_head() -> Placement:
    """M: the embedding on all devices, a stage on each, and the head on all again before the way back."""
    stages = [("all", EVERYWHERE), *((str(d), (d,)) for d in EVERYWHERE), ("head", EVERYWHERE)]
    return shapes.chain(stages, NUM_DEVICES, 1, 1)


def spread_ranges(num_layers: int) -> Ranges:
    """The layers of M's stages.

    >>> spread_ranges(8)["1"], spread_ranges(8)["head"]
    (range(3, 5), range(9, 10))
    """
    edges = [1 + num_layers * n // NUM_DEVICES for n in range(NUM_DEVICES + 1)]
    inner = {str(n): range(*edges[n : n + 2]) for n in EVERYWHERE}
    return {"all": range(1), **inner, "head": range(num_layers + 1, num_layers + 2)}


def inference(costs: Costs, num_tower: int, num_join: int, num_samples: int, seconds: float) -> list[Way]:
    """K, and what it is compared with, each with as many micro-batches as are predicted to be quickest."""
    towers = [*[FRONT, *[BLOCK] * num_tower] * 2, JOIN, *[BLOCK] * num_join]
    divided = {"all": range(len(towers))}
    whole = shapes.chain([("all", EVERYWHERE)], NUM_DEVICES, 1, 1).forward_only()
    v, k = shapes.v(NUM_DEVICES).forward_only(), shapes.k(NUM_DEVICES).forward_only()
    found = []
    for name, placement, mode in ((K, k, "searched"), (CONTIGUOUS, v, "1f1b"), (TENSOR, whole, "fast")):
        each = []
        for num in divisors(num_samples):
            size = num_samples // num
            ranges = {K: branch_ranges(num_tower, num_join), TENSOR: divided}.get(name)
            ranges = ranges or best_cut(v, costs, towers, size, num, "fast")
            each.append(_way(costs, towers, seconds, name, placement, ranges, size, num, mode))
        found.append(min(each, key=lambda one: one.predicted_s))
    return found


def branch_ranges(num_tower: int, num_join: int) -> Ranges:
    """The layers of K's stages.

    >>> branch_ranges(4, 2)
    {'0': range(0, 3), '1': range(3, 5), '2': range(5, 8), '3': range(8, 10), 'all': range(10, 13)}
    """
    half, one = 1 + num_tower // 2, 1 + num_tower
    starts = [0, half, one, one + half, 2 * one, 2 * one + 1 + num_join]
    return {stage: range(*starts[n : n + 2]) for n, stage in enumerate(("0", "1", "2", "3", "all"))}


def divisors(num: int) -> list[int]:
    """
    >>> divisors(4)
    [1, 2, 4]
    """
    return [one for one in range(1, num + 1) if num % one == 0]
