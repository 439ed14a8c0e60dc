"""SHARP's simulation beside what can be computed by hand, and the published setting's assumptions."""

import pytest
from depth import num_examples
from hulk_runtime.sharp.exact_schedule import lower_bound_s, shortest
from hulk_runtime.sharp.scheduling_policy import FirstCome, LongestRemaining
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sharp import published, setting
from bench.sharp.simulate import Simulation, Work


def plain(*seconds: float) -> list[Work]:
    """Units of one shard each that need no copies."""
    return [Work(number, 0.0, s, 0.0) for number, s in enumerate(seconds)]


def test_three_equal_models_on_two_devices_end_together():
    """But for a unit that is reserved ahead by one device when the other has nothing left."""
    three = [plain(*[1.0] * 20)] * 3
    assert 30 <= Simulation(three, 2, LongestRemaining()).makespan_s() <= 31
    assert Simulation(three, 2, LongestRemaining(), double_buffer=False).makespan_s() == 30
    assert Simulation(three, 2, FirstCome(), double_buffer=False).makespan_s() == 40


def test_copies_are_hidden_by_a_second_buffer_and_added_without():
    two = [[Work(number, 1.0, 4.0, 1.0) for number in range(3)] for _ in range(2)]
    assert Simulation(two, 1, LongestRemaining(), double_buffer=False).makespan_s() == 6 * 6
    assert Simulation(two, 1, LongestRemaining(), double_buffer=True).makespan_s() == 1 + 6 * 4 + 1


def test_copies_that_take_longer_than_computing_decide():
    two = [[Work(number, 3.0, 4.0, 3.0) for number in range(3)] for _ in range(2)]
    assert Simulation(two, 1, LongestRemaining()).makespan_s() > 6 * 6 - 6


def test_a_shard_that_follows_itself_is_not_copied():
    one = [Work(0, 5.0, 1.0, 5.0)] * 4
    assert Simulation([one], 1, LongestRemaining()).makespan_s() == 5 + 4 + 5


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=3), st.integers(1, 3))
@settings(max_examples=num_examples(60), deadline=None)
def test_never_shorter_than_the_exact_schedule_and_never_longer_than_graham_allows(trials, num_devices):
    exact = shortest(trials, num_devices).makespan_s
    found = Simulation([plain(*units) for units in trials], num_devices, LongestRemaining()).makespan_s()
    assert exact <= found <= 2 * exact
    assert found >= lower_bound_s(trials, num_devices)


def test_a_pipeline_of_as_many_micro_batches_as_stages():
    """8 stages of 10 layers each, for 77: (8 + 7) of 8 micro-batches of ten layers."""
    step_s = setting.gpipe_step_s(77, 8)
    assert step_s == pytest.approx(15 / 8 * 4 * setting.forward_s(10))


def test_the_fitted_link_misses_both_published_times_alike():
    layers = setting.num_layers(1e9)
    rate = published.fitted_link_bytes_per_s(layers)
    step = setting.units(layers, 1, rate)
    stretched = sum(u.load_s + u.compute_s + u.store_s for u in step) / sum(u.compute_s for u in step)
    hours = stretched * setting.PUBLISHED_RATIO * setting.PUBLISHED_H["SHARP"]
    over = hours / setting.PUBLISHED_H["neither"]
    under = hours / 8 / setting.PUBLISHED_H["one buffer"]
    assert over * under == pytest.approx(1)


def test_a_models_units_are_one_after_the_other_and_every_parameter_comes_home_once():
    layers = setting.num_layers(1e9)
    units = setting.units(layers, 2, 1.0)
    assert [unit.shard for unit in units] == [0, 1, 1, 0] * 2
    stored = sum(unit.store_s for unit in units) / 2
    assert stored == pytest.approx(layers * setting.LAYER_PARAMETER_BYTES + 4 * setting.BOUNDARY_BYTES)
