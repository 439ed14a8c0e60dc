"""Predicted peaks of memory beside published ones: `python -m bench memory`."""

from __future__ import annotations

import pytest

from bench.memory_peaks.predicted import before, stated
from bench.memory_peaks.published import peaks
from bench.memory_peaks.question import error, mean, run


def test_peaks_are_predicted_by_what_is_stated() -> None:
    found = peaks()
    now, then = ([error(peak, count) for peak in found] for count in (stated, before))
    assert len(found) == 28
    assert mean(now) < 0.05
    assert max(map(abs, now)) < 0.15
    assert mean(then) > 0.15


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_every_tensor_degree_is_within_a_tenth(tensor: int) -> None:
    rows = [peak for peak in peaks() if peak.source == "Megatron-LM" and peak.tensor == tensor]
    assert rows
    assert all(abs(error(peak, stated)) < 0.1 for peak in rows)


def test_both_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run(short=True)
    printed = capsys.readouterr().out
    assert "GPT 6.7B, tensor 4" in printed
    assert "mean error as stated" in printed
