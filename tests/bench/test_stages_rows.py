"""What the benchmark of stages makes of its trainings."""

from __future__ import annotations

from dataclasses import replace

from bench.stages.rows import SEARCHED, Row, cases, verdicts

ROW = Row(
    links="near",
    num_pipelines=1,
    order="gpipe",
    schedule="gpipe",
    predicted_s=1.0,
    observed_s=1.0,
    predicted_bubble_s=0.2,
    observed_bubble_s=0.2,
    observed_transfer_s=0.1,
    is_as_planned=True,
    usable=True,
    conditions="",
)
ROWS = [ROW, replace(ROW, order="1f1b", observed_s=1.2), replace(ROW, order=SEARCHED, predicted_s=0.8, observed_s=0.9)]


def test_every_order_is_first_in_turn() -> None:
    orders = [case.order for case in cases("near", (1,), ("a", "b", "c"), 3)]
    assert sorted(orders[::3]) == ["a", "b", "c"]
    assert len({case.job_name for case in cases("near", (1, 2), ("a", "b"), 3)}) == 12


def test_an_order_that_was_to_win_and_does_not_is_said_to_miss() -> None:
    assert "predicted 0.800, observed: 0.9, aim at most 1: met" in "\n".join(verdicts(ROWS))
    late = [*ROWS[:2], replace(ROWS[2], observed_s=1.01)]
    assert "predicted 0.800, observed: 1.01, aim at most 1: missed" in "\n".join(verdicts(late))
    alike = [*ROWS[:2], replace(ROWS[2], predicted_s=1.0, observed_s=1.02)]
    assert "predicted 1.000, observed: 1.02, aim at most 1.03: met" in "\n".join(verdicts(alike))


def test_rows_that_do_not_count_are_left_out_and_orders_never_are() -> None:
    unusable = [*ROWS[:2], replace(ROWS[2], usable=False, is_as_planned=False)]
    told = "\n".join(verdicts(unusable))
    assert "searched order" not in told
    assert "whose order was not the plan's: 1, aim at most 0: missed" in told
