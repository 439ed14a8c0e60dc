"""Several jobs together: pools, divisions that are optimal in small cases, plans that hold to what each job allows."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from depth import num_examples
from hulk_placement.plan import Plan
from hulk_placement.solution import Budget, Solution
from hulk_placement.solve import solve
from hulk_placement.solve.together import divide, divisions_of, work_on
from hulk_placement.split.arrange import part_of
from hulk_placement.split.division import Divisions, nothing
from hulk_placement.split.laid_out import CONSTRUCTED_WORTH, LaidOut
from hulk_placement.split.moves import drawn
from hulk_placement.split.pools import Pools, assign
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from hypothesis import example, given, settings
from hypothesis import strategies as st
from split_cases import model, renamed, topology, workload

from bench.divisions import SEARCHES, portfolio
from bench.divisions.compare import compare

GIB = 1 << 30
WORK = Budget(20_000)


def no_time() -> float:
    return 0.0


def divided(jobs: list[Workload], world: Topology, search: str = "portfolio") -> LaidOut:
    found = divide(work_on(divisions_of(jobs, world), WORK, no_time), SEARCHES[search], 0)
    assert found is not None
    return found


def product(solution: Solution) -> float:
    """Of the seconds of all steps."""
    return math.prod(plan.prediction.step_s for plan in solution.plans.values())


def machines_of(solution: Solution) -> dict[str, set[str]]:
    return {key: set(plan.accelerators()) for key, plan in solution.plans.items()}


FAST, SLOW = 4e12, 1e12
CASES: dict[str, tuple[dict[str, float], list[dict[str, Any]]]] = {
    "two regions for two jobs": ({"a0": SLOW, "a1": SLOW, "b0": SLOW, "b1": SLOW}, [{}, {}]),
    "unequal machines": ({"a0": FAST, "a1": SLOW, "b0": SLOW, "b1": SLOW}, [{}, {"trained": model(flops=3e12)}]),
    "a job that must not leave its region": ({"a0": FAST, "b0": SLOW, "c0": SLOW}, [{"regions": ("b",)}, {}]),
    "three jobs for three machines": ({"a0": FAST, "a1": SLOW, "b0": SLOW}, [{}, {}, {"trained": model(3)}]),
    "one large gradient": ({"a0": SLOW, "b0": SLOW, "b1": SLOW}, [{"trained": model(parameters=20_000_000)}, {}]),
    "at least two workers": ({"a0": FAST, "b0": SLOW, "c0": SLOW}, [{"min_workers": 2}, {"max_workers": 1}]),
}


def case(name: str) -> tuple[list[Workload], Topology]:
    speeds, wishes = CASES[name]
    world = topology(speeds)
    return [workload(world, f"team/{n}", **wish) for n, wish in enumerate(wishes)], world


@pytest.mark.parametrize("name", CASES)
def test_searches_find_the_optimum_of_a_small_case(name: str) -> None:
    jobs, world = case(name)
    divisions = divisions_of(jobs, world)
    SEARCHES["exact"](divisions, lambda: 0.0, 0)
    assert divisions.is_proven
    proven = divided(jobs, world, "exact").value
    for search in ("portfolio", "local", "gnn", "random", "evolutionary"):
        assert divided(jobs, world, search).value == pytest.approx(proven, abs=1e-9), search


@pytest.mark.parametrize(("share", "is_asked"), [(0.9, True), (1.1, False)])
def test_the_network_is_asked_where_few_layouts_can_be_priced(share: float, is_asked: bool) -> None:
    world = topology({f"{region}{n}": FAST if n else SLOW for region in "ab" for n in range(4)})
    jobs = [workload(world, "team/0"), workload(world, "team/1", model(flops=3e12))]
    divisions = divisions_of(jobs, world)
    num_jobs, num_layouts = len(divisions.jobs), share * portfolio.FEW
    work = work_on(divisions, Budget(round(num_layouts * CONSTRUCTED_WORTH / num_jobs)), no_time)
    assert portfolio.affordable(divisions, work.done) == pytest.approx(num_layouts, rel=0.02)
    divisions = divisions_of(jobs, world)
    SEARCHES["portfolio"](divisions, replace(work, divisions=divisions).done, 0)
    assert (divisions.num_guessed > 0) == is_asked


def test_greedy_finds_the_optimum_where_whole_regions_are_best() -> None:
    jobs, world = case("two regions for two jobs")
    assert divided(jobs, world, "greedy").value == pytest.approx(divided(jobs, world, "exact").value, abs=1e-9)


def test_classes_find_the_optimum_where_machines_are_alike() -> None:
    jobs, world = case("two regions for two jobs")
    assert divided(jobs, world, "hulk-gcn").value == pytest.approx(divided(jobs, world, "exact").value, abs=1e-9)


def test_two_jobs_are_worth_the_optimum_by_hand() -> None:
    """Two machines of 1e12 FLOP/s in regions far apart, two jobs of four sequences of 6e12 FLOPs: one each, 24 s."""
    world = topology({"a0": SLOW, "z0": SLOW})
    solution = solve([workload(world, f"team/{n}") for n in range(2)], [], world, WORK)
    assert [plan.prediction.step_s for plan in solution.plans.values()] == [pytest.approx(24.0)] * 2
    assert sorted(map(sorted, machines_of(solution).values())) == [["a0"], ["z0"]]


@pytest.mark.parametrize("search", [name for name in SEARCHES if name != "exact"])
def test_the_same_seed_and_work_give_the_same_division(search: str) -> None:
    jobs, world = case("unequal machines")
    first, second = (divided(jobs, world, search) for _ in range(2))
    assert (first.counts == second.counts).all()
    assert first.value == second.value


def test_names_and_the_order_of_jobs_change_nothing() -> None:
    jobs, world = case("unequal machines")
    other, others = renamed(world, jobs)
    first, second = (solve(asked, [], at, WORK) for asked, at in ((jobs, world), (others, other)))
    assert sorted(p.prediction.step_s for p in first.plans.values()) == sorted(
        p.prediction.step_s for p in second.plans.values()
    )


SPEEDS = st.dictionaries(
    st.sampled_from(["a0", "a1", "a2", "b0", "b1", "c0"]), st.sampled_from([5e11, 1e12, 3e12]), min_size=2, max_size=5
)


@settings(max_examples=num_examples(25), deadline=None)
@given(SPEEDS, st.data())
def test_plans_hold_to_what_jobs_allow_and_share_nothing(speeds: dict[str, float], data: st.DataObject) -> None:
    world = topology(speeds, num_accelerators=data.draw(st.sampled_from([1, 2])))
    jobs = []
    for number in range(data.draw(st.integers(2, 3))):
        most = data.draw(st.integers(1, 4))
        wish = {"max_workers": most, "min_workers": data.draw(st.integers(1, most))}
        if data.draw(st.booleans()):
            wish["regions"] = ("a",)  # type: ignore[assignment]
        jobs.append(workload(world, f"team/{number}", created_s=number, **wish))
    solution = solve(jobs, [], world, Budget(2000))
    taken: Counter[str] = Counter()
    for job in jobs:
        plan = solution.plans.get(job.key)
        assert (plan is None) == (job.key in solution.unplaced)
        if plan is not None:
            assert job.min_workers <= plan.layout.num_ranks <= job.max_workers
            assert {worker.region for worker in plan.workers} <= set(job.regions or ("a", "b", "c"))
            taken.update(plan.accelerators())
    for machine in world.machines:
        assert taken[machine.name] <= machine.num_accelerators


@settings(max_examples=num_examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=4), st.randoms(), st.integers(1, 3)
)
def test_machines_given_to_jobs_are_what_the_division_says(
    sizes: list[tuple[int, int]], chance: Any, num_jobs: int
) -> None:
    speeds = {f"{'abc'[region % 3]}{n}": 1e12 for n, (_, region) in enumerate(sizes)}
    world = topology(speeds)
    machines = tuple(replace(m, num_accelerators=size) for m, (size, _) in zip(world.machines, sizes, strict=True))
    world = replace(world, machines=machines)
    pools = Pools.of([workload(world, f"team/{n}") for n in range(num_jobs)], world)
    counts = nothing(pools, num_jobs)
    for _ in range(20):
        changed = drawn(pools, counts, chance)
        counts = counts if changed is None else changed
    assert (counts.sum(axis=0) == pools.total_P).all()
    assert (counts >= 0).all()
    given = assign(pools, counts[:-1])
    assert [sum(part.values()) for part in given] == counts[:-1].sum(axis=1).tolist()
    room = {machine.name: machine.num_accelerators for machine in machines}
    assert all(sum(part.get(name, 0) for part in given) <= size for name, size in room.items())


def test_a_job_that_cannot_fit_is_refused_and_the_others_are_planned() -> None:
    world = topology({"a0": SLOW, "a1": SLOW, "b0": SLOW}, memory_bytes=GIB)
    jobs = [
        workload(world, "team/huge", model(parameters=500_000_000)),
        workload(world, "team/many", min_workers=4),
        workload(world, "team/nowhere", regions=("d",)),
        workload(world, "team/one"),
        workload(world, "team/two"),
    ]
    solution = solve(jobs, [], world, WORK)
    assert set(solution.plans) == {"team/one", "team/two"}
    reasons = {key: found.reason for key, found in solution.unplaced.items()}
    assert reasons == {
        "team/huge": "NoMemory",
        "team/many": "NotEnoughAccelerators",
        "team/nowhere": "NoCandidates",
    }


def test_where_not_all_have_room_the_oldest_go_first() -> None:
    world = topology({"a0": SLOW, "b0": SLOW})
    jobs = [workload(world, f"team/{n}", created_s=-n) for n in range(3)]
    solution = solve(jobs, [], world, WORK)
    assert set(solution.plans) == {"team/1", "team/2"}


def test_a_job_with_pinned_places_parts_no_others_and_takes_just_those() -> None:
    """By age between two that would have all machines, each alone: they are divided as if the third were not there."""
    world = topology({f"a{n}": SLOW for n in range(5)})
    pinned = {"pins": ("a3", "a1"), "min_workers": 1, "max_workers": 2}
    wishes = {"first": {}, "pinned": pinned, "last": {}}
    jobs = [workload(world, f"team/{name}", created_s=n, **wish) for n, (name, wish) in enumerate(wishes.items())]
    found = solve(jobs, [], world, WORK)
    assert [worker.machine for worker in found.plans["team/pinned"].workers] == ["a3", "a1"]
    assert sorted(len(machines_of(found)[key]) for key in ("team/first", "team/last")) == [1, 2]
    counts = Counter(name for plan in found.plans.values() for name in plan.accelerators())
    assert max(counts.values()) == 1


@pytest.mark.parametrize("pinned_s", [0.0, 2.0])
def test_a_job_with_pinned_places_goes_by_its_age_where_not_all_have_room(pinned_s: float) -> None:
    world = topology({f"a{n}": SLOW for n in range(3)})
    pinned = workload(world, "team/pinned", pins=("a1",), created_s=pinned_s)
    whole = workload(world, "team/whole", min_workers=3, created_s=1.0)
    assert set(solve([pinned, whole], [], world, WORK).plans) == {min(pinned, whole, key=lambda job: job.created_s).key}


def test_a_higher_priority_takes_what_it_wants_first() -> None:
    world = topology({"a0": FAST, "a1": SLOW})
    jobs = [workload(world, "team/urgent", priority=1, max_workers=1), workload(world, "team/other", max_workers=1)]
    assert machines_of(solve(jobs, [], world, WORK)) == {"team/urgent": {"a0"}, "team/other": {"a1"}}


def test_memory_decides_who_gets_the_large_machine() -> None:
    world = topology({"a0": SLOW, "a1": SLOW}, memory_bytes=GIB)
    large = replace(world.machines[1], memory_bytes=8 * GIB)
    world = replace(world, machines=(world.machines[0], large))
    jobs = [workload(world, "team/small"), workload(world, "team/big", model(parameters=50_000_000), max_workers=1)]
    assert machines_of(solve(jobs, [], world, WORK)) == {"team/small": {"a0"}, "team/big": {"a1"}}


def test_data_parallel_jobs_are_divided_as_well() -> None:
    world = topology({f"{region}{n}": SLOW for region in "az" for n in range(3)})
    fixed = {"pipeline": 1, "tensor": 1, "min_workers": 3, "max_workers": 3}
    jobs = [workload(world, f"team/{n}", **fixed) for n in range(2)]
    found = machines_of(solve(jobs, [], world, WORK))
    assert sorted(map(sorted, found.values())) == [["a0", "a1", "a2"], ["z0", "z1", "z2"]]


def test_together_is_never_worse_than_in_turn() -> None:
    for name in CASES:
        jobs, world = case(name)
        together, plans = solve(jobs, [], world, WORK), list[Plan]()
        for job in jobs:
            plans += solve([job], plans, world, WORK).plans.values()
        in_turn = math.prod(plan.prediction.step_s for plan in plans) if len(plans) == len(jobs) else math.inf
        assert product(together) <= in_turn * (1 + 1e-9)


def test_the_time_is_kept_and_something_is_planned_however_little_it_is() -> None:
    world = topology({f"{region}{n}": SLOW for region in "abc" for n in range(8)}, num_accelerators=4)
    jobs = [workload(world, f"team/{n}") for n in range(3)]
    ticks = iter(range(10**9))
    solution = solve(jobs, [], world, Budget(seconds=50), lambda: float(next(ticks)))
    assert set(solution.plans) == {job.key for job in jobs}
    assert next(ticks) < 2000


def test_a_part_of_the_ground_is_as_if_it_were_made_of_its_machines() -> None:
    world = topology({"a0": FAST, "a1": SLOW, "b0": SLOW, "c0": FAST})
    divisions: Divisions = divisions_of([workload(world)], world)
    (job,) = divisions.jobs
    few = replace(world, machines=world.machines[1:])
    own, part = type(job.ground).of(job.workload, few, few.machines), part_of(job, few)
    for option in job.space.options:
        for name, whole in own.setting(option)._asdict().items():
            found = getattr(part.setting(option), name)
            kinds = part.setting(option).kind_M, own.setting(option).kind_M
            if name.endswith(("_K", "_KJ")):
                assert np.array_equal(found[kinds[0]], whole[kinds[1]]), name
            elif name != "kind_M":
                assert np.array_equal(found, whole), name


@pytest.mark.whole  # in short: each search finds the optimum of small cases
def test_searches_are_compared_with_what_no_division_beats() -> None:
    jobs, world = case("unequal machines")
    ticks = iter(range(10**9))
    found = compare(jobs, world, 20_000.0, lambda: float(next(ticks)))
    rows = {row.search: row for row in found.rows}
    assert set(rows) == set(SEARCHES)
    assert rows["exact"].is_proven
    assert all(row.cost >= rows["exact"].cost * (1 - 1e-9) >= found.least for row in found.rows)
    assert all(sum(row.num_accelerators) <= 4 and len(row.num_accelerators) == 2 for row in found.rows)


def test_the_bound_is_reached_where_nothing_is_sent() -> None:
    """Two machines alike for two jobs alike: 24 s each alone on one, 12 s on both, so twice 12 s is the bound."""
    world = topology({"a0": SLOW, "z0": SLOW})
    found = compare([workload(world, f"team/{n}") for n in range(2)], world, 1.0, lambda: 0.0, names=())
    assert found.least == pytest.approx(24.0)


def test_the_bound_of_prices_is_reached_on_the_machine_with_most_speed_for_its_price() -> None:
    """24 s on a machine of 3 an hour, 12 s on one of 9. Each job has one of them."""
    world = topology({"a0": SLOW, "z0": 2 * SLOW})
    prices = {"a0": 3.0, "z0": 9.0}
    machines = tuple(replace(machine, price_per_hour=prices[machine.name]) for machine in world.machines)
    world = replace(world, machines=machines)
    jobs = [workload(world, f"team/{n}", objective="throughput-per-money", max_workers=1) for n in range(2)]
    ticks = iter(range(10**9))
    found = compare(jobs, world, 2000.0, lambda: float(next(ticks)), names=["exact"])
    assert found.least == pytest.approx(24.0 * 3 / 3600)
    assert found.rows[0].is_proven
    assert found.rows[0].cost == pytest.approx((24.0 * 3 * 12.0 * 9) ** 0.5 / 3600)


def test_a_share_is_priced_where_all_shapes_on_the_menu_were_hopeless_of_late() -> None:
    world = topology({"a0": 1e12, "a1": 1e12, "b0": 1e12})
    divisions = divisions_of([workload(world, "team/a"), workload(world, "team/b")], world)
    job, everything = divisions.jobs[0], divisions.pools.total_P
    job.scan(everything)
    job.menu.update(dict.fromkeys(job.menu, 50.0))
    assert job.value(everything - everything // 2) < 100


@pytest.mark.parametrize(
    ("sizes", "each", "fewest"),
    [
        ((3, 3, 3, 3), (2, 2), (2, 2)),
        ((3,) * 8, (2, 2), (4, 4)),
        ((7, 7, 7, 7), (4, 4), (2, 2)),
        ((8, 8, 8), (3, 3), (3, 3)),
        ((4, 4), (2, 3), (1, 1)),
        ((6, 6), (4, 3), (1, 2)),
        ((6,), (2, 3), (1, 1)),
        ((12, 12), (1, 8), (8, 2)),
        ((6, 6), (2, 4), (3, 1)),
    ],
)
def test_jobs_whose_workers_have_several_accelerators_get_whole_ones(
    sizes: tuple[int, ...], each: tuple[int, int], fewest: tuple[int, int]
) -> None:
    """Machines that leave over what makes no whole worker, and just room enough for both jobs."""
    world = topology({f"a{n}": FAST for n in range(len(sizes))})
    machines = tuple(replace(m, num_accelerators=size) for m, size in zip(world.machines, sizes, strict=True))
    world = replace(world, machines=machines)
    jobs = [
        workload(
            world,
            f"team/{n}",
            model(6, flops=1e12 * (n + 1)),
            global_batch=12,
            min_workers=fewest[n],
            accelerators_per_worker=each[n],
        )
        for n in range(2)
    ]
    solution = solve(jobs, (), world, WORK, no_time)
    assert not solution.unplaced
    held: Counter[str] = Counter()
    for job in jobs:
        mine = solution.plans[job.key].accelerators()
        assert all(num % job.accelerators_per_worker == 0 for num in mine.values()), mine
        assert sum(mine.values()) >= job.min_workers * job.accelerators_per_worker
        held.update(mine)
    assert all(num <= world.machine(name).num_accelerators for name, num in held.items())


def sized(sizes: tuple[int, ...], speeds: tuple[float, ...] = ()) -> Topology:
    """Machines of one region with so many accelerators each."""
    world = topology({f"a{n}": speed for n, speed in enumerate(speeds or (FAST,) * len(sizes))})
    machines = (replace(m, num_accelerators=size) for m, size in zip(world.machines, sizes, strict=True))
    return replace(world, machines=tuple(machines))


@pytest.mark.parametrize("wish", [{}, {"pipeline": 1, "tensor": 1}])
@pytest.mark.parametrize(
    ("sizes", "each"),
    [
        ((4, 4), (2, 2, 4)),
        ((8, 8), (1, 1, 8)),
        ((3, 2), (1, 1, 3)),
        ((4, 3), (2, 2, 3)),
        ((6,), (2, 4)),
        ((3,), (1, 2)),
    ],
)
def test_small_workers_share_what_makes_one_large_worker(
    sizes: tuple[int, ...], each: tuple[int, ...], wish: dict[str, Any]
) -> None:
    world = sized(sizes)
    jobs = [
        workload(world, f"team/{n}", model(4), global_batch=16, accelerators_per_worker=num, **wish)
        for n, num in enumerate(each)
    ]
    solution = solve(jobs, (), world, WORK, no_time)
    assert not solution.unplaced
    for job in jobs:
        held = solution.plans[job.key].accelerators().values()
        assert all(num % job.accelerators_per_worker == 0 for num in held)


@pytest.mark.parametrize("num_small", [4, 5])
def test_one_machine_more_does_not_keep_the_large_one_whole(num_small: int) -> None:
    """A large machine and small ones for two jobs: half of the large one each, however many the small ones are."""
    world = sized((8, *(1,) * num_small), (20 * SLOW, *(SLOW,) * num_small))
    jobs = [workload(world, f"team/{n}", model(4), global_batch=64) for n in range(2)]
    steps_s = [plan.prediction.step_s for plan in solve(jobs, (), world, WORK, no_time).plans.values()]
    half_s = 64 * 4 * 3e12 / (4 * 20 * SLOW)
    assert math.prod(steps_s) <= (1.01 * half_s) ** 2, steps_s


def differing(
    sizes: tuple[int, ...], each: tuple[int, ...], speeds: tuple[float, ...] = ()
) -> tuple[list[Workload], Topology]:
    """Jobs of workers of so many accelerators, one worker each at most, and where they are to go."""
    world = sized(sizes, speeds)
    free = {"recompute": False, "schedule": "1f1b", "tensor": 1, "max_workers": 1}
    return [workload(world, f"team/{n}", accelerators_per_worker=num, **free) for n, num in enumerate(each)], world


@pytest.mark.parametrize(("size", "each"), [(6, (2, 4)), (3, (1, 2))])
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_divides_a_machine_among_workers_that_just_fit(
    search: str, size: int, each: tuple[int, int]
) -> None:
    found = divided(*differing((size,), each), search)
    assert sorted(found.counts[:-1].sum(axis=1).tolist()) == list(each)
    assert found.value < math.inf


def test_a_large_worker_changes_places_with_small_ones() -> None:
    """The large one is best on the fast machine or on the slow one; two small ones together have the other."""
    jobs, world = differing((4, 4), (2, 2, 4), (SLOW, FAST))
    divisions = divisions_of(jobs, world)
    SEARCHES["exact"](divisions, lambda: 0.0, 0)
    assert divisions.is_proven
    assert divided(jobs, world).value == pytest.approx(divided(jobs, world, "exact").value, abs=1e-9)


@given(st.floats(0.0, 0.9))
@example(0.21873205985567062)
@example(0.33312594630166875)
@settings(max_examples=num_examples(200))
def test_annealing_ends_where_progress_stays_at_one(begun: float) -> None:
    """As that of a part of the work does; the end of the last round may be a rounding error above 1."""
    divisions = divisions_of(*case("two regions for two jobs"))
    portfolio.local.begin(divisions, lambda: 0.0, random.Random(0))
    asked = itertools.count()

    def progress() -> float:
        number = next(asked)
        assert number < 1000
        return min(1.0, begun + 0.01 * number)

    field = divisions.best(1) * portfolio.local.NUM_CHAINS
    portfolio.local.anneal(divisions, field, progress, random.Random(0))
