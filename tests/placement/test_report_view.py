"""The rows of a report agree with the prediction that they take apart."""

from __future__ import annotations

import math

import pytest
from report_cases import GIB, job, pipelined, ring_of, staged, world

from bench.layout_searches import SEARCHES
from bench.layout_searches.compare import Comparison, compare


def test_every_layer_has_its_place_and_pins_are_shown() -> None:
    view = pipelined()
    assert [(row.first_layer, row.last_layer) for row in view.stages] == [(0, 4), (5, 7)]
    assert [[place.machine for place in row.places] for row in view.stages] == [
        ["frankfurt-0", "frankfurt-1"],
        ["tokyo-0", "tokyo-1"],
    ]
    assert [row.pins for row in view.stages] == [("layers 0-1 to frankfurt",), ()]
    assert [row.parameters for row in view.stages] == [50_000_000, 30_000_000]


def test_parts_of_step_price_and_memory_sum_to_the_whole() -> None:
    for view in (pipelined(), ring_of(["a", "b", "c"]), staged(5)):
        assert math.fsum(row.share for row in view.step) == pytest.approx(1)
        assert sum(row.microseconds for row in view.step) == pytest.approx(view.step_microseconds, abs=5)
        assert view.price is not None
        assert math.fsum(row.per_step for row in view.price.parts) == pytest.approx(view.price.per_step)
        for row in view.memory:
            parts = (row.parameter_bytes, row.gradient_bytes, row.optimizer_bytes)
            others = (row.activation_bytes, row.recompute_bytes, row.buffer_bytes)
            beside = (row.framework_bytes, row.reserve_bytes)
            assert sum(parts) + sum(others) + sum(beside) == pytest.approx(row.total_bytes, abs=8)


def test_the_verdict_says_how_much_is_missing() -> None:
    """Stage 0: 5 layers of 20 bytes for each of 5 million parameters, 2 x 2 sequences of 64 MiB / 2 a layer.

    A V100's process takes 329 MiB besides, NCCL 160 MiB for the two ranks of a layer, and the allocator a twentieth of
    the tensors; replicas and stages go over gloo.
    """
    view = pipelined(memory_bytes=GIB * 3 // 2)
    fullest = view.memory[0]
    tensors = 5 * (20 * 10_000_000 // 2 + 4 * (64 << 20) // 2)
    expected = round(1.05 * tensors + (329 + 160) * (1 << 20))
    assert (fullest.machines, fullest.total_bytes) == (("frankfurt-0", "frankfurt-1"), expected)
    assert (fullest.fits, fullest.missing_bytes) == (False, expected - GIB * 3 // 2)
    assert [row.fits for row in view.memory] == [False, True]


def test_what_would_make_a_plan_fit_comes_before_what_would_make_it_faster() -> None:
    advice = pipelined(memory_bytes=GIB * 3 // 2).advice
    assert advice is not None
    assert advice.are_to_fit
    changes = {row.change for row in advice.rows}
    assert {"micro-batches of 1", "twice the memory on every Tesla-V100-SXM2-16GB"} <= changes
    assert "Tesla-V100-SXM2-16GB twice as fast" not in changes


def test_a_ring_goes_with_the_data_and_ends_where_it_began() -> None:
    (stage,) = ring_of(["a", "b"]).stages
    assert [(visit.region, visit.replicas) for visit in stage.ring] == [("b", 2), ("a", 2)]


def test_every_search_is_compared_by_its_own_work() -> None:
    topology = world(["a"])
    ticks = iter(range(10**9))
    found = compare(job(topology, num_layers=2), topology, 9.0, lambda: float(next(ticks)))
    assert isinstance(found, Comparison)
    assert [row.search for row in found.rows] == list(SEARCHES)
    assert all(row.num_evaluations > 0 and row.cost >= found.least for row in found.rows)
