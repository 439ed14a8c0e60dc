"""Measured seconds, between, below and beyond the micro-batches that were measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hulk_placement.model import LayerTimes, TimesRow
from hypothesis import given
from hypothesis import strategies as st


def rows(*points: tuple[int, float], product: str = "T4", tensor: int = 1) -> tuple[TimesRow, ...]:
    """One layer whose backward pass takes twice as long."""
    return tuple(TimesRow(product, size, tensor, (seconds,), (2 * seconds,)) for size, seconds in points)


@pytest.mark.parametrize(
    ("points", "micro_batch", "expected"),
    [
        ([(2, 3.0)], 1, 1.5),
        ([(2, 3.0)], 2, 3.0),
        ([(2, 3.0)], 6, 9.0),
        ([(2, 3.0), (4, 5.0)], 3, 4.0),
        ([(4, 5.0), (2, 3.0)], 2.5, 3.5),
        ([(2, 3.0), (4, 5.0)], 8, 10.0),
        ([(2, 3.0), (4, 5.0)], 1, 2.0),  # 1 s at no sequence, and 1 s more for each
        ([(2, 3.0), (4, 5.0), (8, 5.0)], 1, 2.0),
        ([(2, 1.0), (4, 5.0)], 1, 0.5),  # the line says -1 s
    ],
)
def test_seconds_of_any_micro_batch(points: list[tuple[int, float]], micro_batch: float, expected: float) -> None:
    assert LayerTimes(rows(*points)).seconds("T4", micro_batch, 1) == ((expected,), (2 * expected,))


@pytest.mark.parametrize(("product", "tensor"), [("A100", 1), ("T4", 2)])
def test_what_was_not_measured_is_not_guessed(product: str, tensor: int) -> None:
    assert LayerTimes(rows((1, 1.0))).seconds(product, 1, tensor) is None


def test_products_and_tensor_degrees_are_apart() -> None:
    times = LayerTimes(rows((1, 1.0)) + rows((1, 5.0), product="V100") + rows((1, 0.6), tensor=2))
    assert times.seconds("V100", 2, 1) == ((10.0,), (20.0,))
    assert times.seconds("T4", 1, 2) == ((0.6,), (1.2,))


POINTS = st.dictionaries(st.integers(1, 64), st.floats(1e-6, 1e3), min_size=1, max_size=5)


@given(POINTS, st.permutations(range(5)))
def test_measured_points_come_back_in_any_order_of_rows(points: dict[int, float], order: list[int]) -> None:
    measured = list(points.items())
    times = LayerTimes(rows(*(measured[number] for number in order if number < len(measured))))
    for size, seconds in measured:
        found = times.seconds("T4", size, 1)
        assert found is not None
        assert found[0] == pytest.approx((seconds,))


@given(POINTS, st.floats(0.1, 200))
def test_seconds_are_never_negative_and_lie_between_their_neighbours(points: dict[int, float], size: float) -> None:
    found = LayerTimes(rows(*points.items())).seconds("T4", size, 1)
    assert found is not None
    assert found[0][0] > 0
    below, above = [p for p in points if p <= size], [p for p in points if p >= size]
    if below and above:
        ends = sorted((points[max(below)], points[min(above)]))
        assert ends[0] * (1 - 1e-9) <= found[0][0] <= ends[1] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LayerTimes(()), "times: no row"),
        (lambda: LayerTimes(rows((2, 1.0), (2, 3.0))), "times: 2 rows for T4, tensor 1, micro-batch 2"),
        (lambda: LayerTimes((*rows((1, 1.0)), TimesRow("T4", 2, 1, (1.0, 1.0), (1.0, 1.0)))), "rows of 1 and 2 layers"),
        (lambda: rows((0, 1.0)), "micro-batch 0"),
        (lambda: rows((1, 1.0), tensor=0), "tensor 0"),
        (lambda: rows((1, 1.0), product=""), "times of no product"),
        (lambda: rows((1, -1.0)), "-1.0 s must be >= 0"),
        (lambda: rows((1, float("nan"))), "nan s must be >= 0"),
        (lambda: TimesRow("T4", 1, 1, (1.0,), ()), "1 forward and 0 backward seconds"),
        (
            lambda: TimesRow("T4", 2, 1, (0.0, 0.0), (0.0, 0.0)),
            "times of T4, micro-batch 2, tensor 1: all forward and backward seconds of the model's 2 layers are 0",
        ),
    ],
)
def test_bad_rows_are_refused_with_their_numbers(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
