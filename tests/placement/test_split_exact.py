"""What is proven of a division, and that it reaches the plan: layouts that no constructed one stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hulk_placement.model import Layer, Model
from hulk_placement.solution import Budget
from hulk_placement.solve import solve
from hulk_placement.solve.together import divide, divisions_of, work_on
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from split_cases import model, topology, workload

from bench.divisions import SEARCHES
from bench.divisions.compare import compare

Case = Callable[[], tuple[list[Workload], Topology]]

WORK = Budget(60_000)

FULL = 10_000_000
"""Bytes of a machine that holds no first layer of a million parameters."""


def layers(*figures: tuple[int, float, int]) -> Model:
    """Of each layer parameters, FLOPs forward and bytes that it hands on."""
    made = (Layer(f"l{n}", some, flops, 2 * flops, out, 200_000) for n, (some, flops, out) in enumerate(figures))
    return Model(tuple(made))


def fast_but_full() -> tuple[list[Workload], Topology]:
    """Job a's first layer fits m1 and m3; its second runs 3 times as fast on m2, from which little comes back."""
    machines = (
        Machine("m0", "r0", flops_per_s=1e12, memory_bytes=FULL),
        Machine("m1", "r0", flops_per_s=1e12),
        Machine("m2", "r1", flops_per_s=3e12, memory_bytes=FULL),
        Machine("m3", "r0", flops_per_s=1e11),
    )
    links = {
        ("r0", "r0"): Link(0.01, 2e5),
        ("r0", "r1"): Link(0.075, 1e9),
        ("r1", "r0"): Link(1.5e-4, 5e6),
        ("r1", "r1"): Link(5e-4, 1e9),
    }
    world = Topology(machines, region_links=links)
    a = layers((1_000_000, 1e10, 1_000_000), (10_000, 1e11, 100_000))
    b = layers((5_000_000, 1e10, 1_000_000))
    return [workload(world, key, trained, global_batch=2) for key, trained in (("t/a", a), ("t/b", b))], world


def second_of_its_region() -> tuple[list[Workload], Topology]:
    """The fastest machines come first in constructed layouts; m0 may be second in its pipeline only."""
    machines = (
        Machine("m0", "r0", flops_per_s=3e12, memory_bytes=FULL),
        Machine("m1", "r0", flops_per_s=5e11),
        Machine("m2", "r0", flops_per_s=1e12),
        Machine("m3", "r0", flops_per_s=3e12),
    )
    world = Topology(machines, region_links={("r0", "r0"): Link(0.04, 5e6)})
    a = layers((1_000_000, 3e11, 1_000), (1_000_000, 3e11, 100_000))
    b = layers((1_000_000, 3e11, 100_000), (10_000, 1e11, 1_000))
    return [workload(world, key, trained, global_batch=2) for key, trained in (("t/a", a), ("t/b", b))], world


CASES = {fast_but_full: ({"m2", "m3"}, {"m1"}), second_of_its_region: ({"m3"}, {"m2", "m0"})}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("search", ["exact", "portfolio"])
def test_layouts_that_no_constructed_one_stands_for_reach_the_division(case: Case, search: str) -> None:
    jobs, world = case()
    divisions = divisions_of(jobs, world)
    final = divide(work_on(divisions, WORK, lambda: 0.0), SEARCHES[search], 0)
    assert final is not None
    assert divisions.is_proven
    assert final.value == divisions.proven
    found = {arranged.job.workload.key: {m.name for m in arranged.topology.machines} for arranged in final.jobs}
    assert found == dict(zip(("t/a", "t/b"), CASES[case], strict=True))


def test_the_fast_machine_that_holds_no_first_layer_comes_second() -> None:
    """a: 2 x 1.8e12 FLOPs on m3 of 3e12. b: 2 x 9e11 on m2 of 1e12; m0 does the other layer meanwhile."""
    jobs, world = second_of_its_region()
    plans = solve(jobs, [], world, WORK).plans
    assert plans["t/a"].prediction.step_s == pytest.approx(1.2)
    assert plans["t/b"].prediction.step_s == pytest.approx(1.8)


def test_nothing_is_proven_of_machines_with_links_of_their_own() -> None:
    """Four alike, two pairs of which have quick links: of three ways to make pairs one is tried."""
    world = topology(dict.fromkeys(("a0", "a1", "a2", "a3"), 1e12))
    quick = {pair: Link(1e-4, 1e9) for a, b in (("a0", "a2"), ("a1", "a3")) for pair in ((a, b), (b, a))}
    world = replace(world, region_links={("a", "a"): Link(0.5, 1e6)}, node_links=quick)
    jobs = [workload(world, f"t/{n}", model(flops=1e12)) for n in range(2)]
    now = iter(range(10**9))
    found = compare(jobs, world, 1000.0, lambda: float(next(now)), ["exact", "portfolio"])
    assert not any(row.is_proven for row in found.rows)


def test_a_gap_is_to_what_no_plan_on_all_machines_beats() -> None:
    """Each of two jobs is best on its machine: 6 s, where both machines of 1e12 FLOP/s would take at least 3 s."""
    world = topology({"a0": 1e12, "z0": 1e12})
    jobs = [workload(world, f"t/{n}", model(1), global_batch=2) for n in range(2)]
    for plan in solve(jobs, [], world, WORK).plans.values():
        assert plan.prediction.step_s == pytest.approx(6.0)
        assert plan.optimality_gap == pytest.approx(0.5)
        assert [said for said in plan.why if said.startswith("No plan")] == [
            "No plan can be more than 50.0% faster with all 2 accelerators to itself, always busy."
        ]


def test_a_job_that_was_given_all_it_may_have_is_proven_best() -> None:
    world = topology({"a0": 1e12, "z0": 1e12})
    jobs = [workload(world, f"t/{region}", model(1), regions=(region,)) for region in "az"]
    assert [plan.optimality_gap for plan in solve(jobs, [], world, WORK).plans.values()] == [0.0, 0.0]
