"""The bench of checkpoints: each part of a save and of a resume is timed as often as asked."""

from __future__ import annotations

from bench.checkpoints import MIB, measured


def test_every_part_is_timed() -> None:
    times = measured(8 * MIB, num_times=3)
    assert set(times.seconds) == {"write", "SHA-256", "save", "read", "resume", "sign", "verify"}
    assert {len(found) for found in times.seconds.values()} == {3}
    assert times.s_per_gb("save") == f"{times.best_s('save') / (8 * MIB) * 1e9:.2f}"
