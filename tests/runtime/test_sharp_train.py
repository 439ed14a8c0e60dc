"""Several models on few devices end with the bits that each has alone."""

import pytest
import torch
from hulk_runtime.sharp import HostDevice, train
from hulk_runtime.sharp.run import prepare
from sharp_models import adamw, alone, momentum, trial

pytestmark = pytest.mark.usefixtures("one_thread")

MEMORY_BYTES = 1_000_000
TRIALS = [
    trial("narrow", 16, 3, 6),
    trial("deep", 24, 6, 4, momentum),
    trial("wide", 40, 4, 5),
    trial("short", 16, 3, 2, momentum),
]


@pytest.fixture(scope="module")
def expected():
    return {trial.name: alone(trial) for trial in TRIALS}


def devices(number: int, memory_bytes: int = MEMORY_BYTES, *, recomputes: bool = False) -> list[HostDevice]:
    return [HostDevice(memory_bytes, f"host-{i}", recomputes=recomputes) for i in range(number)]


def require_equal(outcomes, expected) -> None:
    for name, outcome in outcomes.items():
        losses, parameters = expected[name]
        assert (outcome.state, outcome.reason) == ("succeeded", "")
        assert outcome.losses == losses
        assert outcome.parameters.keys() == parameters.keys()
        for key, value in parameters.items():
            assert torch.equal(outcome.parameters[key], value), f"{name}: {key}"


@pytest.mark.parametrize("recomputes", [False, True], ids=["spilled", "recomputed"])
@pytest.mark.parametrize("double_buffer", [False, True], ids=["one buffer", "two buffers"])
@pytest.mark.parametrize("scheduler", ["lrtf", "fifo", "random"])
def test_bits_are_those_of_each_alone(expected, scheduler, double_buffer, recomputes):
    on = devices(2, recomputes=recomputes)
    outcomes = train(TRIALS, on, scheduler=scheduler, double_buffer=double_buffer)
    require_equal(outcomes, expected)
    assert [device.in_use_bytes() for device in on] == [0, 0]
    assert all(0 < device.peak_bytes() <= MEMORY_BYTES for device in on)


@pytest.mark.parametrize("number", [1, 3, 5])
def test_any_number_of_devices_also_more_than_models(expected, number):
    require_equal(train(TRIALS, devices(number)), expected)


def test_fewer_models_than_devices(expected):
    require_equal(train(TRIALS[:1], devices(2)), expected)


def test_the_exact_scheduler_for_a_tiny_case():
    few = [trial("a", 16, 1, 1), trial("b", 16, 1, 2), trial("c", 16, 1, 1)]
    require_equal(train(few, devices(2), scheduler="exact"), {each.name: alone(each) for each in few})


def test_devices_of_different_memory_are_cut_for_the_smallest(expected):
    small, large = HostDevice(MEMORY_BYTES, "small"), HostDevice(8 * MEMORY_BYTES, "large")
    require_equal(train(TRIALS, [large, small]), expected)
    assert small.peak_bytes() <= MEMORY_BYTES


def test_models_are_spilled_because_they_do_not_fit():
    """Otherwise the tests above would show nothing."""
    courses, _ = prepare(TRIALS, devices(2), double_buffer=True)
    assert max(len(course.shards) for course in courses) >= 3
    for course in courses:
        assert all(cut.peak_bytes + cut.slot_bytes <= MEMORY_BYTES for cut in course.cuts)
        assert [cut.start for cut in course.cuts[1:]] == [cut.stop for cut in course.cuts[:-1]]


def test_a_shard_cannot_be_one_layer_longer():
    on = devices(1)
    (course,), _ = prepare(TRIALS[1:2], on, double_buffer=True)
    first = course.cuts[0]
    assert first.stop < len(course.model.layers)
    smaller = HostDevice(first.peak_bytes + first.slot_bytes - 1, "smaller")
    (shorter,), _ = prepare(TRIALS[1:2], [smaller], double_buffer=True)
    assert shorter.cuts[0].stop < first.stop


def test_without_a_second_buffer_shards_are_larger():
    (two,), _ = prepare(TRIALS[2:3], devices(1), double_buffer=True)
    (one,), _ = prepare(TRIALS[2:3], devices(1), double_buffer=False)
    assert len(two.shards) > len(one.shards)


def test_the_order_of_steps_is_reported():
    seen = []
    train(TRIALS, devices(2), report=seen.append)
    for each in TRIALS:
        assert [step.step for step in seen if step.trial == each.name] == list(range(1, each.num_steps + 1))


def test_the_number_of_threads_is_as_before():
    torch.set_num_threads(2)
    inside = []
    train(TRIALS[3:], devices(2), report=lambda _: inside.append(torch.get_num_threads()))
    after = torch.get_num_threads()
    torch.set_num_threads(1)
    assert (set(inside), after) == ({1}, 2)


def test_longest_remaining_first_alternates_among_equal_models():
    """With first come, first served the last model is alone at the end."""
    three = [trial(name, 16, 3, 6, adamw) for name in "abc"]

    def spread(scheduler: str) -> int:
        seen = []
        train(three, devices(1), scheduler=scheduler, report=lambda step: seen.append(step.trial))
        return len(set(seen[:6]))

    assert spread("lrtf") > spread("fifo") == 1  # by measured times, so that they need not be taken in turn
