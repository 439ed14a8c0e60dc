"""Times of pipelines, against every block computed one after another as soon as what it waits for is there."""

from __future__ import annotations

import numpy as np
import pytest
from hulk_placement.cost.closed_form.pipeline import GPIPE, ONE_F_ONE_B, Chain, least_s, pipeline_ends
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.sampled_from([0.1, 0.25, 0.3, 1.0, 1.7, 7.0])
WAITS = st.sampled_from([0.0, 0.01, 0.4, 2.0, 30.0])


def order(schedule: int, stage: int, num_stages: int, num: int) -> list[tuple[str, int]]:
    """Blocks of one stage in the order of a schedule."""
    forward, backward = [("F", m) for m in range(num)], [("B", m) for m in range(num)]
    ahead = num if schedule == GPIPE else min(num, num_stages - 1 - stage)
    turns = [block for pair in zip(forward[ahead:], backward, strict=False) for block in pair]
    return forward[:ahead] + turns + backward[num - ahead :]


def ends(
    schedule: int, num: int, forward: list[float], backward: list[float], sends: list[list[float]], overlap: bool
) -> list[float]:
    """When each stage's last backward pass ends: blocks begin when stage, input and, for what they send, the way are
    free.
    """
    send, latency, back, back_latency = sends
    num_stages = len(forward)
    todo = [order(schedule, stage, num_stages, num) for stage in range(num_stages)]
    arrived = {("F", m, 0): 0.0 for m in range(num)} | {("B", m, num_stages - 1): 0.0 for m in range(num)}
    free, done = [0.0] * num_stages, [0.0] * num_stages
    way: dict[tuple[str, int], float] = {}
    while any(todo):
        for stage in range(num_stages):
            while todo[stage] and (*todo[stage][0], stage) in arrived:
                kind, m = todo[stage].pop(0)
                begin = max(free[stage], arrived[kind, m, stage])
                end = begin + (forward if kind == "F" else backward)[stage]
                done[stage] = end
                there = stage + 1 if kind == "F" else stage - 1
                if 0 <= there < num_stages:
                    boundary = min(stage, there)
                    sent = max(end, way.get((kind, boundary), 0.0)) + (send if kind == "F" else back)[boundary]
                    way[kind, boundary] = sent
                    arrived[kind, m, there] = sent + (latency if kind == "F" else back_latency)[boundary]
                    end = end if overlap else arrived[kind, m, there]
                free[stage] = end
    return done


@given(st.data(), st.sampled_from([GPIPE, ONE_F_ONE_B]), st.integers(2, 6), st.integers(1, 90), st.booleans())
def test_a_pipeline_takes_as_long_as_its_blocks_one_after_another(
    data: st.DataObject, schedule: int, num_stages: int, num: int, overlap: bool
) -> None:
    forward, backward = (data.draw(st.lists(SECONDS, min_size=num_stages, max_size=num_stages)) for _ in range(2))
    sends = [data.draw(st.lists(WAITS, min_size=num_stages - 1, max_size=num_stages - 1)) for _ in range(4)]
    send, latency, back, back_latency = (np.array(row) for row in sends)
    none = np.zeros(num_stages)
    chain = Chain(np.array(forward), np.array(backward), send, latency, none, back, back_latency, none)
    found = pipeline_ends(schedule, num, chain, overlap)
    assert found == pytest.approx(ends(schedule, num, forward, backward, sends, overlap), rel=1e-9)
    assert least_s(schedule, num, chain) <= found.max() * (1 + 1e-9)


@given(st.data(), st.sampled_from([GPIPE, ONE_F_ONE_B]), st.integers(1, 6), st.integers(1, 90), st.booleans())
def test_no_pipeline_ends_before_its_bound_and_cold_windows_only_make_it_later(
    data: st.DataObject, schedule: int, num_stages: int, num: int, overlap: bool
) -> None:
    forward, backward = (
        np.array(data.draw(st.lists(SECONDS, min_size=num_stages, max_size=num_stages))) for _ in range(2)
    )
    send, latency, back, back_latency = (
        np.array(data.draw(st.lists(WAITS, min_size=num_stages - 1, max_size=num_stages - 1))) for _ in range(4)
    )
    packets = np.full(num_stages, data.draw(st.sampled_from([0.0, 3.0, 10.0, 80.0])))
    chain = Chain(forward, backward, send, latency, packets, back, back_latency, packets)
    last_s = pipeline_ends(schedule, num, chain, overlap).max()
    assert least_s(schedule, num, chain) <= last_s * (1 + 1e-9)


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B])
def test_the_bound_of_equal_stages_without_ways_is_the_end(schedule: int) -> None:
    ones, none = np.ones(5), np.zeros(5)
    chain = Chain(ones, 2 * ones, none, none, none, none, none, none)
    last_s = pipeline_ends(schedule, 40, chain, True).max()
    assert least_s(schedule, 40, chain) == pytest.approx(last_s) == pytest.approx(44 * 3)
