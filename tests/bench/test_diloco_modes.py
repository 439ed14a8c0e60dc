"""The rows of `python -m bench diloco`: what a rank sends, and the schedule all of them have."""

import pytest

from bench.diloco.modes import MODES, Mode
from bench.diloco.rank import schedule


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Mode("every step"), 4000.0),
        (Mode("local", 50), 80.0),
        (Mode("rounds longer than the run", 500), 40.0),
        (Mode("quantised", 50, compression="int4"), (500 + 4 * 4) / 50),
        (Mode("late", 50, warm=0.5), 2040.0),
    ],
)
def test_two_ranks_send_half_of_the_values_twice(mode: Mode, expected: float) -> None:
    assert mode.sent_bytes(1000, 2, 100) == pytest.approx(expected)


def test_the_learning_rate_rises_and_falls() -> None:
    assert [schedule(done) for done in (0.025, 0.05, 0.525, 1.0)] == pytest.approx([0.5, 1.0, 0.55, 0.1])


def test_every_mode_has_a_name_of_its_own() -> None:
    assert len({mode.name for mode in MODES}) == len(MODES)
