"""Stages where no machine has the memory for a whole model: alone, beside other jobs, and never without need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hulk_placement.model import Model, Transformer
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import solve
from hulk_placement.solve.together import divisions_of
from hulk_placement.stages import as_planned, staged
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

MIB = 1 << 20
LARGE = Model.of(Transformer(6, 256, 4, 32, 256))
"""A rank needs 98 MiB for all of it, and 40 MiB for the largest of four stages."""

SMALL = Model.of(Transformer(2, 64, 4, 32, 256))


def world(memory_mib: int, num_machines: int = 6) -> Topology:
    machines = tuple(
        Machine(f"m{n}", "eu", num_accelerators=1, memory_bytes=memory_mib * MIB) for n in range(num_machines)
    )
    return Topology(machines, region_links={("eu", "eu"): Link(1e-3, 1e8)})


def job(key: str, model: Model, num_workers: int, if_needed: bool = True) -> Workload:
    candidates = {f"m{n}": 1 for n in range(6)}
    return Workload(key, model, 8, candidates, num_workers, num_workers, stages_if_needed=if_needed)


@pytest.mark.parametrize(
    ("name", "memory_mib", "if_needed", "expected"),
    [
        ("it fits", 200, True, 1),
        ("it does not", 60, True, 4),
        ("it does not, and may have no stages", 60, False, "NoMemory"),
        ("no stage fits", 5, True, "NoMemory"),
    ],
)
def test_stages_are_for_models_that_fit_no_machine(
    name: str, memory_mib: int, if_needed: bool, expected: int | str
) -> None:
    solution = solve([job("a/large", LARGE, 4, if_needed)], (), world(memory_mib), Budget(2000))
    found: Plan | Unplaced = solution.plans.get("a/large") or solution.unplaced["a/large"]
    assert (found.layout.pipeline if isinstance(found, Plan) else found.reason) == expected, name
    if expected == 4:
        assert isinstance(found, Plan)
        assert (found.algorithm, found.recompute) == ("ring", False)
        assert found.prediction.memory_bytes <= 60 * MIB


def test_beside_a_job_that_fits_everywhere() -> None:
    jobs = [job("a/large", LARGE, 4), job("b/small", SMALL, 2)]
    solution = solve(jobs, (), world(60), Budget(2000))
    assert not solution.unplaced
    assert [solution.plans[one.key].layout.pipeline for one in jobs] == [4, 1]
    machines = [slot.machine for plan in solution.plans.values() for slot in plan.workers]
    assert len(set(machines)) == len(machines) == 6


def test_an_older_job_that_needs_stages_is_not_left_without_room() -> None:
    """Four machines: the older needs two of them at least, the younger is quicker with every one that it gets."""
    large, small = replace(job("a/large", LARGE, 4), min_workers=1), replace(job("b/small", SMALL, 4), min_workers=1)
    younger = replace(small, global_batch=512, created_s=1.0)
    there = replace(world(60, num_machines=4), region_links={("eu", "eu"): Link(1e-4, 1e9)})
    solution = solve([large, younger], (), there, Budget(2000))
    assert not solution.unplaced
    layouts = [solution.plans[key].layout for key in (large.key, younger.key)]
    assert layouts[0].pipeline > 1 == layouts[1].pipeline
    assert sum(layout.num_ranks for layout in layouts) == 4


def test_jobs_may_have_as_many_stages_as_machines_that_are_alike() -> None:
    """A pool of many machines is as many places for stages, not one."""
    asked = replace(job("a/large", LARGE, 4), pipeline=None)
    (found,) = divisions_of([asked], world(60)).jobs
    assert found.space.every == (1, 2, 3, 4)


def test_a_plan_with_stages_is_compared_with_others_that_may_have_them() -> None:
    asked = job("a/large", LARGE, 4)
    plan = solve([asked], (), world(60), Budget(2000)).plans[asked.key]
    assert as_planned(asked, plan) == staged(asked)
    small = job("b/small", SMALL, 2)
    assert as_planned(small, solve([small], (), world(60), Budget(2000)).plans[small.key]) == small


def test_shards_or_stages_whichever_are_quicker_and_there_is_room_for() -> None:
    """Shards in a machine of four, stages over the regions of four machines, where no group of shards has room."""
    both = replace(job("a/large", LARGE, 4), shards_if_needed=True)
    one = Topology((Machine("m0", "eu", num_accelerators=4, memory_bytes=60 * MIB, inside=Link(1e-7, 1e12)),))
    regions = [f"r{n}" for n in range(4)]
    links = {(a, b): Link(0.03, 1e8) for a in regions for b in regions}
    machines = tuple(
        Machine(f"m{n}", region, num_accelerators=1, memory_bytes=60 * MIB) for n, region in enumerate(regions)
    )
    apart = Topology(machines, region_links=links)
    inside = solve([replace(both, candidates={"m0": 4})], (), one, Budget(2000)).plans[both.key]
    assert (inside.layout.shard, inside.layout.pipeline) == (4, 1)
    assert [sentence for sentence in inside.why if "divided among 4 ranks inside a machine" in sentence]
    between = solve([both], (), apart, Budget(2000)).plans[both.key]
    assert (between.layout.shard, between.layout.pipeline) == (1, 4)
    assert as_planned(both, between) == staged(both)
