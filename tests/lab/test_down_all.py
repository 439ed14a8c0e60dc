"""What `down --all` finds: every lab that holds a slot or left more than its logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hulk_lab import cli, paths, up
from hulk_lab.wan import slots


def test_every_lab_of_the_machine_is_known_and_kept_logs_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("crashed/processes", "kept/logs", "up/logs", "up/processes"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(paths, "STATES", tmp_path)
    monkeypatch.setattr(slots, "names", lambda: {"up", "only-a-slot"})
    taken_down: list[str] = []
    monkeypatch.setattr(up, "down", lambda name, *_, **__: taken_down.append(name))

    cli.down(everything=True)

    assert taken_down == ["crashed", "only-a-slot", "up"]


def test_names_are_those_that_hold_slots(tmp_path: Path) -> None:
    slots.acquire("a", tmp_path)
    slots.acquire("b", tmp_path)
    slots.release("a", tmp_path)
    assert slots.names(tmp_path) == {"b"}
