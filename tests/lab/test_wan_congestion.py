"""The one setting of the machine that the lab's network changes, and how it goes back."""

from __future__ import annotations

from pathlib import Path

from hulk_lab.wan import congestion


def test_the_list_returns_with_the_last_lab(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("reno bbr\n")
    congestion.allow("cubic", 0, run_dir=tmp_path, allowed=allowed)
    congestion.allow("cubic", 1, run_dir=tmp_path, allowed=allowed)
    congestion.restore(0, run_dir=tmp_path)
    assert allowed.read_text() == "reno bbr cubic"
    congestion.restore(1, run_dir=tmp_path)
    congestion.restore(1, run_dir=tmp_path)
    assert allowed.read_text() == "reno bbr"
