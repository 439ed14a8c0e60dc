"""Units' times: of pilot runs as of the run itself, and compared on one footing."""

import time
from contextlib import contextmanager

import pytest
from hulk_runtime.sharp import HostDevice
from hulk_runtime.sharp.dispatcher import Dispatcher
from hulk_runtime.sharp.pilot_partitioning import Cut
from hulk_runtime.sharp.run import make, prepare
from hulk_runtime.sharp.run import trial_run as make_trial_run
from hulk_runtime.sharp.scheduling_policy import LongestRemaining
from hulk_runtime.sharp.unit_times import Pace, UnitTimes
from sharp_models import trial

LATE_S = 0.02


class Asynchronous(HostDevice):
    """As on a GPU, what is computed takes until `computing` ends."""

    @contextmanager
    def computing(self, stream):
        with super().computing(stream):
            yield
        time.sleep(LATE_S)


def test_a_pilot_run_waits_for_what_the_device_computes():
    (course,), _ = prepare([trial("a", 16, 3, 2)], [Asynchronous(1_000_000)], double_buffer=True)
    assert all(cut.forward_s > LATE_S and cut.backward_s > LATE_S for cut in course.cuts)
    assert course.remaining_s() > 2 * len(course.units) * LATE_S


def test_a_units_time_is_the_mean_of_what_was_measured():
    times = UnitTimes([0.1, 0.2], Pace())
    assert times.seconds() == [0.1, 0.2]
    for seconds in (3.0, 5.0):
        times.observe(1, seconds)
    assert times.seconds() == pytest.approx([0.1 * 8 / 0.4, 4.0])


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_what_has_not_begun_is_as_long_as_what_has(factor):
    """Whatever the pilot runs were off by: the trial that has more left is the longer one."""
    pace = Pace()
    begun, other = UnitTimes([1.0, 2.0], pace), UnitTimes([1.0, 2.1], pace)
    begun.observe(0, factor)
    assert sum(begun.seconds()) == pytest.approx(3.0 * factor)
    assert sum(begun.seconds()) < sum(other.seconds()) == pytest.approx(3.1 * factor)


def equal_courses(number, num_steps):
    """Models of two shards whose pilot runs took 1 ms forward and 2 ms backward."""
    pace, device = Pace(), HostDevice(10**6)
    cuts = [Cut(0, 2, 1000, 100, 0.001, 0.002), Cut(2, 4, 1000, 100, 0.001, 0.002)]
    alike = [trial(f"t{i}", 16, 2, num_steps) for i in range(number)]
    return [make_trial_run(i, each, *make(each), cuts, device, pace) for i, each in enumerate(alike)]


def test_no_model_waits_until_others_have_ended():
    """12 on 8 devices on which units take ten times as long as in pilot runs: were both mixed, a model that has begun
    would look longer than one that has not, and 4 would begin when 8 have ended."""
    courses = equal_courses(12, num_steps=4)
    board = Dispatcher(courses, 8, LongestRemaining(), lambda _: None)
    held = [board.take(device) for device in range(8)]
    while max(course.step for course in courses) < 4:
        for device, now in enumerate(held):
            held[device] = board.reserve(device, now, may_follow=True)
            now._times.observe(now.position, 0.01 * (1 + (now.unit.kind == "backward")))
            now.advance()
            if held[device] is not now:
                board.release(now)
    assert min(course.step for course in courses) >= 2
