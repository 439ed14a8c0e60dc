"""What does not count is done again, and no more often than it is worth."""

from dataclasses import dataclass

import pytest

from bench import conditions


@dataclass(frozen=True)
class Once:
    number: int
    valid: bool


@pytest.mark.parametrize(
    ("counting", "number", "num_waits"),
    [(0, 0, 0), (1, 1, 1), (conditions.TRIES, conditions.TRIES - 1, conditions.TRIES - 1)],
)
def test_a_run_is_repeated_until_one_counts(
    monkeypatch: pytest.MonkeyPatch, counting: int, number: int, num_waits: int
) -> None:
    """`counting`: the number of the first run that does."""
    waits: list[None] = []
    monkeypatch.setattr(conditions, "wait_for_quiet", lambda: waits.append(None))
    runs = (Once(made, made >= counting) for made in range(conditions.TRIES + 1))
    assert conditions.one_that_counts(lambda: next(runs)).number == number
    assert len(waits) == num_waits
