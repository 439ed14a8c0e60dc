"""Kueue in a lab: only who asks for it has it, and has it built."""

from pathlib import Path

import pytest
from hulk_lab.builds import everything, golang
from hulk_lab.cli import DEFAULT_FILE, read
from hulk_lab.progress import Silent


def test_an_option_or_the_file_asks_for_kueue(tmp_path: Path) -> None:
    assert not read(DEFAULT_FILE, "a").kueue
    assert read(DEFAULT_FILE, "a", kueue=True).kueue
    assert read(DEFAULT_FILE, "a", control_plane_only=True, kueue=True).kueue
    file = tmp_path / "lab.yaml"
    file.write_text("kwok: {nodes: 1}\nkueue: true\n")
    assert read(file, "a").kueue


@pytest.mark.parametrize("extra", [(), ("kueue",)])
def test_what_takes_long_to_build_is_built_only_for_who_wants_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    built = []
    monkeypatch.setattr(golang, "CACHE", tmp_path)
    for part in golang.PARTS:
        monkeypatch.setitem(part.__dict__, "output", tmp_path / part.name)
    monkeypatch.setattr(everything, "check_machine", lambda: None)
    monkeypatch.setattr(golang, "build", lambda part, report: built.append(part.name))
    everything.build(Silent(), with_nodes=False, extra=extra)
    assert built == ["kubernetes", "kwok", "helm", *extra]
