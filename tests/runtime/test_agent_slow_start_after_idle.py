"""What the kernel says of silent connections."""

from __future__ import annotations

from pathlib import Path

import pytest
from hulk_runtime.agent.slow_start_after_idle import SYSCTLS, keeps_windows


@pytest.mark.parametrize(
    ("slow_start", "control", "keeps"),
    [("1", "cubic", False), ("0", "cubic", True), ("1", "bbr", True), ("1", "reno", False), (None, None, False)],
)
def test_windows_stay_open_where_the_kernel_is_told_so_or_paces(
    tmp_path: Path, slow_start: str | None, control: str | None, keeps: bool
) -> None:
    for name, text in (("tcp_slow_start_after_idle", slow_start), ("tcp_congestion_control", control)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    assert keeps_windows(tmp_path) is keeps


def test_the_kernel_here_says_it() -> None:
    assert (SYSCTLS / "tcp_slow_start_after_idle").read_text().strip() in ("0", "1")
    assert (SYSCTLS / "tcp_congestion_control").read_text().strip()
