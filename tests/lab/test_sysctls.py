"""The machine's limits come back with the last lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from hulk_lab import sysctls


def test_limits_are_raised_once_and_restored_with_the_last_lab(tmp_path: Path) -> None:
    low, high = tmp_path / "low", tmp_path / "high"
    low.write_text("128\n")
    high.write_text("9000\n")
    limits = {low: 8192, high: 8192}

    sysctls.raise_limits("a", run_dir=tmp_path, limits=limits)
    sysctls.raise_limits("b", run_dir=tmp_path, limits=limits)
    assert (low.read_text(), high.read_text()) == ("8192", "9000\n")

    sysctls.restore("a", run_dir=tmp_path)
    assert low.read_text() == "8192"
    sysctls.restore("b", run_dir=tmp_path)
    assert (low.read_text(), high.read_text()) == ("128", "9000")


def test_restoring_what_was_never_raised_changes_nothing(tmp_path: Path) -> None:
    sysctls.restore("a", run_dir=tmp_path)
    assert not (tmp_path / "sysctls.json").exists()


@pytest.mark.parametrize("record", ['{"slots": [0], "before": {}}', '{"before": {"lim', "[]"])
def test_a_record_of_another_version_stops_nobody(tmp_path: Path, record: str) -> None:
    limit = tmp_path / "limit"
    limit.write_text("128")
    (tmp_path / "sysctls.json").write_text(record)
    sysctls.restore("a", run_dir=tmp_path)

    sysctls.raise_limits("a", run_dir=tmp_path, limits={limit: 8192})
    assert limit.read_text() == "8192"
    sysctls.restore("a", run_dir=tmp_path)
    assert limit.read_text() == "128"
