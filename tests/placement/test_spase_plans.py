"""Plans for sweeps: valid, never worse than greedy, as short as an exhaustive search finds, planned again on drift."""

from itertools import product

import pytest
from depth import num_examples
from hulk_placement.sweep import Option, Plan, Problem, Trial, Worker, drift_of
from hulk_placement.sweep.greedy import greedy, in_order
from hulk_placement.sweep.problem import check
from hulk_placement.sweep.spase import solve
from hypothesis import given, settings
from hypothesis import strategies as st


def shared(*seconds: float) -> tuple[Trial, ...]:
    """Trials that take one device each."""
    return tuple(Trial(f"t{n}", (Option("shared", 1, s),)) for n, s in enumerate(seconds))


def test_the_table_of_the_docstring() -> None:
    problem = Problem(shared(3, 3, 2, 2, 2), (Worker("a", 2),))
    assert greedy(problem).makespan_s == 7.0
    found = solve(problem)
    check(found, problem)
    assert (found.makespan_s, found.proven) == (6.0, True)


def test_devices_of_two_workers_are_used_together() -> None:
    problem = Problem(shared(4, 4, 4, 4), (Worker("a", 1), Worker("b", 1)))
    found = solve(problem)
    check(found, problem)
    assert found.makespan_s == 8.0
    assert {worker: len(row) for worker, row in found.by_worker().items()} == {"a": 2, "b": 2}


def test_a_parallelism_is_chosen_with_the_place_and_the_time() -> None:
    """The long trial is split over two devices, where it is no more than the others, who share the third."""
    ways = (Option("shared", 1, 10.0), Option("split", 2, 6.0))
    problem = Problem((Trial("long", ways), *shared(3, 3)), (Worker("a", 3),))
    found = solve(problem)
    check(found, problem)
    assert found.makespan_s == 6.0
    assert {one.trial: one.option.parallelism for one in found.placed}["long"] == "split"


def test_splitting_is_not_chosen_where_it_wastes_devices() -> None:
    """Four devices: all at once on one device each takes 4 s, split one after the other takes 4 x 3 / 2 s."""
    trials = tuple(Trial(name, (Option("shared", 1, 4.0), Option("split", 2, 3.0))) for name in "wxyz")
    found = solve(Problem(trials, (Worker("a", 4),)))
    assert (found.makespan_s, {one.option.parallelism for one in found.placed}) == (4.0, {"shared"})


def test_the_table_of_the_greedy_docstring() -> None:
    trials = tuple(Trial(name, (Option("shared", 1, 4.0), Option("split", 4, 2.0))) for name in "wxyz")
    problem = Problem(trials, (Worker("a", 4),))
    assert in_order(problem, problem.trials).makespan_s == 8.0
    assert greedy(problem).makespan_s == 4.0


def test_many_trials_share_out_devices_rather_than_take_all_of_a_worker() -> None:
    """Each in the way that ends soonest would split all of them: 1.39 times the bound."""
    seconds = [10 + 37 * n % 101 for n in range(100)]
    trials = tuple(
        Trial(f"t{n}", tuple(Option(f"over {k}", k, s / 1.7**i) for i, k in enumerate((1, 2, 4))))
        for n, s in enumerate(seconds)
    )
    problem = Problem(trials, (Worker("a", 4), Worker("b", 4)))
    found = greedy(problem)
    check(found, problem)
    assert found.makespan_s <= 1.05 * problem.bound_s()


def test_what_runs_stays_where_it_is_and_takes_what_is_left() -> None:
    trials = (Trial("here", (Option("shared", 1, 5.0),), stays="a"), *shared(5))
    problem = Problem(trials, (Worker("a", 1, (2.0,)), Worker("b", 1)))
    found = solve(problem)
    check(found, problem)
    assert {one.trial: (one.worker, one.start_s) for one in found.placed} == {"here": ("a", 2.0), "t0": ("b", 0.0)}


def test_the_same_seed_and_work_give_the_same_plan() -> None:
    problem = Problem(shared(*(1 + n * 7 % 11 for n in range(30))), (Worker("a", 3), Worker("b", 2)))
    assert solve(problem, 0.2, seed=3) == solve(problem, 0.2, seed=3)


def test_a_hundred_trials_are_planned_close_to_the_bound() -> None:
    problem = Problem(shared(*(5 + n * 13 % 29 for n in range(100))), tuple(Worker(name, 4) for name in "abcd"))
    found = solve(problem)
    check(found, problem)
    assert found.makespan_s <= 1.05 * found.bound_s


def test_nothing_to_run_takes_no_time() -> None:
    assert solve(Problem((), (Worker("a", 1),))) == Plan((), 0.0, True)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Problem(shared(1, 1)[:1] * 2, (Worker("a", 1),)), "trial t0 is there twice"),
        (lambda: Problem((), (Worker("a", 1), Worker("a", 2))), "worker a is there twice"),
        (lambda: Trial("x", ()), "trial x: there is no way to run it"),
        (lambda: Option("shared", 0, 1.0), "option shared: 0 devices for 1.0 s"),
        (lambda: Option("shared", 1, float("inf")), "1 devices for inf s"),
        (lambda: Option("shared", 1, float("nan")), "1 devices for nan s"),
        (lambda: Worker("a", 0), "worker a: 0 devices, must be at least 1"),
        (lambda: Worker("a", 2, (1.0,)), "worker a: 1 times for 2 devices"),
        (
            lambda: Problem((Trial("x", (Option("split", 3, 1.0),)),), (Worker("a", 2),)),
            "trial x fits nowhere: split needs 3 devices, workers have up to 2",
        ),
        (
            lambda: Problem((Trial("x", (Option("split", 2, 1.0),), "b"),), (Worker("a", 2), Worker("b", 1))),
            "trial x fits nowhere on worker b, where it stays",
        ),
    ],
)
def test_what_cannot_be_planned_is_told_with_its_numbers(make: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected.replace("(", r"\(")):
        make()  # type: ignore[operator]


def shortest(problem: Problem) -> float:
    """By trying every way, worker and order of what takes one device each."""
    workers = {worker.name: worker.num_devices for worker in problem.workers}
    devices = [(name, number) for name, count in workers.items() for number in range(count)]
    best = float("inf")
    for assigned in product(devices, repeat=len(problem.trials)):
        load: dict[tuple[str, int], float] = {}
        for trial, device in zip(problem.trials, assigned, strict=True):
            load[device] = load.get(device, 0.0) + trial.options[0].seconds
        best = min(best, max(load.values()))
    return best


@settings(max_examples=num_examples(25), deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 2), st.integers(1, 2))
def test_it_is_as_short_as_an_exhaustive_search_finds(seconds: list[int], first: int, second: int) -> None:
    problem = Problem(shared(*map(float, seconds)), (Worker("a", first), Worker("b", second)))
    found = solve(problem)
    check(found, problem)
    best = shortest(problem)
    assert found.makespan_s == pytest.approx(best)
    assert found.bound_s <= best + 1e-9


OPTIONS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50)), min_size=1, max_size=3)


@settings(max_examples=num_examples(25), deadline=None)
@given(st.lists(OPTIONS, min_size=1, max_size=8), st.lists(st.integers(3, 4), min_size=1, max_size=3))
def test_a_plan_is_valid_above_its_bound_and_never_longer_than_greedy(
    ways: list[list[tuple[int, int]]], sizes: list[int]
) -> None:
    trials = tuple(
        Trial(f"t{n}", tuple(Option(f"{k}-{i}", k, float(s)) for i, (k, s) in enumerate(row)))
        for n, row in enumerate(ways)
    )
    problem = Problem(trials, tuple(Worker(f"w{n}", size) for n, size in enumerate(sizes)))
    found, first = solve(problem, work=0.2), greedy(problem)
    for plan in (found, first):
        check(plan, problem)
        assert plan.bound_s <= plan.makespan_s + 1e-9
    assert found.makespan_s <= first.makespan_s
    more = Problem(trials, (*problem.workers, Worker("more", 4)))
    assert more.bound_s() <= problem.bound_s()


# Planned again when measurements drift.


def test_times_that_are_all_off_by_one_factor_are_no_drift() -> None:
    found = drift_of({"a": 1.0, "b": 2.0}, {"a": 30.0, "b": 60.0})
    assert found is not None
    assert (found.ratio, found.exceeds()) == (1.0, False)


def test_a_trial_that_takes_longer_beside_the_others_is_a_drift() -> None:
    found = drift_of({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 1.3, "c": 1.0})
    assert found is not None
    assert (found.trial, found.exceeds(), found.exceeds(1.4)) == ("b", True, False)


def test_nothing_measured_is_no_drift() -> None:
    assert drift_of({"a": 1.0}, {}) is None


def test_a_plan_from_guesses_gets_shorter_once_times_are_measured() -> None:
    """Guessed alike, the two long trials share a worker; measured, they are parted."""
    workers = (Worker("a", 1), Worker("b", 1))
    guessed = solve(Problem(shared(1, 1, 1, 1), workers))
    groups = guessed.by_worker()
    long = {one.trial for one in groups["a"]}
    measured = {f"t{n}": 9.0 if f"t{n}" in long else 1.0 for n in range(4)}
    drift = drift_of(dict.fromkeys(measured, 1.0), measured)
    assert drift is not None
    assert drift.exceeds()
    again = solve(Problem(shared(*(measured[f"t{n}"] for n in range(4))), workers))
    assert again.makespan_s == 10.0 < sum(measured[name] for name in long)


def test_a_device_that_is_busy_beyond_the_plans_end_takes_no_part_in_the_bound() -> None:
    """Two trials on the free device end after 5 s, whatever the other one, busy for 30 s, does."""
    problem = Problem(shared(2, 3), (Worker("a", 1), Worker("b", 1, (30.0,))))
    assert problem.bound_s() == 5.0
    assert (solve(problem).makespan_s, solve(problem).bound_s) == (5.0, 5.0)
    ways = (Option("shared", 1, 10.0), Option("split", 2, 5.5))
    two = Problem((Trial("x", ways), *shared(5.0, 2.0)), (Worker("a", 2), Worker("b", 2, (30.0, 30.0))))
    found = solve(two)
    check(found, two)
    assert (found.makespan_s, found.proven) == (10.0, True)
