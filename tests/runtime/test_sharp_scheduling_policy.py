"""Schedulers beside an exact search, which is itself beside all orders."""

import itertools

import pytest
from depth import num_examples
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.sharp.exact_schedule import lower_bound_s, shortest
from hulk_runtime.sharp.scheduling_policy import Candidate, Exact, FirstCome, LongestRemaining, Random
from hypothesis import given, settings
from hypothesis import strategies as st

TRIALS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=3)


def by_all_orders(trials: list[list[int]], num_devices: int) -> float:
    """The shortest of all lists of units, each on any device, as early as its trial and the device allow."""
    names = [number for number, units in enumerate(trials) for _ in units]
    best = float("inf")
    for names_in_order in set(itertools.permutations(names)):
        for seats in itertools.product(range(num_devices), repeat=len(names)):
            best = min(best, _length(trials, names_in_order, seats, num_devices))
    return best


def _length(trials, names, seats, num_devices: int) -> float:
    done, ready, free = [0] * len(trials), [0.0] * len(trials), [0.0] * num_devices
    for trial, device in zip(names, seats, strict=True):
        end = max(ready[trial], free[device]) + trials[trial][done[trial]]
        ready[trial] = free[device] = end
        done[trial] += 1
    return max(free)


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=2), min_size=1, max_size=3))
@settings(max_examples=num_examples(40), deadline=None)
def test_exact_is_the_shortest_of_all_orders(trials):
    assert shortest(trials, 2).makespan_s == by_all_orders(trials, 2)


@given(TRIALS, st.integers(1, 3))
@settings(max_examples=num_examples(100), deadline=None)
def test_exact_schedules_are_possible_and_not_below_the_bound(trials, num_devices):
    schedule = shortest(trials, num_devices)
    assert schedule.makespan_s >= lower_bound_s(trials, num_devices)
    units = [unit for device in schedule.devices for unit in device]
    assert sorted((u.trial, u.number) for u in units) == [(t, n) for t, us in enumerate(trials) for n in range(len(us))]
    for device in schedule.devices:
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(device))
    for trial in range(len(trials)):
        mine = sorted((u for u in units if u.trial == trial), key=lambda u: u.number)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(mine))
    assert max(u.end_s for u in units) == schedule.makespan_s


def test_a_gap_that_no_greedy_order_leaves():
    """Waiting for the long trial's second unit is better than to begin another at once."""
    trials = [[1, 5], [4], [3, 3]]
    assert shortest(trials, 2).makespan_s == by_all_orders(trials, 2)


def test_too_many_units_for_exact_are_refused():
    with pytest.raises(ConfigurationError, match="trials of 60, 60, 60 units on 2 devices are too many"):
        shortest([[1.0 + (7 * i + 3 * t) % 5 for i in range(60)] for t in range(3)], 2)


def test_exact_keeps_each_devices_order_and_waits():
    order = Exact([[2, 2], [1], [1]], 2)
    first = order.choose(0, [Candidate(0, 4.0), Candidate(1, 1.0), Candidate(2, 1.0)])
    second = order.choose(1, [Candidate(t, 1.0) for t in range(3) if t != first])
    assert {first, second} == {0, 1}
    device_of_0 = 0 if first == 0 else 1
    assert order.choose(device_of_0, [Candidate(2, 1.0)]) is None
    assert order.choose(device_of_0, [Candidate(0, 2.0), Candidate(2, 1.0)]) == 0


def test_the_other_schedulers():
    candidates = [Candidate(3, 1.0), Candidate(1, 2.0), Candidate(2, 2.0)]
    assert LongestRemaining().choose(0, candidates) == 1
    assert FirstCome().choose(0, candidates) == 1
    assert FirstCome().choose(0, candidates[:1]) == 3
    drawn = [Random(7).choose(0, candidates) for _ in range(3)]
    assert len(set(drawn)) == 1
    one = Random(7)
    assert {one.choose(0, candidates) for _ in range(100)} == {1, 2, 3}
