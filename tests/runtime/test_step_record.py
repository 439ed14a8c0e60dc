"""What counts as a step, whatever optimizers a program has, and what is read of the times between them."""

import os

import pytest
from hulk_runtime.job.step_record import NUM_BYTES, StepRecord

ONE, GENERATOR, CRITIC, WRAPPER = range(4)


class Clock:
    """A second passes from one look to the next."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 10**9
        return self.now_ns


@pytest.fixture
def record() -> StepRecord:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, NUM_BYTES)
    return StepRecord(descriptor, Clock())


@pytest.mark.parametrize(
    ("optimizers", "steps"),
    [
        pytest.param([ONE] * 5, 5, id="one"),
        pytest.param([CRITIC, GENERATOR] * 5, 5, id="two that take turns in a step"),
        pytest.param([CRITIC, CRITIC, CRITIC, GENERATOR] * 2, 6, id="one that steps more often"),
        pytest.param([ONE, WRAPPER] * 5, 5, id="a wrapper that steps what it wraps"),
        pytest.param([ONE] * 5 + [CRITIC] * 5, 9, id="another takes over: one step is not told apart"),
        pytest.param(list(range(100)) * 3, 3, id="one for each parameter"),
    ],
)
def test_a_training_step_is_counted_once(record, optimizers, steps):
    for optimizer in optimizers:
        record.optimizer_stepped(optimizer)
    assert record.read().step == steps


def test_the_last_twenty_durations_are_read(record):
    for _ in range(100):
        record.optimizer_stepped(ONE)
    found = record.read()
    assert (found.step, found.durations_s, found.step_s) == (100, (1.0,) * 20, 1.0)


def test_the_first_step_has_no_duration(record):
    assert record.read().step_s is None
    record.optimizer_stepped(ONE)
    assert record.read().durations_s == ()
    record.optimizer_stepped(ONE)
    assert record.read().durations_s == (1.0,)


def test_what_a_program_tells_counts_instead_of_its_optimizers(record):
    for step in (1010, 1020, 1020):
        record.told(step, 0.25)
        record.optimizer_stepped(ONE)
    found = record.read()
    assert (found.step, found.loss, found.durations_s) == (1020, 0.25, (0.1,))
