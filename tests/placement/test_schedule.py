"""Schedules found by search, beside makespans, periods and latencies that are known; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hulk_placement.schedule.exact import time_optimal
from hulk_placement.schedule.links import DeviceLink, with_links
from hulk_placement.schedule.placement import Block, Kind, Placement
from hulk_placement.schedule.repetend import repetend
from hulk_placement.schedule.search import scheduled
from hulk_placement.schedule.shapes import SHAPES
from hulk_placement.schedule.timing import check
from hulk_placement.schedule.wire import document, unrolled

from bench.schedules import SHORTEST

MEMORY = 16.0
LONG_S = 60.0
"""For the solver, which needs a hundredth of it: a busy machine must not decide a test."""

INFERENCE: dict[str, Callable[[int], int]] = {
    "v": lambda n: 3 + n,
    "m": lambda n: 3 + 2 * n,
    "nn": lambda n: 3 + 3 * n,
    "x": lambda n: 2 + 2 * n,
}


@pytest.mark.parametrize("shape", SHORTEST)
@pytest.mark.parametrize("num", [1, 2, 4])
def test_the_shortest_schedule_is_proven(shape: str, num: int) -> None:
    found = time_optimal(SHAPES[shape](4, 1, 3), num, MEMORY, LONG_S)
    check(found.schedule, MEMORY)
    assert (found.schedule.makespan, found.is_proven) == (SHORTEST[shape](num), True)


@pytest.mark.parametrize("shape", INFERENCE)
@pytest.mark.parametrize("num", [1, 3])
def test_forward_passes_alone(shape: str, num: int) -> None:
    found = time_optimal(SHAPES[shape](4, 1, 3).forward_only(), num, MEMORY, LONG_S)
    assert (found.schedule.makespan, found.is_proven) == (INFERENCE[shape](num), True)


@pytest.mark.parametrize(
    ("shape", "bubbles"), [("v", [12, 4, 4, 0]), ("x", [8, 2, 0]), ("m", [12, 5, 4, 2, 1, 0]), ("nn", [12, 5])]
)
def test_the_fewest_bubbles_of_a_pattern_of_so_many_micro_batches(shape: str, bubbles: list[int]) -> None:
    for most, fewest in enumerate(bubbles, 1):
        found = repetend(SHAPES[shape](4, 1, 3), MEMORY, most, seconds=10)
        assert (found.bubbles, found.is_proven) == (fewest, True)
        assert found.num_micro_batches <= most


@pytest.mark.parametrize(
    ("latency", "memory", "makespan"),
    [(40, 4, 490), (40, 6, 430), (40, 8, 410), (80, 4, 650), (80, 6, 590), (80, 8, 490)],
)
def test_memory_buys_the_latency_of_a_link(latency: float, memory: float, makespan: float) -> None:
    ways = {(a, b): DeviceLink(a, b, latency=latency) for a, b in ((1, 2), (2, 1))}
    found = time_optimal(with_links(SHAPES["v"](4, 10, 20), ways), 8, memory, LONG_S)
    assert (found.schedule.makespan, found.is_proven) == (makespan, True)
    assert max(found.schedule.peak_memory()) <= memory


@pytest.mark.parametrize("shape", ["v", "x", "k"])
def test_a_pattern_goes_on_for_any_number_of_micro_batches(shape: str) -> None:
    found = scheduled(SHAPES[shape](4, 1, 3), 40, MEMORY, seconds=4)
    check(found.schedule, MEMORY)
    assert found.is_proven


@pytest.mark.parametrize("shape", ["v", "interleaved", "x", "k"])
@pytest.mark.parametrize("num", [1, 6, 64])
def test_ranks_are_told_the_order_in_few_words(shape: str, num: int) -> None:
    placement = SHAPES[shape](4, 1, 3)
    found = scheduled(placement, num, MEMORY)
    told = document(placement, found.schedule)
    for device, order in enumerate(told["orders"]):
        turns = unrolled(order)
        numbers = [found.schedule.operations.operations[number].block for number, _ in found.schedule.order(device)]
        assert turns == [(number, m) for number, (_, m) in zip(numbers, found.schedule.order(device), strict=True)]
        if num == 64:
            assert len(order["before"] + order["round"] + order["behind"]) < len(turns) / 2
    for block in told["blocks"]:
        assert told["blocks"][block["forward"]]["stage"] == block["stage"]


def test_what_no_schedule_can_be_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="a after b after c after a"):
        Placement(1, tuple(Block(name, (0,), 1, after=(n,)) for name, n in (("a", 1), ("b", 2), ("c", 0))))
    with pytest.raises(ValueError, match=r"block a: span -1 must be >= 0 and finite"):
        Placement(1, (Block("a", (0,), -1),))
    with pytest.raises(ValueError, match=r"block a: span 1e\+308 must be >= 0 and finite, 1e\+100 at most"):
        Placement(1, (Block("a", (0,), 1e308),))
    with pytest.raises(ValueError, match="none of the 1 blocks is a forward one: nothing is left for inference"):
        Placement(1, (Block("b", (0,), 1, kind=Kind.BACKWARD),)).forward_only()
    with pytest.raises(
        ValueError, match=r"device 0: one micro-batch alone holds 2 of memory, and there is 1.5: 0.5 too"
    ):
        time_optimal(SHAPES["k"](4, 1, 3), 2, 1.5)


@pytest.mark.parametrize("order", ["highspy, ortools.sat.python.cp_model", "ortools.sat.python.cp_model, highspy"])
def test_both_solvers_load_in_one_process(order: str) -> None:
    """Each brings libhighs, of its own version."""
    subprocess.run([sys.executable, "-c", f"import {order}"], check=True)
