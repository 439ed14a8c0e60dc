"""When searches end: the rule by hand, what it does to short and long runs, and that the same plans are made again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hulk_placement.layouts import place as layouts
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget, Readings, Record, Solution
from hulk_placement.solve import solve
from hulk_placement.stopping import LUCK, SHARE, Stopping
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from split_cases import model, topology, workload
from worlds import workload as ring_workload

LOOK_S = 1e-3
ASKED = Budget(iterations=20_000, seconds=1e6)


def clock() -> Callable[[], float]:
    """A clock that goes on by a millisecond whenever it is asked."""
    looks = iter(range(10**9))
    return lambda: LOOK_S * next(looks)


def ends_s(runs_s: list[tuple[float, float]], num_waiting: float = 1.0, least_s: float = 0.0) -> float:
    """When the rule ends a search, looked at every 10 ms, whose best plan's run is so long from then on."""
    rule, now_s = Stopping(num_waiting, 0.0, least_s), 0.0
    while now_s < 1000.0:
        now_s += 0.01
        found = [run_s for since_s, run_s in runs_s if since_s <= now_s]
        if rule.is_over(now_s, min(found, default=math.inf)):
            return now_s
    return math.inf


def test_nothing_ends_a_search_that_has_found_nothing() -> None:
    assert ends_s([]) == math.inf


@pytest.mark.parametrize(("num_waiting", "expected_s"), [(1.0, 1.23), (10.0, 0.39)])
def test_without_a_gain_a_search_ends_where_waiting_costs_as_much_as_luck_may_win(
    num_waiting: float, expected_s: float
) -> None:
    """600 s from 0.01 s on: W t = 600 LUCK 0.01 / t, so that t = sqrt(1.5 / W)."""
    assert ends_s([(0.01, 600.0)], num_waiting) == pytest.approx(expected_s, abs=0.011)
    assert expected_s == pytest.approx(math.sqrt(600 * LUCK * 0.01 / num_waiting), abs=0.01)


def test_a_gain_keeps_a_search_going_the_longer_the_larger_and_later_it_is() -> None:
    none, early, late, large = (
        ends_s([(0.01, 600.0 + won), (at_s, 600.0)]) for at_s, won in ((0.2, 0.0), (0.2, 2.0), (1.0, 2.0), (1.0, 9.0))
    )
    assert none < early < late < large
    assert large == pytest.approx(math.sqrt(609 * LUCK * 0.01 + 1.0 * 9.0), abs=0.011)


def test_nobody_waits_longer_than_the_share_of_the_run() -> None:
    """However much is still won: a search that has just halved the run ends as well."""
    assert ends_s([(0.01 * n, 1000.0 - n) for n in range(1, 900)]) == pytest.approx(SHARE * 500, rel=0.1)


def test_what_cannot_be_better_is_not_waited_for() -> None:
    assert ends_s([(0.01, 600.0)], least_s=600.0) == pytest.approx(0.01, abs=0.011)
    assert ends_s([(0.01, 600.0)], least_s=599.5) == pytest.approx(0.5, abs=0.011)


def layered(num_steps: float | None) -> tuple[Workload, Topology]:
    world = topology({f"{region}-{number}": 1e12 * (1 + number) for region in "abcd" for number in range(4)})
    return workload(world, trained=model(num_layers=12), global_batch=32, num_steps=num_steps), world


def ring(num_steps: float | None) -> tuple[Workload, Topology]:
    draw = random.Random(3)
    regions = [f"r{number}" for number in range(8)]
    machines = tuple(Machine(f"m{n}", draw.choice(regions), flops_per_s=draw.uniform(1e13, 4e13)) for n in range(20))
    links = {(a, b): Link(draw.uniform(0.02, 0.3), draw.uniform(1e6, 1e9)) for a in regions for b in regions}
    world = Topology(machines, region_links=links | {(a, a): Link(0.0005, 1e9) for a in regions})
    return ring_workload(world, global_batch=100, min_workers=18, num_steps=num_steps), world


def several(num_steps: float | None) -> tuple[list[Workload], Topology]:
    world = topology({f"{region}{number}": 1e12 * (1 + number % 2) for region in "abc" for number in range(4)})
    models = (model(), model(num_layers=6, flops=3e12), model(num_layers=8))
    return [workload(world, f"team/{n}", trained, num_steps=num_steps) for n, trained in enumerate(models)], world


def solved(jobs: list[Workload], world: Topology, budget: Budget = ASKED) -> Solution:
    return solve(jobs, [], world, budget, clock())


def num_asked(readings: tuple[Readings, ...]) -> int:
    """After how many questions searches were ended, in all."""
    return sum(next(reversed(found)) for found in readings if found)


@pytest.mark.parametrize("case", [layered, ring])
def test_the_plan_of_a_short_run_is_looked_for_less_long(
    case: Callable[[float | None], tuple[Workload, Topology]],
) -> None:
    searches = []
    for run_s in (1.0, 10.0):
        job, world = case(None)
        step_s = solve([job], [], world, Budget(20_000)).plans[job.key].prediction.step_s
        solution = solved([replace(job, num_steps=run_s / step_s)], world)
        searches.append(num_asked(solution.readings))
        said = [why for why in solution.plans[job.key].why if why.startswith("The search ended after")]
        assert len(said) == 1
        assert "to go on costs more waiting than it may save of the run" in said[0]
    assert searches[0] < searches[1]


@pytest.mark.parametrize("num_steps", [None, 1e7])
def test_the_plan_of_a_long_run_is_that_of_all_the_work(num_steps: float | None) -> None:
    for case in (layered, ring):
        job, world = case(num_steps)
        solution, whole = solved([job], world), solve([job], [], world, Budget(20_000))
        assert not any(solution.readings)
        assert solution.plans == whole.plans
    jobs, world = several(num_steps)
    assert solved(jobs, world).plans == solve(jobs, [], world, Budget(20_000)).plans


@pytest.mark.parametrize("run_s", [0.5, 5.0, 50.0])
def test_a_pass_that_waiting_ended_is_made_again_by_its_readings(run_s: float) -> None:
    jobs, world = several(None)
    step_s = max(plan.prediction.step_s for plan in solve(jobs, [], world, Budget(20_000)).plans.values())
    jobs = [replace(job, num_steps=run_s / step_s) for job in jobs]
    solution = solved(jobs, world)
    assert any(solution.readings)
    budget = replace(ASKED, record=Record(solution.readings))
    again = solve(jobs, [], world, budget, lambda: 0.0)
    for key, plan in solution.plans.items():
        other = again.plans[key]
        assert replace(other, why=()) == replace(plan, why=())
    assert again.readings == solution.readings


def test_seconds_that_end_a_division_are_read_in_percents_and_make_it_again() -> None:
    jobs, world = several(None)
    solution = solved(jobs, world, Budget(iterations=10**9, seconds=4.0))
    percents = [list(found.values()) for found in solution.readings]
    assert any(len(found) > 50 for found in percents)
    assert all(found == sorted(set(found)) and found[-1] <= 100 for found in percents if found)
    again = solve(jobs, [], world, Budget(10**9, seconds=4.0, record=Record(solution.readings)), lambda: 0.0)
    assert {key: plan.accelerators() for key, plan in again.plans.items()} == {
        key: plan.accelerators() for key, plan in solution.plans.items()
    }


def test_without_seconds_no_clock_decides() -> None:
    job, world = layered(num_steps=1.0)
    found = layouts.place(job, world, Budget(3000), clock())
    assert isinstance(found, Plan)
    assert found == layouts.place(job, world, Budget(3000), lambda: 0.0)
