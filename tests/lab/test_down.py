"""What `down` takes away: the labs that were asked for, and nothing that is no lab."""

from __future__ import annotations

from pathlib import Path

import pytest
from hulk_lab import cgroups, cli, paths, up
from hulk_lab.wan import slots

NO_NAMES = ("..", ".", "", "a/b", "/", "../x", "A", "a\n")


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of states with a neighbour that no lab owns; nothing of this machine is reached."""
    folder = tmp_path / "var" / "states"
    folder.mkdir(parents=True)
    (folder.parent / "neighbour").touch()
    monkeypatch.setattr(paths, "STATES", folder)
    return folder


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_labs_name_is_neither_taken_down_nor_found(
    name: str, states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`down --lab ..` would be all of /var/lib and every process of the machine."""
    lab = states / "other"
    lab.mkdir()
    (lab / "lab.yaml").touch()
    reached: list[str] = []
    monkeypatch.setattr(slots, "find", lambda name: None)
    for module, function in ((cgroups, "destroy"), (up.sysctls, "restore"), (slots, "release")):
        monkeypatch.setattr(module, function, reached.append)

    for command in (up.down, up.find):
        with pytest.raises(ValueError, match=r"lab name .* must be 1 to 40 of a-z, 0-9 and -"):
            command(name)

    assert reached == []
    assert (states.parent / "neighbour").exists()
    assert (lab / "lab.yaml").exists()


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_labs_name_has_no_processes_to_end(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lab name .* must be"):
        cgroups.destroy(name, mount=tmp_path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"everything": True}, ["ci-1-crashed", "only-a-slot", "up"], id="all"),
        pytest.param({"prefix": "ci-1-"}, ["ci-1-crashed"], id="those of one run"),
        pytest.param({"lab": "up"}, ["up"], id="one"),
    ],
)
def test_the_labs_that_are_taken_down(
    options: dict[str, str], expected: list[str], states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept logs are no lab, nor is what has no lab's name."""
    for folder in ("ci-1-crashed/processes", "kept/logs", "up/logs", "up/processes", "lost+found/x"):
        (states / folder).mkdir(parents=True)
    monkeypatch.setattr(slots, "names", lambda: {"up", "only-a-slot"})
    taken_down: list[str] = []
    monkeypatch.setattr(up, "down", lambda name, *_, **__: taken_down.append(name))

    cli.down(**options)

    assert taken_down == expected


def test_names_are_those_that_hold_slots(tmp_path: Path) -> None:
    slots.acquire("a", tmp_path)
    slots.acquire("b", tmp_path)
    slots.release("a", tmp_path)
    assert slots.names(tmp_path) == {"b"}
