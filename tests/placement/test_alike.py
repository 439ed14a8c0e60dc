"""Jobs that are alike on machines that are alike: how often is searched, what copies hold and cost, who is left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from depth import num_examples
from hulk_placement.cost.predict import predict
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import alike, solve
from hulk_placement.solve.alike import SLOWER, Copies, copies, kinds_of
from hulk_placement.topology import Link, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st
from split_cases import model, topology, workload

WORK = Budget(2_000)
SPEED = 1e12


def world(regions: str = "abc", num: int = 4, num_accelerators: int = 2) -> Topology:
    """Machines that are alike, so many in each region; regions are apart."""
    return topology(
        {f"{region}-{n}": SPEED for region in regions for n in range(num)}, num_accelerators=num_accelerators
    )


def pairs(there: Topology, num: int, **changes: object) -> list[Workload]:
    """Jobs of two workers that are alike."""
    wish = {"min_workers": 2, "max_workers": 2, "pipeline": 1, "tensor": 1, "stages_if_needed": False} | changes
    return [workload(there, f"team/{n:03}", created_s=float(n), **wish) for n in range(num)]


class Searches:
    """Plans of jobs alone, counted."""

    def __init__(self) -> None:
        self.stood_for: list[int] = []

    def __call__(self, job: Workload, left: Topology, num: int) -> Plan | Unplaced:
        self.stood_for.append(num)
        found = solve([job], [], left, WORK)
        return found.plans.get(job.key) or found.unplaced[job.key]


def copied(jobs: Sequence[Workload], there: Topology) -> tuple[Copies, list[int]]:
    searches = Searches()
    found = copies(jobs, there, searches)
    assert found is not None
    assert found.num_searches == len(searches.stood_for)
    return found, searches.stood_for


def held(plans: Sequence[Plan]) -> Counter[str]:
    taken: Counter[str] = Counter()
    for plan in plans:
        taken.update(plan.accelerators())
    return taken


def test_a_plan_is_searched_for_once_for_every_region_that_it_fills() -> None:
    """12 jobs of 2 workers on 12 machines of 2 accelerators in 3 regions: 3 searches, for 12, 8 and 4 jobs."""
    there = world()
    found, stood_for = copied(pairs(there, 12), there)
    assert stood_for == [12, 8, 4]
    assert held(list(found.plans.values())) == {machine.name: 2 for machine in there.machines}
    assert len({plan.prediction.step_s for plan in found.plans.values()}) == 1


def test_a_hundred_jobs_on_a_hundred_machines_need_no_division(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("hulk_placement.solve.together._by_division")
    there = world("abcd", num=25)
    jobs = pairs(there, 100)
    solution = solve(jobs, [], there, WORK)
    assert len(solution.plans) == 100
    alone = solve(jobs[:1], [], there, WORK).plans[jobs[0].key]
    assert all(plan.prediction.step_s == alone.prediction.step_s for plan in solution.plans.values())
    assert max(held(list(solution.plans.values())).values()) == 2


def test_what_is_said_of_a_copy_is_true_of_its_own_machines() -> None:
    there = world(num=12, num_accelerators=1)  # names of which some begin others
    jobs = pairs(there, 18, sync=replace(workload(there).sync, mode="auto"))
    plans = solve(jobs, [], there, WORK).plans
    for job in jobs:
        plan = plans[job.key]
        prediction = predict(plan, job, there)
        assert plan.prediction == prediction
        source, target = prediction.bottleneck or ("", "")
        assert any(f"{source} to {target} is the worst edge" in why for why in plan.why)
        assert any(why.startswith("Planned together with 17 other jobs") for why in plan.why)
        (left_out,) = (why for why in plan.why if why.startswith("Left out"))
        named = left_out.removeprefix("Left out: ").split(", ...")[0].split(", ")
        assert len(named) == len(set(named)) == 4
        assert not set(named) & plan.accelerators().keys()


def test_pods_have_room_beside_those_of_the_other_jobs() -> None:
    """Machines of 8 accelerators whose cpu holds 3 pods of a job: one job of 2 on each, not 4."""
    there = world("ab", num=4, num_accelerators=8)
    jobs = [replace(job, candidates={machine.name: 3 for machine in there.machines}) for job in pairs(there, 8)]
    found, _ = copied(jobs, there)
    assert set(held(list(found.plans.values())).values()) == {2}


def test_jobs_of_different_steps_and_ages_are_alike_and_of_different_nodes_not() -> None:
    there = world()
    jobs = [replace(job, num_steps=n, attempt=n + 1) for n, job in enumerate(pairs(there, 3))]
    assert [len(kind.waiting) for kind in kinds_of(jobs)] == [3]
    elsewhere = replace(jobs[2], candidates={"a-0": 1, "a-1": 1})
    assert [len(kind.waiting) for kind in kinds_of([*jobs[:2], elsewhere])] == [2, 1]
    found, _ = copied(jobs, there)
    assert [plan.attempt for plan in found.plans.values()] == [1, 2, 3]


def test_a_copy_is_priced_with_the_links_and_speeds_of_its_own_machines() -> None:
    """Of four machines one is 1 % slower, and another half as fast: it has the last plan of its own."""
    speeds = {"a-0": SPEED, "a-1": SPEED, "a-2": 0.99 * SPEED, "a-3": 0.5 * SPEED}
    there = topology(speeds, num_accelerators=2)
    there = replace(there, node_links={("a-0", "a-1"): Link(2e-4, 5e8)})
    jobs = pairs(there, 4)
    found, stood_for = copied(jobs, there)
    assert stood_for == [4, 1]
    for job in jobs:
        plan = found.plans[job.key]
        assert plan.prediction == predict(plan, job, there)
        is_slow = plan.workers[0].machine == "a-3"
        assert (plan.prediction.step_s > (1 + SLOWER) * found.least[job.key]) == is_slow


def test_machines_that_are_all_different_are_divided() -> None:
    there = topology({f"a-{n}": SPEED * 1.5**n for n in range(8)}, num_accelerators=2)
    searches = Searches()
    assert copies(pairs(there, 8), there, searches) is None
    assert len(searches.stood_for) <= 3


def test_jobs_that_share_what_is_not_enough_are_divided() -> None:
    there = world("a", num=2)
    elastic = [replace(job, min_workers=1, max_workers=4) for job in pairs(there, 2)]
    assert copies(elastic, there, Searches()) is None
    assert all(plan.workers for plan in solve(elastic, [], there, WORK).plans.values())


def test_the_oldest_go_first_and_the_others_hear_why_after_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("hulk_placement.solve.together._by_division")
    there = world("ab", num=2)
    jobs = pairs(there, 40)
    solution = solve(jobs[::-1], [], there, WORK)
    assert sorted(solution.plans) == [job.key for job in jobs[:4]]
    assert {why.reason for why in solution.unplaced.values()} == {"NotEnoughAccelerators"}
    assert "there is room for 0" in solution.unplaced["team/039"].message


def test_jobs_of_stages_are_copied_with_their_layout() -> None:
    there = world("ab", num=6, num_accelerators=1)
    jobs = pairs(there, 6, pipeline=2, trained=model(num_layers=6))
    plans = list(solve(jobs, [], there, WORK).plans.values())
    assert {plan.layout.pipeline for plan in plans} == {2}
    assert len({(plan.stages, plan.shares, plan.prediction.step_s) for plan in plans}) == 1
    assert all(len({worker.region for worker in plan.workers}) == 1 for plan in plans)
    assert max(held(plans).values()) == 1


@settings(max_examples=num_examples(20), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["a-0", "a-1", "a-2", "b-0", "b-1", "c-0"]), st.sampled_from([1e12, 2e12]), min_size=3
    ),
    st.integers(1, 2),
    st.integers(2, 3),
)
def test_no_division_is_given_up_that_is_better(speeds: dict[str, float], num_workers: int, num_jobs: int) -> None:
    """Whatever is copied: the product of all steps is no longer than by the division alone."""
    there = topology(speeds, num_accelerators=2)
    jobs = pairs(there, num_jobs, min_workers=num_workers, max_workers=num_workers)
    together = solve(jobs, [], there, WORK).plans
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "copies", lambda *_: None)
        divided = solve(jobs, [], there, WORK).plans
    assert together.keys() >= divided.keys()
    if together.keys() == divided.keys():
        logs = [sum(math.log(plan.prediction.step_s) for plan in plans.values()) for plans in (together, divided)]
        assert logs[0] <= logs[1] + 1e-9
