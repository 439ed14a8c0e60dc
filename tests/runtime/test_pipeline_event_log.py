"""Where the time of a step went, worked out by hand."""

import pytest
from hulk_runtime.pipeline.dataflow import Way
from hulk_runtime.pipeline.event_log import Event, Log, Parts, parts

THERE = Way(0, 1)


def test_waiting_is_a_bubble_until_the_peer_has_sent():
    """Device 1 waits from 0.2 to 1.3 for what device 0 sends at 1.0; it has nothing to do for 0.2 before."""
    first = Log(
        0, [Event("run", 0, 0, 0.0, 1.0), Event("sum", None, 0, 1.0, 2.5), Event("send", THERE, 0, 1.0, 1.25, 1)]
    )
    second = Log(
        1,
        [Event("wait", THERE, 0, 0.2, 1.3, 0), Event("run", 1, 0, 1.3, 2.3), Event("sum", None, 0, 2.3, 2.5)],
    )
    one, other = parts([first, second])
    assert one == Parts(2.5, 1.0, 0.0, 0.0, 1.5)
    assert (other.step_s, other.compute_s) == pytest.approx((2.5, 1.0))
    assert (other.transfer_s, other.bubble_s, other.sum_s) == pytest.approx((0.3, 1.0, 0.2))


def test_a_message_that_came_before_it_was_needed_costs_nothing():
    first = Log(0, [Event("run", 0, 0, 0.0, 1.0), Event("send", THERE, 0, 1.0, 1.1, 1)])
    second = Log(1, [Event("run", 1, 1, 0.0, 2.0), Event("wait", THERE, 0, 2.0, 2.0, 0), Event("run", 1, 0, 2.0, 3.0)])
    assert parts([first, second])[1] == Parts(3.0, 3.0, 0.0, 0.0, 0.0)


def test_each_rank_counts_seconds_from_a_moment_of_its_own():
    """As device 1 waits above, but its second 0 is 0.08 s after device 0's: it waits from 0.12 to 1.22 of its own."""
    first = Log(0, [Event("run", 0, 0, 0.0, 1.0), Event("send", THERE, 0, 1.0, 1.25, 1)], zero_s=70.0)
    second = Log(1, [Event("wait", THERE, 0, 0.12, 1.22, 0), Event("run", 1, 0, 1.22, 2.22)], zero_s=70.08)
    other = parts([first, second])[1]
    assert (other.transfer_s, other.bubble_s) == pytest.approx((0.3, 0.92))
