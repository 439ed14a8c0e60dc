"""The split of layers over the stages of a pipeline: its period beside that of every other split."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from depth import num_examples
from hulk_native import split_layers
from hulk_placement.cost.closed_form.arrays import Cache, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.model import Layer, Model
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

NUM_BATCHES = 400
"""So many that filling and draining hardly count."""


def setting_of(speeds: tuple[float, ...], rtts_s: tuple[float, ...], num_layers: int) -> Setting:
    """A machine a stage, each in a region of its own, 1 / speed seconds a layer; steps of `NUM_BATCHES`."""
    machines = tuple(Machine(f"m{s}", f"r{s}", flops_per_s=speed) for s, speed in enumerate(speeds))
    links = {(f"r{s}", f"r{s}"): Link(1e-6, 1e12) for s in range(len(speeds))}
    for s, rtt_s in enumerate(rtts_s):
        links |= {(f"r{s}", f"r{s + 1}"): Link(rtt_s, 1e12), (f"r{s + 1}", f"r{s}"): Link(rtt_s, 1e12)}
    model = Model(tuple(Layer(f"layer.{n}", 1, 1 / 3, 2 / 3, 1, 1) for n in range(num_layers)))
    job = Workload(
        "team/job",
        model,
        NUM_BATCHES,
        {machine.name: 1 for machine in machines},
        max_workers=len(speeds),
        pipeline=None,
        tensor=None,
        sync=Sync(mode="ring"),
    )
    world = Topology(machines, region_links=links)
    return Ground.of(job, world, machines).setting(Option(1))


def layout_of(num_stages: int, cuts: tuple[int, ...]) -> Layout:
    return Layout(np.arange(num_stages)[None], np.array((0, *cuts)), np.array([NUM_BATCHES]), np.arange(num_stages))


def step_s(setting: Setting, layout: Layout) -> float:
    num_stages = layout.machine_DP.shape[1]
    return evaluate(setting, layout, Cache(1, num_stages, num_stages, num_stages))


def split_and_best(speeds: tuple[float, ...], rtts_s: tuple[float, ...], num_layers: int) -> tuple[float, float]:
    setting, num_stages = setting_of(speeds, rtts_s, num_layers), len(speeds)
    layout = layout_of(num_stages, (1,) * num_stages)
    split_layers(setting, layout)
    every = combinations(range(1, num_layers), num_stages - 1)
    return step_s(setting, layout), min(step_s(setting, layout_of(num_stages, (*cuts, num_layers))) for cuts in every)


@pytest.mark.parametrize("rtt_s", [0.0, 1.0, 3.0, 6.0])
def test_stages_beside_a_long_way_compute_less(rtt_s: float) -> None:
    """Four equal machines, twelve layers of a second, a long way in the middle: as good as the best of 165 splits."""
    found_s, best_s = split_and_best((1.0, 1.0, 1.0, 1.0), (1e-6, rtt_s, 1e-6), 12)
    assert found_s == pytest.approx(best_s, rel=0.01)
    assert best_s >= NUM_BATCHES * max(3.0, (2 + rtt_s) / 2)


@settings(max_examples=num_examples(100), deadline=None)
@given(st.data())
def test_the_split_of_equal_machines_is_the_best(data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(2, 4))
    rtts_s = tuple(
        data.draw(
            st.lists(st.sampled_from([1e-6, 0.5, 1.0, 2.0, 4.0]), min_size=num_stages - 1, max_size=num_stages - 1)
        )
    )
    found_s, best_s = split_and_best((1.0,) * num_stages, rtts_s, data.draw(st.integers(num_stages, 9)))
    assert found_s <= best_s * 1.005


def test_the_split_of_unequal_machines_is_the_best() -> None:
    """Every machine of three slow, normal or fast, every way short, long or very long."""
    excess = max(
        found_s / best_s - 1
        for speeds in product((0.5, 1.0, 2.0), repeat=3)
        for rtts_s in product((1e-6, 1.0, 4.0), repeat=2)
        for found_s, best_s in [split_and_best(speeds, rtts_s, 9)]
    )
    assert excess <= 0.005
