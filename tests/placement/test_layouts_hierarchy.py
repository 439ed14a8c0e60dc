"""The link hierarchy found from measured links, and the layouts that are drawn along it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from depth import num_examples
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layouts.drawings import draw_all
from hulk_placement.layouts.hierarchy import average_linkage, hierarchy_of
from hulk_placement.layouts.meshes import NARROW, WIDE, blocks_of, draw, widths_beside
from hulk_placement.layouts.space import Space, space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.model import Layer, Model
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

RTTS_S, RATES = (1e-4, 2e-3, 5e-2), (1e9, 2e8, 3e7)
"""Inside boxes, inside zones, between zones."""


def nested(boxes: int, zones: int, each: int = 4, noise: float = 0.1, seed: int = 0, cells: int = 1) -> Topology:
    """Machines that are regions of their own, in boxes of `each`, in zones of `boxes`."""
    rng, names = random.Random(seed), list(product(range(zones), range(boxes), range(each)))
    rng.shuffle(names)
    machines = tuple(
        Machine(f"m{z}{b}{n}", f"r{z}{b}{n}", num_accelerators=cells, flops_per_s=1e13) for z, b, n in names
    )
    links = {}
    for a, b in product(names, repeat=2):
        level = 0 if a[:2] == b[:2] else 1 if a[0] == b[0] else 2
        link = Link(RTTS_S[level] * rng.lognormvariate(0, noise), RATES[level] * rng.lognormvariate(0, noise))
        links["r{}{}{}".format(*a), "r{}{}{}".format(*b)] = link
    return Topology(machines, region_links=links)


def job(world: Topology, data: int | None, pipeline: int | None) -> Workload:
    """Eight equal layers."""
    layers = (Layer(f"layer.{n}", 4_000_000, 1e12, 2e12, 4_000_000, 8_000_000) for n in range(8))
    candidates = {machine.name: machine.num_accelerators for machine in world.machines}
    return Workload(
        "team/job",
        Model(tuple(layers)),
        64,
        candidates,
        max_workers=sum(candidates.values()),
        data=data,
        pipeline=pipeline,
        tensor=1,
        micro_batch=1,
        sync=Sync("ring"),
    )


def drawings_of(world: Topology, workload: Workload) -> Trials:
    """All drawings of the usual shapes."""
    trials = Trials(Ground.of(workload, world, world.machines))
    space: Space = space_of(trials.ground)
    shapes = list(product(space.usual[:1], space.pipelines))
    draw_all(trials, space, shapes, lambda: True)
    return trials


def test_linkage_merges_the_nearest_by_the_mean_distance() -> None:
    line = np.array([0.0, 1.0, 10.0, 12.0, 30.0])
    merges = average_linkage(np.abs(line[:, None] - line), np.ones(5, np.int64))
    assert [height for _, _, height in merges] == pytest.approx([1.0, 2.0, 10.5, 24.25])


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_boxes_and_zones_are_among_the_levels_found(noise: float, seed: int) -> None:
    """Noise may add a level inside boxes; every level keeps its groups whole in the order."""
    world = nested(3, 2, noise=noise, seed=seed)
    trials = Trials(Ground.of(job(world, 4, 4), world, world.machines))
    hierarchy = hierarchy_of(trials.setting(space_of(trials.ground).options[0]))
    for groups in hierarchy.group_LM:
        assert (np.diff(groups[hierarchy.order_M]) != 0).sum() == groups.max()
    found = {_partition(groups) for groups in hierarchy.group_LM}
    for length in (3, 2):
        names = sorted({machine.name[:length] for machine in world.machines})
        assert _partition(np.array([names.index(machine.name[:length]) for machine in world.machines])) in found


def _partition(groups: np.ndarray) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(np.flatnonzero(groups == group).tolist()) for group in set(groups.tolist()))


def test_machines_that_are_alike_to_their_links_have_no_levels() -> None:
    world = nested(1, 1, each=8, noise=0.05)
    assert drawings_of(world, job(world, 2, 4)).num_evaluations == 0


def test_both_ends_of_a_pipeline_that_share_parameters_are_on_one_machine() -> None:
    """Two machines of eight far apart: what the last layer shares with the first is exchanged inside a machine."""
    world = nested(1, 2, each=1, cells=8)
    layers = [Layer(f"layer.{n}", 40_000_000, 1e12, 2e12, 40_000, 80_000) for n in range(8)]
    layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=40_000_000)
    best = drawings_of(world, replace(job(world, 4, 4), model=Model(tuple(layers)))).cheapest
    assert best is not None
    mesh = best.layout.machine_DP
    assert (mesh[:, 0] == mesh[:, -1]).all()
    assert (mesh[:, 0] != mesh[:, 1]).all()


def test_a_mixture_has_a_part_of_each_pipeline_in_a_box() -> None:
    """Two zones of two boxes of four; 4 replicas x 4 stages: two stages of two replicas in a box."""
    cells, boxes, zones = np.arange(16), np.arange(16) // 4, np.arange(16) // 8
    blocks = blocks_of([np.full(4, 4), np.full(2, 8)], (2, WIDE), 4, 4)
    assert blocks == ((2, 2), (2, 4))
    mesh = draw(cells, [boxes, zones], blocks, 4, 4, by_rows=True).reshape(4, 4)
    assert (boxes[mesh] == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]).all()


def test_boxes_are_stages_where_replicas_come_first() -> None:
    boxes = np.arange(16) // 4
    blocks = blocks_of([np.full(4, 4)], (NARROW,), 4, 4)
    mesh = draw(np.arange(16), [boxes], blocks, 4, 4, by_rows=True).reshape(4, 4)
    assert (boxes[mesh] == np.arange(4)).all()


def test_widths_beside_differ_and_nest() -> None:
    assert widths_beside(((2, 2), (2, 4)), 4) == [(1, 4), (4, 4), (1, 1), (2, 2)]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([NARROW, 2, 3, WIDE]),
    st.sampled_from([NARROW, 2, 3, WIDE]),
    st.booleans(),
)
@settings(max_examples=num_examples(200))
def test_a_mesh_uses_no_cell_twice(
    sizes: list[int], data: int, pipeline: int, inner: int, outer: int, by_rows: bool
) -> None:
    """Whatever sizes groups have: every cell of the mesh has a machine cell of its own."""
    num = sum(sizes)
    if data * pipeline > num:
        return
    boxes = np.repeat(np.arange(len(sizes)), sizes)
    zones = boxes // 3
    counts = [np.bincount(boxes), np.bincount(zones)]
    blocks = blocks_of(counts, (inner, outer), data, pipeline)
    for (tall, wide), (taller, wider) in pairwise(blocks):
        assert taller % tall == 0
        assert wider % wide == 0
    assert pipeline % blocks[-1][1] == 0
    mesh = draw(np.arange(num), [boxes, zones], blocks, data, pipeline, by_rows=by_rows)
    assert len(set(mesh.tolist())) == data * pipeline
    assert 0 <= mesh.min() <= mesh.max() < num


@pytest.mark.parametrize(("data", "pipeline"), [(4, 4), (2, 8), (8, 2), (None, None), (3, 4)])
def test_drawings_do_not_depend_on_names(data: int | None, pipeline: int | None) -> None:
    """Renamed machines in the same order: the same drawings, to the last bit; and the same again."""
    world = nested(2, 2, seed=3, cells=2)
    names = {machine.name: f"other-{number:02d}" for number, machine in enumerate(reversed(world.machines))}
    regions = {machine.region: names[machine.name] for machine in world.machines}
    other = Topology(
        tuple(replace(m, name=names[m.name], region=regions[m.region]) for m in world.machines),
        region_links={(regions[a], regions[b]): link for (a, b), link in world.region_links.items()},
    )
    costs = [drawings_of(w, job(w, data, pipeline)).best_cost for w in (world, other, world)]
    assert costs[0] < math.inf
    assert costs[0] == costs[1] == costs[2]


@pytest.mark.parametrize("seed", range(4))
def test_drawings_keep_to_memory_and_room(seed: int) -> None:
    """Machines of two cells, of which some lack the memory for the whole model."""
    world, rng = nested(2, 2, seed=seed, cells=2), random.Random(seed)
    few = Topology(
        tuple(replace(m, memory_bytes=rng.choice([300_000_000, 2 << 30])) for m in world.machines),
        region_links=world.region_links,
    )
    trials = drawings_of(few, job(few, None, None))
    assert trials.cheapest is not None
    assert trials.is_possible(trials.cheapest)
    for trial in trials.best(100):
        used = np.bincount(trial.layout.machine_DP.ravel(), minlength=len(few.machines))
        assert (used <= 2).all()
